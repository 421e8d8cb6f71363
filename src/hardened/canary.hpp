#pragma once

#include "allod/base/random.hpp"

namespace allod {

// A word derived from the block's address and a secret of the process. Each byte of it depends on
// its address, so two canaries of one block may overlap.
class Canary {
 public:
  static constexpr std::size_t kBytes = sizeof(std::uint64_t);

  void start() noexcept { key_ = random::secret_key(); }

  // Writes one canary right behind the `requested` bytes, and one at the end of the block's
  // `bytes`. Blocks begin and end at multiples of 8.
  ALLOD_INLINE void write(Address block, std::size_t requested, std::size_t bytes) const noexcept {
    const std::uint64_t word = word_of(block);
    store(block + requested, turned(word, block + requested));
    if (has_end(bytes)) store(block + bytes - kBytes, word);
  }
  [[nodiscard]] ALLOD_INLINE bool is_intact(Address block, std::size_t requested,
                                            std::size_t bytes) const noexcept {
    const std::uint64_t word = word_of(block);
    const std::uint64_t behind = turned(word, block + requested);
    if (__builtin_expect(load(block + requested) != behind, 0)) return false;
    return !has_end(bytes) || load(block + bytes - kBytes) == word;
  }
  [[nodiscard]] ALLOD_INLINE bool is_end_intact(Address block, std::size_t bytes) const noexcept {
    return !has_end(bytes) || load(block + bytes - kBytes) == word_of(block);
  }

  // The changed bits, or 0 if both canaries are intact. For blocks below kEnds.
  [[nodiscard]] ALLOD_INLINE std::uint64_t damage(Address block, std::size_t requested,
                                                  std::size_t bytes) const noexcept {
    const std::uint64_t word = word_of(block);
    const std::uint64_t behind = turned(word, block + requested);
    return (load(block + requested) ^ behind) | (load(block + bytes - kBytes) ^ word);
  }
  // The changed bits of the end alone, which is zero unless the block is `in_use`. Branchless,
  // since the branch would often be mispredicted.
  [[nodiscard]] ALLOD_INLINE std::uint64_t damage_of_end(Address block, std::size_t bytes,
                                                         bool in_use) const noexcept {
    return load(block + bytes - kBytes) ^ (word_of(block) & -std::uint64_t{in_use});
  }
  ALLOD_INLINE static void clear(Address block, std::size_t requested, std::size_t bytes) noexcept {
    store(block + requested, 0);
    if (has_end(bytes)) clear_end(block, bytes);
  }
  ALLOD_INLINE static void clear_end(Address block, std::size_t bytes) noexcept {
    store(block + bytes - kBytes, 0);
  }

  // Larger blocks have no canary at the end, whose page may otherwise never be touched.
  static constexpr std::size_t kEnds = std::size_t{32} << 10;
  [[nodiscard]] static constexpr bool has_end(std::size_t bytes) noexcept { return bytes < kEnds; }

 private:
  [[nodiscard]] ALLOD_INLINE std::uint64_t word_of(Address block) const noexcept {
    // No byte is zero, which off-by-one writes often store.
    constexpr std::uint64_t kOnes = 0x0101010101010101;
    return key_.word_of(block) | kOnes;
  }
  [[nodiscard]] static ALLOD_INLINE std::uint64_t turned(std::uint64_t word, Address at) noexcept {
    const unsigned bits = 8 * (at & 7);
    return word >> bits | word << (-bits & 63);
  }
  static ALLOD_INLINE void store(Address at, std::uint64_t word) noexcept {
    __builtin_memcpy(reinterpret_cast<void*>(at), &word, sizeof word);
  }
  [[nodiscard]] static ALLOD_INLINE std::uint64_t load(Address at) noexcept {
    std::uint64_t word;
    __builtin_memcpy(&word, reinterpret_cast<const void*>(at), sizeof word);
    return word;
  }

  random::PlaceKey key_;
};

}  // namespace allod

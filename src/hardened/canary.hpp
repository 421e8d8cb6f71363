#pragma once

#include <array>
#include <bit>

#include "allod/base/random.hpp"

namespace allod {

// A word derived from the block's address and a secret of the process. Each byte of it depends on
// its address, so two canaries of one block may overlap.
class Canary {
 public:
  static constexpr std::size_t kBytes = sizeof(std::uint64_t);

  static void start() noexcept {
    const random::PlaceKey key = random::secret_key();
    inner_ = key.inner;
    mask_ = key.mask;
    outer_ = key.outer;
  }

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
  // The set bits of the start of the block behind, which is zero unless that is `in_use`, and then
  // no line of it is touched. Branchless, as above.
  [[nodiscard]] static ALLOD_INLINE std::uint64_t damage_of_start(Address block, std::size_t bytes,
                                                                  bool in_use) noexcept {
    const std::uint64_t mask = std::uint64_t{in_use} - 1;
    return load(block + (bytes & static_cast<std::size_t>(mask))) & mask;
  }
  // The set bits of what lies between both canaries, which stays zero: nobody ever has it. For
  // small blocks, where it is seldom more than a word; its last word is looked at.
  [[nodiscard]] static ALLOD_INLINE std::uint64_t damage_between_small(Address block,
                                                                       std::size_t requested,
                                                                       std::size_t bytes) noexcept {
    return load(block + bytes - 2 * kBytes) & kBetween[(bytes - requested) % kBetween.size()];
  }
  // The same for larger ones below kEnds: all of it.
  [[nodiscard]] static ALLOD_INLINE std::uint64_t damage_between(Address block,
                                                                 std::size_t requested,
                                                                 std::size_t bytes) noexcept {
    const Address end = block + bytes - kBytes;
    Address at = block + requested + kBytes;
    if (at >= end) return 0;
    std::uint64_t found = 0;
    for (; at + kBytes <= end; at += kBytes) found |= load(at);
    // The rest is the upper part of a word, which may begin in a canary.
    return found | load(end - kBytes) >> 1 >> (63 - 8 * (end - at));
  }
  // The canaries of a copy of what lies behind the `requested` bytes of the block.
  [[nodiscard]] bool is_intact_in(const unsigned char* copy, Address block, std::size_t requested,
                                  std::size_t bytes) const noexcept {
    const std::uint64_t word = word_of(block);
    const Address at = address_of(copy);
    if (load(at) != turned(word, block + requested)) return false;
    return !has_end(bytes) || load(at + bytes - requested - kBytes) == word;
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
    return random::PlaceKey::word_of(block, inner_, mask_, outer_) | ones_;
  }
  // By the block's slack, the bytes of its second last word that no canary covers.
  static constexpr auto kBetween = [] {
    std::array<std::uint64_t, 32> masks{};
    for (unsigned slack = 2 * kBytes + 1; slack < masks.size(); ++slack) {
      masks[slack] =
          slack < 3 * kBytes ? ~std::uint64_t{0} << 8 * (3 * kBytes - slack) : ~std::uint64_t{0};
    }
    return masks;
  }();

  [[nodiscard]] static ALLOD_INLINE std::uint64_t turned(std::uint64_t word, Address at) noexcept {
    // Opaque, so that the compiler sees no more than the remainder that a rotation takes anyway.
    return std::rotr(word, static_cast<int>(opaque(8 * at) % kWordBits));
  }
  static ALLOD_INLINE void store(Address at, std::uint64_t word) noexcept {
    __builtin_memcpy(reinterpret_cast<void*>(at), &word, sizeof word);
  }
  [[nodiscard]] static ALLOD_INLINE std::uint64_t load(Address at) noexcept {
    std::uint64_t word;
    __builtin_memcpy(&word, reinterpret_cast<const void*>(at), sizeof word);
    return word;
  }

  // Variables of their own, and the constant in memory: otherwise their address and the constant
  // take registers of the short path.
  static inline constinit std::uint64_t inner_ = 1;
  static inline constinit std::uint64_t mask_ = 0;
  static inline constinit std::uint64_t outer_ = 1;
  // No byte of a word is zero, which off-by-one writes often store.
  static inline constinit std::uint64_t ones_ = 0x0101010101010101;
};

}  // namespace allod

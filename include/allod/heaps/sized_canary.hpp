// The end of a block, which tells how long it is and whether it was written to.
#pragma once

#include "allod/base/random.hpp"

namespace allod::heaps {

// The last word of a block holds the size that was asked for, and half a word that proves it, made
// from the address, the size and a secret. What lies between is filled. So there is nothing to
// keep elsewhere, and a block that is all zeros is certainly not one in use.
class SizedCanary {
 public:
  static constexpr std::size_t kBytes = sizeof(std::uint64_t);
  static constexpr std::size_t kDamaged = ~std::size_t{0};
  // The end of a large block shall not be touched for the sake of a gap.
  static constexpr std::size_t kMostFilled = 64;

  void start() noexcept { key_ = random::secret_key(); }

  // `bytes` is a multiple of 8, and at least kBytes more than `requested`.
  void write(Address block, std::size_t requested, std::size_t bytes) const noexcept {
    const Address end = block + bytes - kBytes;
    const std::size_t gap = end - block - requested;
    __builtin_memset(reinterpret_cast<void*>(block + requested), fill_of(block), filled(gap));
    *reinterpret_cast<std::uint64_t*>(end) = word_of(block, gap);
  }
  // What was asked for, or kDamaged.
  [[nodiscard]] std::size_t read(Address block, std::size_t bytes) const noexcept {
    return read(block, bytes, [](Address at, std::size_t) noexcept { return at; });
  }
  // The same of a block that may not be there: see(from, most) returns where so many bytes can be
  // read instead, until it is called again, or 0. It is asked for no more than kMostFilled.
  template <class See>
  [[nodiscard]] std::size_t read(Address block, std::size_t bytes, See&& see) const noexcept {
    const Address end = block + bytes - kBytes;
    const auto* const last = reinterpret_cast<const std::uint64_t*>(see(end, kBytes));
    if (last == nullptr) return kDamaged;
    const std::uint64_t word = *last;
    const std::size_t gap = (word ^ mixed(block, 0)) >> 32;
    if (gap > bytes - kBytes || word != word_of(block, gap)) return kDamaged;
    if (gap == 0) return bytes - kBytes;
    const unsigned char fill = fill_of(block);
    const auto* const between = reinterpret_cast<const unsigned char*>(see(end - gap, filled(gap)));
    if (between == nullptr) return kDamaged;
    for (std::size_t i = 0; i < filled(gap); ++i) {
      if (between[i] != fill) return kDamaged;
    }
    return bytes - kBytes - gap;
  }
  static void clear(Address block, std::size_t bytes) noexcept {
    *reinterpret_cast<std::uint64_t*>(block + bytes - kBytes) = 0;
  }

 private:
  [[nodiscard]] static std::size_t filled(std::size_t gap) noexcept {
    return gap < kMostFilled ? gap : kMostFilled;
  }
  [[nodiscard]] std::uint64_t mixed(Address block, std::size_t gap) const noexcept {
    // As if it were a place far away: one near by would have nearly the same product.
    constexpr std::uint64_t kFar = 0x9e3779b97f4a7c15;
    return key_.word_of(block + gap * kFar);
  }
  // What comes first in memory is not zero, which is what programs write one too far.
  [[nodiscard]] std::uint64_t word_of(Address block, std::size_t gap) const noexcept {
    const std::uint64_t proof = (mixed(block, gap + 1) >> 32) | 1;
    const std::uint64_t hidden = (mixed(block, 0) >> 32) ^ gap;
    return hidden << 32 | proof;
  }
  [[nodiscard]] unsigned char fill_of(Address block) const noexcept {
    return static_cast<unsigned char>(mixed(block, 0) >> 8 | 1);
  }

  random::PlaceKey key_;
};

// Is the memory all zeros? Both are multiples of 8. All of it is looked at, in wide loads: a stop
// in the middle would cost more than it saves, for nearly always it is zero.
[[nodiscard]] ALLOD_INLINE bool is_zero(Address from, std::size_t bytes) noexcept {
  using Pair [[gnu::vector_size(16)]] = std::uint64_t;
  const auto pair_at = [](Address at) noexcept {
    Pair pair;
    __builtin_memcpy(&pair, reinterpret_cast<const void*>(at), sizeof pair);
    return pair;
  };
  const Address end = from + bytes;
  const Address end_of_fours = end - bytes % (4 * sizeof(Pair));
  Pair seen{};
  for (; from != end_of_fours; from += 4 * sizeof(Pair)) {
    seen |= (pair_at(from) | pair_at(from + 16)) | (pair_at(from + 32) | pair_at(from + 48));
  }
  std::uint64_t rest = seen[0] | seen[1];
  for (; from != end; from += sizeof rest) rest |= *reinterpret_cast<const std::uint64_t*>(from);
  return rest == 0;
}

}  // namespace allod::heaps

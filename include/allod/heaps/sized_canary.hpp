// A canary that holds the size of its block.
#pragma once

#include "allod/base/random.hpp"

namespace allod::heaps {

// The last word of a block holds the requested size, and half a word that proves it, made from the
// address, the size and a secret. The gap before it is filled. So no state is needed elsewhere, and
// a block that is all zeros is never one in use.
class SizedCanary {
 public:
  static constexpr std::size_t kBytes = sizeof(std::uint64_t);
  static constexpr std::size_t kDamaged = ~std::size_t{0};
  // More would touch the end of a large block only for its gap.
  static constexpr std::size_t kMostFilled = 64;

  void start() noexcept { key_ = random::secret_key(); }

  // `bytes` is a multiple of 8, and at least `requested` + kBytes.
  void write(Address block, std::size_t requested, std::size_t bytes) const noexcept {
    const Address end = block + bytes - kBytes;
    const std::size_t gap = end - block - requested;
    __builtin_memset(reinterpret_cast<void*>(block + requested), fill_of(block), filled(gap));
    *reinterpret_cast<std::uint64_t*>(end) = little_endian(word_of(block, gap));
  }
  // The requested size, or kDamaged.
  [[nodiscard]] std::size_t read(Address block, std::size_t bytes) const noexcept {
    return read(block, bytes, [](Address at, std::size_t) noexcept { return at; });
  }
  // The same for a block that may have gone. `see(from, most)` returns where the bytes can be read
  // instead, until its next call, or 0. `most` is at most kMostFilled.
  template <class See>
  [[nodiscard]] std::size_t read(Address block, std::size_t bytes, See&& see) const noexcept {
    const Address end = block + bytes - kBytes;
    const auto* const last = reinterpret_cast<const std::uint64_t*>(see(end, kBytes));
    if (last == nullptr) return kDamaged;
    const std::uint64_t word = little_endian(*last);
    const auto gap = static_cast<std::size_t>((word ^ mixed(block, 0)) >> 32);
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
    // A distant address: a near one would have nearly the same product.
    constexpr std::uint64_t kFar = 0x9e3779b97f4a7c15;
    return key_.word_of(block + gap * kFar);
  }
  // The lowest byte in memory is not zero, since an overflow often writes one zero.
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

// Whether the memory is all zeros. Both are multiples of 8. Reads all of it in wide loads: it
// nearly always is zero, so stopping early would cost more than it saves.
[[nodiscard]] ALLOD_INLINE bool is_zero(Address from, std::size_t bytes) noexcept {
  using Pair [[gnu::vector_size(16), gnu::may_alias]] = std::uint64_t;
  constexpr std::size_t kStep = 8 * sizeof(Pair);
  const auto word_at = [](Address at) noexcept {
    return *reinterpret_cast<const std::uint64_t*>(at);
  };
  if (bytes == 0) return true;
  const Address end = from + bytes;
  // Aligned loads can be operands.
  const Address first = align_up(from, sizeof(Pair));
  const Address last = align_down(end, sizeof(Pair));
  std::uint64_t rest = word_at(from) | word_at(end - sizeof rest);
  Pair seen{};
  Address at = first;
  for (; at + kStep <= last; at += kStep) {
    const auto* const pairs = reinterpret_cast<const Pair*>(at);
    const Pair one = (pairs[0] | pairs[1]) | (pairs[2] | pairs[3]);
    seen |= one | ((pairs[4] | pairs[5]) | (pairs[6] | pairs[7]));
  }
  for (; at < last; at += sizeof(Pair)) seen |= *reinterpret_cast<const Pair*>(at);
  return (seen[0] | seen[1] | rest) == 0;
}

}  // namespace allod::heaps

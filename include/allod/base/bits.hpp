// Words of bits, plain and shared between threads.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "allod/base/cpu.hpp"

namespace allod {

using Word = std::uint64_t;
inline constexpr unsigned kWordBits = 64;

// To hash by multiplication: the upper bits of a product with it depend on all bits of the other
// factor. 2^64 over the golden ratio (D. Knuth, The Art of Computer Programming, volume 3, 6.4).
inline constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15;

[[nodiscard]] constexpr std::uint32_t words_for(std::uint32_t bits) noexcept {
  return (bits + kWordBits - 1) / kWordBits;
}
[[nodiscard]] constexpr Word bit(unsigned index) noexcept { return Word{1} << index; }

// The lowest `count` bits, for count in 0..64.
[[nodiscard]] constexpr Word low_bits(unsigned count) noexcept {
  return count >= kWordBits ? ~Word{0} : bit(count) - 1;
}
// Index of the lowest set bit; `word` must not be 0.
[[nodiscard]] ALLOD_INLINE unsigned lowest_bit(Word word) noexcept {
  return static_cast<unsigned>(__builtin_ctzll(word));
}
// The first bit at `from` or above, or else the lowest; `word` is not 0.
[[nodiscard]] inline unsigned bit_from(Word word, unsigned from) noexcept {
  const Word above = word & ~low_bits(from);
  return lowest_bit(above != 0 ? above : word);
}
// Index of the highest set bit; `word` must not be 0.
[[nodiscard]] constexpr unsigned highest_bit(Word word) noexcept {
  return kWordBits - 1U - static_cast<unsigned>(__builtin_clzll(word));
}
// Without a call into a compiler run-time library, which a baseline x86-64
// build of __builtin_popcountll would make.
[[nodiscard]] constexpr unsigned count_bits(Word word) noexcept {
  word -= (word >> 1) & 0x5555555555555555;
  word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333);
  word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
  return static_cast<unsigned>((word * 0x0101010101010101) >> 56);
}

}  // namespace allod

// Words of bits, plain and shared between threads.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "allod/base/cpu.hpp"

namespace allod {

using Word = std::uint64_t;
inline constexpr unsigned kWordBits = 64;

// 2^64 / golden ratio, for multiplicative hashing: the upper bits of a product depend on all bits
// of the other factor (D. Knuth, The Art of Computer Programming, volume 3, 6.4).
inline constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15;

// The 128 bits of a product of two words.
struct WideProduct {
  std::uint64_t low;
  std::uint64_t high;
};
[[nodiscard]] constexpr ALLOD_INLINE WideProduct wide_product(std::uint64_t a,
                                                              std::uint64_t b) noexcept {
#if defined(__SIZEOF_INT128__)
  const auto product = static_cast<unsigned __int128>(a) * b;
  return {static_cast<std::uint64_t>(product), static_cast<std::uint64_t>(product >> 64)};
#else
  constexpr std::uint64_t kHalf = 0xffffffff;
  const std::uint64_t lowest = (a & kHalf) * (b & kHalf);
  const std::uint64_t middle = (a >> 32) * (b & kHalf) + (lowest >> 32);
  const std::uint64_t other = (a & kHalf) * (b >> 32) + (middle & kHalf);
  return {other << 32 | (lowest & kHalf), (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32)};
#endif
}

// The word whose bytes lie in memory from the lowest to the highest, on any processor.
[[nodiscard]] constexpr ALLOD_INLINE std::uint64_t little_endian(std::uint64_t word) noexcept {
  return std::endian::native == std::endian::big ? __builtin_bswap64(word) : word;
}

[[nodiscard]] constexpr std::uint32_t words_for(std::uint32_t bits) noexcept {
  return (bits + kWordBits - 1) / kWordBits;
}
[[nodiscard]] constexpr Word bit(unsigned index) noexcept { return Word{1} << index; }

// The lowest `count` bits, for 0 to 64.
[[nodiscard]] constexpr Word low_bits(unsigned count) noexcept {
  return count >= kWordBits ? ~Word{0} : bit(count) - 1;
}
// `word` must not be 0.
[[nodiscard]] ALLOD_INLINE unsigned lowest_bit(Word word) noexcept {
  return static_cast<unsigned>(__builtin_ctzll(word));
}
// Index of the first set bit from `from` on, with wraparound; `word` must not be 0.
[[nodiscard]] inline unsigned bit_from(Word word, unsigned from) noexcept {
  const Word above = word & ~low_bits(from);
  return lowest_bit(above != 0 ? above : word);
}
// `word` must not be 0.
[[nodiscard]] constexpr unsigned highest_bit(Word word) noexcept {
  return kWordBits - 1U - static_cast<unsigned>(__builtin_clzll(word));
}
// __builtin_popcountll would call the compiler's run-time library on baseline x86-64.
[[nodiscard]] constexpr unsigned count_bits(Word word) noexcept {
  word -= (word >> 1) & 0x5555555555555555;
  word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333);
  word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
  return static_cast<unsigned>((word * 0x0101010101010101) >> 56);
}

}  // namespace allod

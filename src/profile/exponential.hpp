// The exponential distribution, without libm.
#pragma once

#include <cstdint>

namespace allod {

// The natural logarithm of a positive normal number, to about 1e-12.
[[nodiscard]] constexpr double natural_log(double x) noexcept {
  const auto bits = __builtin_bit_cast(std::uint64_t, x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = __builtin_bit_cast(double, (bits & 0xfffffffffffff) | 0x3ff0000000000000);
  if (m > 1.4142135623730951) {
    m /= 2;
    ++exponent;
  }
  // ln m = 2 artanh((m - 1) / (m + 1)), with an argument of at most 0.172.
  const double t = (m - 1) / (m + 1);
  const double square = t * t;
  double sum = 0;
  for (const double one_part : {1. / 15, 1. / 13, 1. / 11, 1. / 9, 1. / 7, 1. / 5, 1. / 3, 1.}) {
    sum = sum * square + one_part;
  }
  return 2 * t * sum + exponent * 0.6931471805599453;
}

// An exponential variate of mean 1, from 64 random bits.
[[nodiscard]] constexpr double exponential(std::uint64_t random_bits) noexcept {
  // In (0, 1].
  const double uniform = (static_cast<double>(random_bits >> 11) + 1) * 0x1p-53;
  return -natural_log(uniform);
}

// 1 - exp(-x) for x >= 0: the probability that the variate is at most x.
[[nodiscard]] constexpr double chance_within(double x) noexcept {
  if (x > 40) return 1;
  int doublings = 0;
  for (; x > 0.125; x /= 2) ++doublings;
  // Each term is smaller by a factor of x; accurate to 1e-12.
  const int terms = x < 0x1p-9 ? 4 : 10;
  double chance = 0;
  for (int k = terms; k >= 1; --k) chance = x / k * (1 - chance);
  // The value exceeds 2x if it exceeds x twice.
  for (; doublings > 0; --doublings) chance = chance * (2 - chance);
  return chance;
}

static_assert(natural_log(1) == 0);
static_assert(chance_within(0) == 0);

}  // namespace allod

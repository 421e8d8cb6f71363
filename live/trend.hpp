// Trends: how fast a figure grows, as far as its points tell.
#pragma once

#include <cstddef>
#include <cstdint>

namespace allod::live {

// A reading of one figure.
struct Reading {
  std::uint64_t at_ms;
  std::uint64_t value;  // bytes
};

// Bytes per minute over the newest stretch without a break. With 99 % certainty, the true slope
// lies between `low` and `high`.
struct Trend {
  double rate = 0;
  double low = 0;
  double high = 0;
  std::uint64_t span_ms = 0;  // of the stretch; 0: too few readings to tell anything

  // False where nothing can be told: the interval includes zero, or what is as good as zero.
  [[nodiscard]] bool is_sure() const noexcept {
    constexpr double kNothing = 1024;
    return span_ms != 0 && (low > kNothing || high < -kNothing);
  }
};

// Without libm.
[[nodiscard]] double square_root(double x) noexcept;

// More readings are thinned to this number.
inline constexpr std::size_t kTrendReadings = 120;

// Readings are in the order of time. Theil's and Sen's estimate (Sen 1968), whose interval is
// widened for readings that depend on each other (Hamed and Rao 1998). Pure; needs 64 KiB of stack.
[[nodiscard]] Trend trend_of(const Reading* readings, std::size_t count) noexcept;

}  // namespace allod::live

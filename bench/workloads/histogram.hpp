// Counts durations from nanoseconds to hours in a table of fixed size: linear within each doubling,
// so that every value is known to about one part in sixty-four (after HdrHistogram, Tene).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace bench {

class Histogram {
 public:
  [[gnu::always_inline]] void add(std::uint64_t value) {
    ++counts_[index(value)];
    ++total_;
    largest_ = value > largest_ ? value : largest_;
  }

  // The least value that so many parts in 100,000 of all values do not exceed, or up to one part in
  // sixty-four above it; exact for all of them.
  std::uint64_t at(std::uint64_t parts) const {
    const std::uint64_t rank = (total_ * parts + 99'999) / 100'000;
    std::uint64_t passed = 0;
    for (std::size_t i = 0; i < kCells; ++i) {
      passed += counts_[i];
      if (passed >= rank && passed > 0) {
        return highest(i) < largest_ ? highest(i) : largest_;
      }
    }
    return largest_;
  }

 private:
  static constexpr unsigned kLinearBits = 6;
  static constexpr std::size_t kLinear = std::size_t{1} << kLinearBits;
  static constexpr unsigned kDoublings = 40;
  static constexpr std::size_t kCells = kLinear * (kDoublings + 1);

  // Values below 2 * kLinear have a cell each; beyond, a cell covers 2, 4, 8, ... values.
  static std::size_t index(std::uint64_t value) {
    const auto width = static_cast<unsigned>(std::bit_width(value | kLinear));
    const unsigned shift = width - kLinearBits - 1;
    const std::size_t cell = shift * kLinear + (value >> shift);
    return cell < kCells ? cell : kCells - 1;
  }

  static std::uint64_t highest(std::size_t cell) {
    if (cell < 2 * kLinear) {
      return cell;
    }
    const std::size_t shift = cell / kLinear - 1;
    return ((cell - shift * kLinear + 1) << shift) - 1;
  }

  std::uint64_t counts_[kCells] = {};
  std::uint64_t total_ = 0;
  std::uint64_t largest_ = 0;
};

}  // namespace bench

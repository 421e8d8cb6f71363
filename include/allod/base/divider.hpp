// Division by an invariant number.
#pragma once

#include <cstdint>

#include "allod/base/bits.hpp"

namespace allod {

// Multiplies by 2^64 / divisor, rounded up. The upper half of the product is the quotient; the
// remainder is 0 exactly if the lower half is less than the factor (D. Lemire, O. Kaser and N.
// Kurz, "Faster remainder by direct computation", 2019). Exact below 2^32. The quotient is
// monotonic.
class Divider {
 public:
  // Divides by infinity: the quotient is 0, and only 0 leaves no remainder.
  constexpr Divider() noexcept = default;
  // `divisor` must be from 2 to 2^32.
  constexpr explicit Divider(std::uint64_t divisor) noexcept
      : factor_{~std::uint64_t{0} / divisor + 1} {}

  struct Result {
    std::uint64_t quotient;
    bool is_whole;
  };
  [[nodiscard]] constexpr ALLOD_INLINE Result divide(std::uint64_t number) const noexcept {
    const WideProduct product = wide_product(number, factor_);
    return {product.high, product.low < factor_};
  }

  friend constexpr bool operator==(const Divider&, const Divider&) noexcept = default;

 private:
  std::uint64_t factor_ = 1;
};

}  // namespace allod

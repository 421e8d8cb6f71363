// Division by a number that is known long before.
#pragma once

#include <cstdint>

#include "allod/base/cpu.hpp"

namespace allod {

// One multiplication by 2^64 / divisor, rounded up: the upper half of the product is the quotient,
// and the lower one is less than that factor just where nothing remains (D. Lemire, O. Kaser and
// N. Kurz, "Faster remainder by direct computation", 2019). Exact below 2^32; the quotient never
// becomes less as the number grows.
class Divider {
 public:
  // Divides all there is into one: the quotient is 0, and nothing remains of 0 alone.
  constexpr Divider() noexcept = default;
  // `divisor` is from 2 to 2^32.
  constexpr explicit Divider(std::uint64_t divisor) noexcept
      : factor_{~std::uint64_t{0} / divisor + 1} {}

  struct Result {
    std::uint64_t quotient;
    bool is_whole;
  };
  [[nodiscard]] constexpr ALLOD_INLINE Result divide(std::uint64_t number) const noexcept {
    const auto product = static_cast<unsigned __int128>(number) * factor_;
    return {static_cast<std::uint64_t>(product >> 64),
            static_cast<std::uint64_t>(product) < factor_};
  }

  friend constexpr bool operator==(const Divider&, const Divider&) noexcept = default;

 private:
  std::uint64_t factor_ = 1;
};

}  // namespace allod

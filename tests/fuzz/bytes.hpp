// The bytes of a fuzzer as a source of choices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allod/base/base.hpp"

namespace allod::test {

// Every choice takes as few bytes as it needs. When there are no more, all choices are 0.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) noexcept : data_{data}, left_{size} {}

  [[nodiscard]] bool more() const noexcept { return left_ != 0; }
  // In 0 .. bound - 1.
  std::size_t below(std::size_t bound) noexcept {
    std::size_t value = 0;
    for (std::size_t most = bound - 1; most != 0; most >>= 8) value = value << 8 | next();
    return value % bound;
  }
  bool one_in(std::size_t n) noexcept { return below(n) == n - 1; }
  // Between 1 and `most`, each order of magnitude as likely as the other.
  std::size_t any_magnitude(std::size_t most) noexcept {
    const std::size_t bits = 1 + below(highest_bit(most) + 1);
    const std::size_t value = 1 + below(std::size_t{1} << bits);
    return value < most ? value : most;
  }

 private:
  std::uint8_t next() noexcept {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  const std::uint8_t* data_;
  std::size_t left_;
};

}  // namespace allod::test

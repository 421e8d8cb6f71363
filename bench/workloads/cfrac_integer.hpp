// Small natural numbers for the workload `cfrac`, made to allocate: every value is a block of its
// own, and every operation makes at least one.
#pragma once

#include <bit>
#include <utility>

#include "harness.hpp"

namespace bench {

// An immutable natural number, shared by counted references. Digits have 32 bits, the lowest first,
// and the highest one is not zero.
class Integer {
 public:
  Integer() = default;  // No number yet.
  explicit Integer(std::uint64_t value) : body_(make(2)) {
    body_->digit[0] = static_cast<std::uint32_t>(value);
    body_->digit[1] = static_cast<std::uint32_t>(value >> 32U);
    trim();
  }
  Integer(const Integer& other) : body_(other.body_) { ++body_->references; }
  Integer(Integer&& other) noexcept : body_(std::exchange(other.body_, nullptr)) {}
  Integer& operator=(Integer other) noexcept {
    std::swap(body_, other.body_);
    return *this;
  }
  ~Integer() {
    if (body_ != nullptr && --body_->references == 0) {
      std::free(body_);
    }
  }

  static Integer of_length(std::size_t count) {
    Integer result;
    result.body_ = make(count);
    return result;
  }
  std::uint32_t& digit(std::size_t i) { return body_->digit[i]; }
  std::uint32_t digit(std::size_t i) const { return body_->digit[i]; }
  std::size_t count() const { return body_->count; }
  bool is(std::uint32_t value) const { return count() <= 1 && (*this)[0] == value; }
  static std::uint64_t made() { return made_; }
  // The digits beyond the highest are zero.
  std::uint32_t operator[](std::size_t i) const { return i < count() ? digit(i) : 0; }
  std::uint64_t low() const { return (std::uint64_t{(*this)[1]} << 32U) | (*this)[0]; }
  std::size_t bits() const {
    return count() == 0
               ? 0
               : 32 * count() - static_cast<std::size_t>(std::countl_zero(digit(count() - 1)));
  }

  Integer& trim() {
    while (body_->count > 0 && body_->digit[body_->count - 1] == 0) {
      --body_->count;
    }
    return *this;
  }

 private:
  struct Body {
    std::uint32_t references;
    std::uint32_t count;
    std::uint32_t digit[];
  };

  static Body* make(std::size_t count) {
    ++made_;
    auto* body = reinterpret_cast<Body*>(bench::allocate(sizeof(Body) + count * 4));
    body->references = 1;
    body->count = static_cast<std::uint32_t>(count);
    return body;
  }

  static inline std::uint64_t made_ = 0;
  Body* body_ = nullptr;
};

bool less(const Integer& a, const Integer& b) {
  if (a.count() != b.count()) {
    return a.count() < b.count();
  }
  std::size_t i = a.count();
  while (i > 0 && a.digit(i - 1) == b.digit(i - 1)) {
    --i;
  }
  return i > 0 && a.digit(i - 1) < b.digit(i - 1);
}

Integer operator+(const Integer& a, const Integer& b) {
  const std::size_t count = (a.count() > b.count() ? a.count() : b.count()) + 1;
  Integer sum = Integer::of_length(count);
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < count; ++i) {
    carry += std::uint64_t{a[i]} + b[i];
    sum.digit(i) = static_cast<std::uint32_t>(carry);
    carry >>= 32U;
  }
  return std::move(sum.trim());
}

// a is not below b.
Integer operator-(const Integer& a, const Integer& b) {
  Integer difference = Integer::of_length(a.count());
  std::uint64_t borrow = 0;
  for (std::size_t i = 0; i < a.count(); ++i) {
    const std::uint64_t digit = std::uint64_t{a.digit(i)} - b[i] - borrow;
    difference.digit(i) = static_cast<std::uint32_t>(digit);
    borrow = digit >> 63U;
  }
  return std::move(difference.trim());
}

Integer operator*(const Integer& a, const Integer& b) {
  Integer product = Integer::of_length(a.count() + b.count());
  for (std::size_t i = 0; i < product.count(); ++i) {
    product.digit(i) = 0;
  }
  for (std::size_t i = 0; i < a.count(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < b.count(); ++j) {
      carry += std::uint64_t{a.digit(i)} * b.digit(j) + product.digit(i + j);
      product.digit(i + j) = static_cast<std::uint32_t>(carry);
      carry >>= 32U;
    }
    product.digit(i + b.count()) = static_cast<std::uint32_t>(carry);
  }
  return std::move(product.trim());
}

// A factor below 2^32, so that the result needs at most one digit more.
Integer shifted(const Integer& a, unsigned shift) { return a * Integer(std::uint64_t{1} << shift); }

std::uint32_t small_remainder(const Integer& a, std::uint32_t by) {
  std::uint64_t rest = 0;
  for (std::size_t i = a.count(); i-- > 0;) {
    rest = ((rest << 32U) | a.digit(i)) % by;
  }
  return static_cast<std::uint32_t>(rest);
}

Integer small_quotient(const Integer& a, std::uint32_t by) {
  Integer quotient = Integer::of_length(a.count());
  std::uint64_t rest = 0;
  for (std::size_t i = a.count(); i-- > 0;) {
    rest = (rest << 32U) | a.digit(i);
    quotient.digit(i) = static_cast<std::uint32_t>(rest / by);
    rest %= by;
  }
  return std::move(quotient.trim());
}

struct Division {
  Integer quotient;
  Integer rest;
};

// Algorithm D of Knuth, The Art of Computer Programming, volume 2.
Division divide(const Integer& a, const Integer& b) {
  if (less(a, b)) {
    return {Integer(0), a};
  }
  const std::size_t n = b.count();
  if (n == 1) {
    return {small_quotient(a, b.digit(0)), Integer(small_remainder(a, b.digit(0)))};
  }
  const auto shift = static_cast<unsigned>(std::countl_zero(b.digit(n - 1)));
  const Integer divisor = shifted(b, shift);
  const Integer dividend = shifted(a, shift);
  Integer rest = Integer::of_length(a.count() + 1);
  for (std::size_t i = 0; i < rest.count(); ++i) {
    rest.digit(i) = dividend[i];
  }
  Integer quotient = Integer::of_length(a.count() - n + 1);
  for (std::size_t j = quotient.count(); j-- > 0;) {
    const std::uint64_t head = (std::uint64_t{rest.digit(j + n)} << 32U) | rest.digit(j + n - 1);
    std::uint64_t guess = head / divisor.digit(n - 1);
    std::uint64_t left = head % divisor.digit(n - 1);
    while (guess >> 32U != 0 ||
           guess * divisor.digit(n - 2) > ((left << 32U) | rest.digit(j + n - 2))) {
      --guess;
      left += divisor.digit(n - 1);
      if (left >> 32U != 0) {
        break;
      }
    }
    std::uint64_t carry = 0;
    std::uint64_t borrow = 0;
    for (std::size_t i = 0; i <= n; ++i) {
      carry += guess * divisor[i];
      const std::uint64_t digit = std::uint64_t{rest.digit(j + i)} - (carry & 0xFFFFFFFFU) - borrow;
      rest.digit(j + i) = static_cast<std::uint32_t>(digit);
      borrow = digit >> 63U;
      carry >>= 32U;
    }
    if (borrow != 0) {
      --guess;
      carry = 0;
      for (std::size_t i = 0; i <= n; ++i) {
        carry += std::uint64_t{rest.digit(j + i)} + divisor[i];
        rest.digit(j + i) = static_cast<std::uint32_t>(carry);
        carry >>= 32U;
      }
    }
    quotient.digit(j) = static_cast<std::uint32_t>(guess);
  }
  rest.trim();
  for (std::size_t i = 0; i < rest.count(); ++i) {
    rest.digit(i) =
        static_cast<std::uint32_t>(((std::uint64_t{rest[i + 1]} << 32U) | rest.digit(i)) >> shift);
  }
  return {std::move(quotient.trim()), std::move(rest.trim())};
}

Integer operator/(const Integer& a, const Integer& b) { return divide(a, b).quotient; }
Integer operator%(const Integer& a, const Integer& b) { return divide(a, b).rest; }

Integer square_root(const Integer& a) {
  Integer root = shifted(Integer(1), 31);
  while (root.bits() <= a.bits() / 2) {
    root = shifted(root, 16);
  }
  for (;;) {
    Integer next = small_quotient(root + a / root, 2);
    if (!less(next, root)) {
      return root;
    }
    root = std::move(next);
  }
}

Integer greatest_common_divisor(Integer a, Integer b) {
  while (!b.is(0)) {
    Integer rest = a % b;
    a = std::exchange(b, std::move(rest));
  }
  return a;
}

}  // namespace bench

// Unwind tables for x86-64, in the format of the System V ABI and DWARF: how to get from a
// function's frame to its caller's.
#pragma once

#include <string.h>

#include <cstddef>
#include <cstdint>

#include "allod/base/base.hpp"

namespace allod::unwind {

// DWARF numbers of the registers that we follow.
inline constexpr std::uint64_t kRbp = 6;
inline constexpr std::uint64_t kRsp = 7;
inline constexpr std::uint64_t kRip = 16;

struct Expression {
  const unsigned char* code = nullptr;
  std::size_t bytes = 0;

  [[nodiscard]] bool is_there() const noexcept { return code != nullptr; }
};

// Unaligned load.
template <class Number>
[[nodiscard]] inline Number load(const unsigned char* from) noexcept {
  Number number;
  memcpy(&number, from, sizeof number);
  return number;
}

// Where the caller's value of a register is. Offsets count from the canonical frame address.
struct Saved {
  enum class Where : unsigned char { unchanged, unknown, at, is, at_expression, is_expression };

  Where where = Where::unchanged;
  std::int64_t offset = 0;
  Expression expression;
};

// How to leave a frame. The canonical frame address (CFA) is the caller's rsp, unless `rsp` says
// otherwise.
struct Rule {
  std::uint64_t base = kRsp;
  std::int64_t offset = 0;
  Expression expression;  // if present, replaces base and offset
  Saved rbp;
  Saved rsp;
  Saved rip;
  bool is_signal = false;
};

// The sorted search table (.eh_frame_hdr) of an object. Linkers write one format only.
class SearchTable {
 public:
  explicit SearchTable(const unsigned char* header) noexcept : header_(header) {}

  [[nodiscard]] bool is_usable() const noexcept;
  [[nodiscard]] std::uint32_t count() const noexcept { return load<std::uint32_t>(header_ + 8); }
  // An entry: function and description, both relative to the table.
  [[nodiscard]] std::uint64_t line(std::uint32_t number) const noexcept {
    constexpr std::size_t kLinesBegin = 12;
    return load<std::uint64_t>(header_ + kLinesBegin + sizeof(std::uint64_t) * number);
  }
  [[nodiscard]] Address function(std::uint32_t number) const noexcept {
    const auto offset = static_cast<std::int32_t>(line(number));
    return address_of(header_) + static_cast<Address>(std::int64_t{offset});
  }
  [[nodiscard]] const unsigned char* description(std::uint32_t number) const noexcept {
    return header_ + static_cast<std::int32_t>(line(number) >> 32);
  }
  // Finds the index of the last function that begins at or before `place`. False if there is none.
  [[nodiscard]] bool find(Address place, std::uint32_t* number) const noexcept;

 private:
  const unsigned char* header_;
};

enum class Reading : unsigned char { done, not_described, not_understood };

// Computes the rule for `place` in a function, and how many bytes of its description were read.
[[nodiscard]] Reading read_rule(const unsigned char* description, Address function, Address place,
                                Rule* rule, std::size_t* bytes_read) noexcept;

// A hash of the first `bytes` of a description and of its common part. 0 if the description is
// shorter.
[[nodiscard]] std::uint64_t fingerprint(const unsigned char* description,
                                        std::size_t bytes) noexcept;

}  // namespace allod::unwind

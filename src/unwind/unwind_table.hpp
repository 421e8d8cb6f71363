// What the unwind tables of a program say about a place in its code: how to come from the frame of
// a function to that of its caller. x86-64; the format is that of the System V ABI and of DWARF.
#pragma once

#include <string.h>

#include <cstddef>
#include <cstdint>

#include "allod/base/base.hpp"

namespace allod::unwind {

// The numbers that DWARF gives to the registers that are followed.
inline constexpr std::uint64_t kRbp = 6;
inline constexpr std::uint64_t kRsp = 7;
inline constexpr std::uint64_t kRip = 16;

struct Expression {
  const unsigned char* code = nullptr;
  std::size_t bytes = 0;

  [[nodiscard]] bool is_there() const noexcept { return code != nullptr; }
};

// Numbers in tables are not aligned.
template <class Number>
[[nodiscard]] inline Number load(const unsigned char* from) noexcept {
  Number number;
  memcpy(&number, from, sizeof number);
  return number;
}

// Where a register of the caller is found. Offsets are from the canonical frame address.
struct Saved {
  enum class Where : unsigned char { unchanged, unknown, at, is, at_expression, is_expression };

  Where where = Where::unchanged;
  std::int64_t offset = 0;
  Expression expression;
};

// How a frame is left. The canonical frame address (CFA) is what the caller's rsp will be, unless
// something is said about rsp.
struct Rule {
  std::uint64_t base = kRsp;
  std::int64_t offset = 0;
  Expression expression;  // in place of base and offset, if it is there
  Saved rbp;
  Saved rsp;
  Saved rip;
  bool is_signal = false;
};

// The table of an object that is sorted for search, of which there is one kind that linkers write.
class SearchTable {
 public:
  explicit SearchTable(const unsigned char* header) noexcept : header_(header) {}

  [[nodiscard]] bool is_usable() const noexcept;
  [[nodiscard]] std::uint32_t count() const noexcept { return load<std::uint32_t>(header_ + 8); }
  // A line holds a function and its description, both relative to the table.
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
  // The line of the last function that begins at or before `place`. False if there is none.
  [[nodiscard]] bool find(Address place, std::uint32_t* number) const noexcept;

 private:
  const unsigned char* header_;
};

enum class Reading : unsigned char { done, not_described, not_understood };

// Reads what a function's description says about a place in it, and how much of it was read.
[[nodiscard]] Reading read_rule(const unsigned char* description, Address function, Address place,
                                Rule* rule, std::size_t* bytes_read) noexcept;

// A number for the first `bytes` of a description and for what it has in common with others: as
// good as surely another one for others. 0 if there are not so many bytes.
[[nodiscard]] std::uint64_t fingerprint(const unsigned char* description,
                                        std::size_t bytes) noexcept;

}  // namespace allod::unwind

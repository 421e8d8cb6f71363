// The line of an instruction, from the table of its code object.
#pragma once

#include <algorithm>
#include <cstdint>

#include "python/layout.hpp"
#include "unwind/memory.hpp"

namespace allod::python {

// Bytes of the program, read in portions.
class Bytes {
 public:
  Bytes(unwind::ScatteredMemory& memory, Address begin, std::size_t count) noexcept
      : memory_{memory}, at_{begin}, left_{count} {}

  // False at the end, and where there is no memory.
  [[nodiscard]] bool next(unsigned char* byte) noexcept {
    if (used_ == held_ && !fill()) return false;
    *byte = portion_[used_++];
    return true;
  }

 private:
  [[nodiscard]] bool fill() noexcept {
    held_ = std::min(left_, sizeof portion_);
    used_ = 0;
    if (held_ == 0 || !memory_.copy(at_, portion_, held_)) {
      held_ = left_ = 0;
      return false;
    }
    at_ += held_;
    left_ -= held_;
    return true;
  }

  unwind::ScatteredMemory& memory_;
  Address at_;
  std::size_t left_;
  std::size_t held_ = 0;
  std::size_t used_ = 0;
  unsigned char portion_[128];
};

// `instruction`: its offset in bytes.
[[nodiscard]] inline std::int64_t line_by_increments(Bytes& table, std::int64_t first,
                                                     std::int64_t instruction) noexcept {
  std::int64_t line = first;
  std::int64_t at = 0;
  unsigned char bytes = 0;
  unsigned char lines = 0;
  while (table.next(&bytes) && table.next(&lines)) {
    at += bytes;
    if (at > instruction) break;
    line += static_cast<signed char>(lines);
  }
  return line;
}

[[nodiscard]] inline std::int64_t line_by_ranges(Bytes& table, std::int64_t first,
                                                 std::int64_t instruction) noexcept {
  constexpr std::int64_t kNoLine = -128;
  std::int64_t line = first;
  std::int64_t at = 0;
  unsigned char bytes = 0;
  unsigned char lines = 0;
  while (table.next(&bytes) && table.next(&lines)) {
    const std::int64_t more{static_cast<signed char>(lines)};
    if (more != kNoLine) line += more;
    at += bytes;
    if (at > instruction) break;
  }
  return line;
}

// Each entry begins with a byte that has the highest bit: its kind, and the instructions that it
// stands for. Of the rest, only the difference of lines matters here, which some kinds have first.
[[nodiscard]] inline std::int64_t line_by_locations(Bytes& table, std::int64_t first,
                                                    std::int64_t instruction) noexcept {
  constexpr unsigned kStart = 0x80;
  constexpr unsigned kSameLine = 10;
  constexpr unsigned kTwoLinesOn = 12;
  constexpr unsigned kOnlyLine = 13;
  constexpr unsigned kWhole = 14;
  constexpr std::int64_t kInstructionBytes = 2;
  std::int64_t line = first;
  std::int64_t at = 0;
  unsigned char byte = 0;
  bool is_there = table.next(&byte);
  while (is_there && (byte & kStart) != 0) {
    const unsigned kind = byte >> 3 & 15;
    at += kInstructionBytes * ((byte & 7) + 1);
    is_there = table.next(&byte);
    if (kind == kOnlyLine || kind == kWhole) {
      std::uint64_t number = 0;
      for (unsigned shift = 0; is_there; shift += 6) {
        if (shift < 60) number |= std::uint64_t{byte & 63U} << shift;
        if ((byte & 64) == 0) break;
        is_there = table.next(&byte);
      }
      const auto half = static_cast<std::int64_t>(number >> 1);
      line += (number & 1) != 0 ? -half : half;
    } else if (kind >= kSameLine && kind <= kTwoLinesOn) {
      line += kind - kSameLine;
    }
    if (at > instruction) break;
    while (is_there && (byte & kStart) == 0) is_there = table.next(&byte);
  }
  return line;
}

}  // namespace allod::python

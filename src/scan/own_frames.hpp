// What a search of the program's memory has on the stack of the thread that searches.
#pragma once

#include <algorithm>

#include "allod/base/base.hpp"

namespace allod {

// Those frames hold what was found, and are not the program's. Above them are the frames of whoever
// called, and the registers that these have saved.
class OwnFrames {
 public:
  // `end`: the frame address of a function that is called with all registers of the caller on the
  // stack. 0: the search has a stack of its own.
  explicit OwnFrames(Address end) noexcept : end_{end} {}

  [[nodiscard]] Address end() const noexcept { return end_; }
  [[nodiscard]] bool are_there() const noexcept { return end_ != 0; }

  // Calls `read(begin, end)` for what is not theirs of [from, to).
  template <class Read>
  void read_around(Address from, Address to, Read&& read) const noexcept {
    if (end_ < from || end_ >= to) return read(from, to);
    const Address begin = end_ - kBytes;
    if (begin > from) read(from, begin);
    read(end_, to);
  }

 private:
  // A search takes more than that, and what it finds is nowhere below.
  static constexpr std::size_t kBytes = std::size_t{6} << 10;

  Address end_;
};

}  // namespace allod

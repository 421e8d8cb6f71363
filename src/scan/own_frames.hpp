// Frames of a search on the stack of the searching thread.
#pragma once

#include <algorithm>

#include "allod/base/base.hpp"

namespace allod {

// These frames hold what the search finds, and no data of the program. Above them are the caller's
// frames, and the registers saved for it.
class OwnFrames {
 public:
  // `end`: the frame address of a function that was called after all registers of its caller were
  // saved on the stack. 0: the search runs on its own stack.
  explicit OwnFrames(Address end) noexcept : end_{end} {}

  [[nodiscard]] Address end() const noexcept { return end_; }
  [[nodiscard]] bool are_there() const noexcept { return end_ != 0; }

  // Calls `read(begin, end)` for the parts of [from, to) outside these frames.
  template <class Read>
  void read_around(Address from, Address to, Read&& read) const noexcept {
    if (end_ < from || end_ >= to) return read(from, to);
    const Address begin = end_ - kBytes;
    if (begin > from) read(from, begin);
    read(end_, to);
  }

 private:
  // The size of the frames that hold what the search finds. Deeper frames hold nothing of it.
  static constexpr std::size_t kBytes = std::size_t{6} << 10;

  Address end_;
};

}  // namespace allod

// Used spans that got memory because their owners would probably write it.
#pragma once

#include <utility>

#include "allod/base/base.hpp"

namespace allod::space {

// A span that its owner leaves unwritten holds that memory for as long as it lives. So no more than
// a budget waits for proof. Copies are cheap: proof needs the system, which is asked without a
// lock.
class Guesses {
 public:
  struct Guess {
    Address base = 0;
    Address probe = 0;  // a slice that has memory only if the owner wrote to it
    std::size_t bytes = 0;
  };

  // Whether `bytes` more may wait. One span alone always may.
  [[nodiscard]] bool have_room(std::size_t bytes, std::size_t budget) const noexcept {
    return count_ == 0 || (count_ < kMost && bytes_ + bytes <= budget);
  }
  // With room, or in place of the oldest one.
  void add(const Guess& guess) noexcept {
    if (count_ == kMost) remove(0);
    guesses_[count_++] = guess;
    bytes_ += guess.bytes;
  }
  template <class Predicate>
  void remove_if(Predicate&& is_over) noexcept {
    for (std::uint32_t i = count_; i-- > 0;) {
      if (is_over(guesses_[i])) remove(i);
    }
  }
  [[nodiscard]] bool has(const Guess& guess) const noexcept {
    for (std::uint32_t i = 0; i < count_; ++i) {
      if (guesses_[i].base == guess.base && guesses_[i].probe == guess.probe) return true;
    }
    return false;
  }

  // A span without a guess: its owner can be asked, too. Returns the one before.
  Address swap_newest(Address base) noexcept { return std::exchange(newest_, base); }

 private:
  static constexpr std::uint32_t kMost = 16;

  void remove(std::uint32_t index) noexcept {
    bytes_ -= guesses_[index].bytes;
    --count_;
    for (std::uint32_t i = index; i < count_; ++i) guesses_[i] = guesses_[i + 1];
  }

  Guess guesses_[kMost];
  std::uint32_t count_ = 0;
  std::size_t bytes_ = 0;
  Address newest_ = 0;
};

}  // namespace allod::space

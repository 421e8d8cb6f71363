// The stacks of threads that have ended, which libc keeps for threads to come.
#pragma once

#include "allod/base/base.hpp"

namespace allod {

// Nothing there is in use but what leads to the thread's table of its thread-local variables, which
// goes with the stack to the next thread. Known of glibc on x86-64 from 2.34 on; elsewhere there is
// none. One at a time, while the other threads stand still.
class EndedThreads {
 public:
  // Looks for them: nothing is read that cannot be, or taken for what it does not look like.
  EndedThreads() noexcept;

  struct Stack {
    Address begin;
    Address end;
    Address table;  // the place of the word that leads to it
  };
  // The first that is at least in part within [from, to); null: there is none.
  [[nodiscard]] const Stack* next(Address from, Address to) const noexcept;

 private:
  static constexpr std::size_t kMost = 1024;
  static Stack stacks_[kMost];

  std::size_t count_ = 0;
};

}  // namespace allod

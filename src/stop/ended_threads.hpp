// Stacks of ended threads, which libc caches for new threads.
#pragma once

#include "allod/base/base.hpp"

namespace allod {

// Such a stack holds nothing live except the pointer to its table of thread-local variables, which
// the next thread inherits. Implemented for glibc 2.34 and later on x86-64; empty elsewhere. Only
// one object at a time, while all other threads are stopped.
class EndedThreads {
 public:
  // Finds them. Reads only mapped memory, and accepts only what has the expected layout.
  EndedThreads() noexcept;

  struct Stack {
    Address begin;
    Address end;
    Address table;  // where the pointer to the table is
  };
  // The first that overlaps [from, to), or null.
  [[nodiscard]] const Stack* next(Address from, Address to) const noexcept;

 private:
  static constexpr std::size_t kMost = 1024;
  static Stack stacks_[kMost];

  std::size_t count_ = 0;
};

}  // namespace allod

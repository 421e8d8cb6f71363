// Frames of call stacks that are no return addresses: functions of an interpreter. Each has a
// number in place of an address, and its names are copied, since the interpreter may forget them.
#pragma once

#include <string_view>

#include "profile/book.hpp"

namespace allod::profile {

// The innermost frames of a stack.
struct Trace {
  static constexpr std::size_t kDepth = 64;
  std::uint32_t depth = 0;
  std::uintptr_t frames[kDepth];

  // False if it is full.
  bool add(std::uintptr_t frame) noexcept {
    if (depth == kDepth) return false;
    frames[depth++] = frame;
    return true;
  }
};

// The stack, with Python functions in place of the interpreter's loops that run them. Not within
// the lock. Never fails: without names, the stack is as it was.
void add_functions(const Stack& stack, Trace* trace) noexcept;
// After a stack was met for the first time: it may show that there is an interpreter.
void look_for_functions(const Stack& stack) noexcept;

struct Function {
  const char* name;  // zero-terminated, valid for ever
  const char* file;
  unsigned line;
};
// False if a frame is no such number. Thread-safe, without a lock.
[[nodiscard]] bool find_function(std::uintptr_t frame, Function* function) noexcept;

// Writes a line for each, for readers of the profile.
void write_functions(Text& out) noexcept;

}  // namespace allod::profile

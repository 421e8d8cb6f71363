// Call stacks, by unwind tables, without allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "allod/base/units.hpp"
#include "text/text.hpp"

namespace allod {

struct Stack {
  static constexpr std::size_t kDepth = 24;
  std::uint32_t depth = 0;
  // The first is the instruction that was interrupted; all others are where a call returns to.
  bool begins_at_fault = false;
  std::uintptr_t frames[kDepth];
};

// What is known of a block's life.
struct History {
  bool in_use;
  std::uint32_t allocating_thread;
  std::uint32_t freeing_thread;
  const Stack* allocated_at;  // null, like the next one: there was no memory for it
  const Stack* freed_at;
};

// The stack from here on, so many frames of it at most. Must be called without any lock of ours:
// the loader's lock may be taken.
void capture_stack(Stack& stack, std::uint32_t most = Stack::kDepth) noexcept;

// For a signal handler: the stack from what the signal has interrupted on. Empty where that cannot
// be told.
void capture_interrupted_stack(Stack& stack) noexcept;

// Leaves out what lies in this library. Where that is part of the program, it stays.
void leave_out_own(Stack& stack) noexcept;

// Where code lay that is not loaded any more, by the number of a stack; false: it is still there.
struct LoadedPlace;
using FindClosed = bool (*)(Address frame, std::uint64_t stack, LoadedPlace* place) noexcept;

// From the entry point of this library on, one line a frame: address, nearest exported function,
// module and offset in it. `find_closed` may be null.
void write_stack(Text& out, const Stack& stack, FindClosed find_closed = nullptr,
                 std::uint64_t number = 0) noexcept;
// All of it, as an array of addresses.
void write_stack_as_json(Text& out, const Stack& stack) noexcept;
// The files that code of these stacks is from, each of them once: an array of objects with `path`,
// `base`, which addresses in the file are relative to, and `end` and `build_id` where they are
// known. Three stacks at most; any of them may be null.
void write_files_as_json(Text& out, std::initializer_list<const Stack*> stacks) noexcept;
// What a thread did, and its stack.
void write_event(Text& out, std::string_view what, std::uint32_t thread,
                 const Stack& stack) noexcept;
// Who allocated a block and, if it is not in use, who freed it.
void write_history(Text& out, const History& history) noexcept;
// The same as members of an object, each with a comma before it.
void write_history_as_json(Text& out, const History& history) noexcept;

}  // namespace allod

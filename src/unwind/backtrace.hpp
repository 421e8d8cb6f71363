// Call stacks by unwind tables, without allocation.
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
  // The first frame is the interrupted instruction; all others are return addresses.
  bool begins_at_fault = false;
  std::uintptr_t frames[kDepth];
};

// Who allocated and freed a block.
struct History {
  bool in_use;
  std::uint32_t allocating_thread;
  std::uint32_t freeing_thread;
  const Stack* allocated_at;  // null, like the next, if no memory was left for it
  const Stack* freed_at;
};

// Captures the caller's stack, up to `most` frames. The caller must hold no lock of ours, since
// this may take the loader's lock.
void capture_stack(Stack& stack, std::uint32_t most = Stack::kDepth) noexcept;

// For a signal handler: captures the interrupted stack. Empty if it cannot be found.
void capture_interrupted_stack(Stack& stack) noexcept;

// Removes the frames of this library. Does nothing if Allod is linked into the program.
void leave_out_own(Stack& stack) noexcept;

// Finds an address in objects that were unloaded after the stack with this number, or a frame that
// is no address but a function of an interpreter. Returns false if its code is still loaded.
struct LoadedPlace;
using FindClosed = bool (*)(Address frame, std::uint64_t stack, LoadedPlace* place) noexcept;

// One line per frame, from our entry point on: address, nearest exported function, module and
// offset. `find_closed` may be null.
void write_stack(Text& out, const Stack& stack, FindClosed find_closed = nullptr,
                 std::uint64_t number = 0) noexcept;
// Writes all frames, as a JSON array of addresses.
void write_stack_as_json(Text& out, const Stack& stack) noexcept;
// The files of these stacks, each once, as a JSON array of objects: `path`; `base`, the load bias;
// and, if known, `end` and `build_id`. At most three stacks, each of which may be null.
void write_files_as_json(Text& out, std::initializer_list<const Stack*> stacks) noexcept;
// Writes an action of a thread, and its stack.
void write_event(Text& out, std::string_view what, std::uint32_t thread,
                 const Stack& stack) noexcept;
// Writes who allocated a block and, unless it is in use, who freed it.
void write_history(Text& out, const History& history) noexcept;
// The same as JSON members, each after a comma.
void write_history_as_json(Text& out, const History& history) noexcept;

}  // namespace allod

// A look at all memory of the heap when the process ends.
#pragma once

#include "allod/base/base.hpp"

namespace allod::hardened {

// Reports what has been changed in memory that the program does not have: free blocks, blocks and
// slabs that nobody has had yet, and what lies behind blocks in use. Memory is copied by the kernel
// before it is looked at, so other threads may go on, and what they change meanwhile is looked at
// again. Without that, as where a filter forbids it, nothing is looked at; neither in the child of
// a process whose other threads used the heap. Not for a thread that has interrupted the heap.
ALLOD_HOT void look_at_all() noexcept;
// The process for which it looks. To be called at its start, and by our handler in the child of a
// fork: in the child of a fork without handlers, nothing is looked at.
void note_process() noexcept;

}  // namespace allod::hardened

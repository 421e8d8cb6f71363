// Blocks that have left the quarantine, and that the program may still point to.
//
// After MarkUs (S. Ainsworth and T. Jones) and MineSweeper (M. Erdős and others): a freed block
// goes back to the heap when a sweep of the program's memory finds no pointer to it, or into it.
// Freed blocks are zeroed, so nothing is found in them, and there is no graph to follow.
#pragma once

#include "process.hpp"

namespace allod::sweep {

// Before the first block is held. False when there is no memory for a list of them.
[[nodiscard]] bool start() noexcept;

// Keeps a free block of so many bytes from its heap. Every now and then it sweeps, and hands the
// blocks that nothing points to to `let_go`. False when no more can be held. Thread-safe.
[[nodiscard]] bool hold(void* block, std::size_t bytes, void (*let_go)(void*)) noexcept;

// Sweeps, if a block is held since the last time, and hands over as hold() does. Takes its time.
// False when there was nothing to hand over. Thread-safe; not for signal handlers that have
// interrupted the heap.
[[nodiscard]] bool make_room(void (*let_go)(void*)) noexcept;

}  // namespace allod::sweep

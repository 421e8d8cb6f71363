// The hardened library's layer between the entry points and the heap. It gives each block a
// canary, knows exactly which blocks are in use, and keeps freed ones in quarantine.
//
// What it knows of a block lies in the block's state, see slab/block_state.hpp; how long a block
// waits, in quarantine.hpp. Everything here is thread-safe.
//
// This file only declares, and so stands below all others. Above it are, from the bottom to the
// top: the short way of most blocks (short.hpp), what is known of a block (blocks.hpp), the guards
// and pages of large ones (large.hpp), the reports (reports.hpp), and the time between free and
// heap (waiting.hpp, over sweep.hpp). The way out and back of every block (general.cpp), the
// questions (inspect.cpp) and realloc (resize.cpp) stand on top.
#pragma once

#include "instance/process.hpp"

namespace allod::hardened {

using slab::Origin;

// What is compiled in and was not switched off.
[[nodiscard]] Mitigations active() noexcept;

// How much to ask of the heap for a block of `size` bytes; first-class heaps have no guards.
enum class Guarded : bool { never, if_large };
[[nodiscard]] ALLOD_HOT std::size_t room_for(std::size_t size, std::size_t alignment = 1,
                                             Guarded guarded = Guarded::if_large) noexcept;
// The heap's block, or null, becomes one of `size` bytes in the program's hands.
void* seal(void* block, std::size_t size, Origin origin) noexcept;

// Both in one; null when there is no memory.
[[nodiscard]] ALLOD_HOT void* allocate(std::size_t size, Origin origin) noexcept;
[[nodiscard]] void* allocate_aligned(std::size_t size, std::size_t alignment,
                                     Origin origin) noexcept;
[[nodiscard]] ALLOD_HOT void* allocate_zeroed(std::size_t bytes) noexcept;

// Checks the block, and what the caller claims, and takes it out of the program's hands. False
// when it must not go to the heap: that was reported, or it will go there later.
[[nodiscard]] bool take_back(void* address, std::size_t claimed_bytes, Origin claimed) noexcept;
// The same, and gives it to the heap.
ALLOD_HOT void release(void* address, std::size_t claimed_bytes, Origin claimed) noexcept;

// Does a block in use begin there?
[[nodiscard]] bool is_in_use(const void* address) noexcept;
// Bytes that were asked for; 0 for what is no block in use. It may be going while it is asked
// about.
[[nodiscard]] std::size_t size_of(const void* address) noexcept;
// Bytes that can be read, up to the pages behind that are closed; 0 for what is no block in use.
[[nodiscard]] std::size_t readable_bytes(const void* address) noexcept;
// What was asked for, for the program, which has the block: it is checked.
[[nodiscard]] std::size_t usable_size(const void* address) noexcept;
// The block around any address, in use or freed, and the bytes that were asked for.
[[nodiscard]] heap::Bounds bounds_of(const void* address) noexcept;
// Checks what is to be resized and tells its size. False when it is no block in use, or one that
// realloc has nothing to do with: that was reported.
[[nodiscard]] ALLOD_HOT bool inspect(const void* address, std::size_t* bytes) noexcept;
// Both in one for a block of up to 1 KiB from malloc. It may have to be copied to one of `size`
// bytes, and be freed; nothing has changed then, nor when it has to be asked about by the two.
enum class Resized : std::uint8_t { in_place, to_copy, to_ask };
[[nodiscard]] ALLOD_HOT Resized resize_short(void* block, std::size_t size,
                                             std::size_t* before) noexcept;
// The block, somewhere else perhaps, with another size; null, and nothing changed, when it
// has to be copied. It has been inspected.
[[nodiscard]] void* resize(void* block, std::size_t size) noexcept;

// What is known of the block that is named there.
void add_state(heap::Misuse* misuse) noexcept;
// Of a block of no bytes in use, for a report. False when it is none such.
[[nodiscard]] bool describe_empty(heap::MisuseKind kind, const void* address,
                                  heap::Misuse* misuse) noexcept;
// May one between the two, which lie in the same page, be in use? Not if they lie in a slab all of
// whose blocks there are free, and so hold nothing.
[[nodiscard]] bool may_be_in_use(Address from, Address to) noexcept;
// Would an access be a fault because of a guard?
[[nodiscard]] bool is_closed(const void* address) noexcept;
// Opens the start of a block that leaves quarantine, for a word of whoever gives it back. False
// when the system refuses.
[[nodiscard]] bool lend(void* block) noexcept;
// Of an access that has failed: what was wrong with it. False when no guard was there.
[[nodiscard]] bool explain_fault(const void* address, heap::Misuse* misuse) noexcept;
// The same of one that the processor has refused because of the pointer's tag.
[[nodiscard]] bool explain_wrong_tag(const void* address, heap::Misuse* misuse) noexcept;

// --- the process ----------------------------------------------------------------------

ALLOD_HOT void start() noexcept;
// Can an access of the program fault because of a measure? Known after start().
[[nodiscard]] ALLOD_HOT bool has_faults() noexcept;
// What the main thread has in quarantine has been written to, or not.
ALLOD_HOT void check_at_exit() noexcept;

}  // namespace allod::hardened

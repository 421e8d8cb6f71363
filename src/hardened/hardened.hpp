// The hardened library's layer between the entry points and the heap. It gives each block a canary,
// keeps the state of every block, and holds freed blocks in quarantine.
//
// slab/block_state.hpp defines states; heaps/quarantine.hpp defines how long a block waits. All
// functions are thread-safe.
//
// This file only declares, and stands below the others of its room. From the bottom to the top:
// short_class.hpp (sets of measures, and which blocks have a short path), short.hpp (that path),
// blocks.hpp (what is known of a block), neighbours.hpp (what lies around it), large.hpp (guards
// and pages of large blocks), reports.hpp, last_look.hpp (at the end), waiting.hpp (from free to
// heap, over sweep.hpp). On top are general.cpp (allocates and frees every block), inspect.cpp and
// resize.cpp.
#pragma once

#include "instance/process.hpp"

namespace allod::hardened {

using slab::Origin;

// Measures that are compiled in and enabled.
[[nodiscard]] Mitigations active() noexcept;

// Bytes to request from the heap for a block of `size` bytes. Blocks of first-class heaps have no
// guards.
enum class Guarded : bool { never, if_large };
[[nodiscard]] ALLOD_HOT std::size_t room_for(std::size_t size, std::size_t alignment = 1,
                                             Guarded guarded = Guarded::if_large) noexcept;
// Makes the heap's block, or null, one of `size` bytes for the program.
void* seal(void* block, std::size_t size, Origin origin) noexcept;

// Allocate and seal. Null if memory is exhausted. See allocate() in short.hpp, too.
[[nodiscard]] void* allocate_aligned(std::size_t size, std::size_t alignment,
                                     Origin origin) noexcept;
[[nodiscard]] ALLOD_HOT void* allocate_zeroed(std::size_t bytes) noexcept;

// Checks the block and the caller's claims, and ends its use. False if it must not go to the heap
// now: it was reported, or it waits in quarantine.
[[nodiscard]] bool take_back(void* address, std::size_t claimed_bytes, Origin claimed) noexcept;
// The same, and frees it to the heap.
ALLOD_HOT void release(void* address, std::size_t claimed_bytes, Origin claimed) noexcept;

// Whether a block in use begins there.
[[nodiscard]] bool is_in_use(const void* address) noexcept;
// Requested bytes; 0 unless it is a block in use. Another thread may free it meanwhile.
[[nodiscard]] std::size_t size_of(const void* address) noexcept;
// Readable bytes, up to the closed pages behind; 0 unless it is a block in use.
[[nodiscard]] std::size_t readable_bytes(const void* address) noexcept;
// Requested bytes, for the program that owns the block. Checks the block.
[[nodiscard]] std::size_t usable_size(const void* address) noexcept;
// The block around any address, in use or freed, and its requested bytes.
[[nodiscard]] heap::Bounds bounds_of(const void* address) noexcept;
// Checks a block before realloc, and returns its size. False, after a report, if it is not in use
// or realloc does not match its origin.
[[nodiscard]] ALLOD_HOT bool inspect(const void* address, std::size_t* bytes) noexcept;
// Inspects and resizes a block of up to 1 KiB from malloc. `to_copy`: it must move to a block of
// `size` bytes; `to_ask`: use inspect() and resize(). In both cases nothing has changed.
enum class Resized : std::uint8_t { in_place, to_copy, to_ask };
[[nodiscard]] ALLOD_HOT Resized resize_short(void* block, std::size_t size,
                                             std::size_t* before) noexcept;
// Resizes an inspected block, which may move. Null, and nothing changed, if it must be copied.
[[nodiscard]] void* resize(void* block, std::size_t size) noexcept;

// Adds the state of the block that `misuse` names.
void add_state(heap::Misuse* misuse) noexcept;
// Describes a block of size 0 in use. False if it is none.
[[nodiscard]] bool describe_empty(heap::MisuseKind kind, const void* address,
                                  heap::Misuse* misuse) noexcept;
// Whether a block between two addresses of one page may be in use. False only for slabs whose
// blocks there are all free, and so zero.
[[nodiscard]] bool may_be_in_use(Address from, Address to) noexcept;
// Whether an access would hit a guard.
[[nodiscard]] bool is_closed(const void* address) noexcept;
// Opens the start of a block that leaves quarantine, so that its releaser can store a word there.
// False if the kernel refuses.
[[nodiscard]] bool lend(void* block) noexcept;
// Explains a fault. False if it was not at a guard.
[[nodiscard]] bool explain_fault(const void* address, heap::Misuse* misuse) noexcept;
// The same for a tag mismatch.
[[nodiscard]] bool explain_wrong_tag(const void* address, heap::Misuse* misuse) noexcept;

// --- the process ----------------------------------------------------------------------

ALLOD_HOT void start() noexcept;
// Whether a measure can make an access of the program fault. Valid after start().
[[nodiscard]] ALLOD_HOT bool has_faults() noexcept;
// Reports writes to blocks in the main thread's quarantine, and in those of ended threads, and what
// else has been changed in memory that the program does not have.
ALLOD_HOT void check_at_exit() noexcept;

}  // namespace allod::hardened

// First-class heaps, as the rest of the library needs them.
#pragma once

#include "instance/process.hpp"

namespace allod::heaps {

using HeapDomain = Process::Heap::HeapDomain;
inline constexpr std::size_t kNameBytes = HeapDomain::kNameBytes;

// A block of `size` bytes in the heap that owns `block`, a block in use. `*owned` is set to
// whether there is such a heap. Null and ENOMEM when it refuses.
[[nodiscard]] void* allocate_beside(const void* block, std::size_t size, bool* owned) noexcept;

// The name of the heap with this id; false when there is none now.
[[nodiscard]] bool copy_name(std::uint32_t id, char (&name)[kNameBytes]) noexcept;

// Ends the process with a report, in the debug library.
[[noreturn]] void report_gone(const HeapDomain& heap) noexcept;
// Tells of the blocks in use; returns how many there are.
std::size_t report_leaks(HeapDomain& heap) noexcept;
// The same for every heap that wants it, at the end of the process.
ALLOD_HOT void report_leaks_at_exit() noexcept;

// What is told about one heap.
struct Row {
  char name[kNameBytes];
  std::uint32_t id;
  heap::HeapFigures figures;
};
// The next heap in use after `*cursor`, or the first for null; unseen ones are left out. False
// when there is none.
[[nodiscard]] bool next_row(HeapDomain** cursor, Row* row) noexcept;

// The first-class heap that a used span belongs to, or null.
[[nodiscard]] const HeapDomain* heap_of(const space::Span& span) noexcept;
// Bytes that unseen heaps hold.
[[nodiscard]] std::size_t unseen_bytes() noexcept;

}  // namespace allod::heaps

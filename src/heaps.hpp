// First-class heaps, as the rest of the library needs them.
#pragma once

#include "process.hpp"

namespace allod::heaps {

using HeapDomain = Process::Heap::HeapDomain;
inline constexpr std::size_t kNameBytes = HeapDomain::kNameBytes;

// A block of `size` bytes in the heap that owns `block`, a block in use. `*owned` is set to
// whether there is such a heap. Null and ENOMEM when it refuses.
[[nodiscard]] void* allocate_beside(const void* block, std::size_t size, bool* owned) noexcept;

// The name of the heap with this id; false when there is none now.
[[nodiscard]] bool copy_name(std::uint32_t id, char (&name)[kNameBytes]) noexcept;

// What is told about one heap.
struct Row {
  char name[kNameBytes];
  std::uint32_t id;
  heap::HeapFigures figures;
};
// The next heap in use after `*cursor`, or the first for null. False when there is none.
[[nodiscard]] bool next_row(HeapDomain** cursor, Row* row) noexcept;

}  // namespace allod::heaps

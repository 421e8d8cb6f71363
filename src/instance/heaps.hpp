// The first-class heaps that there are.
#pragma once

#include "instance/process.hpp"

namespace allod::heaps {

// One of them.
using Domain = Process::Heap::HeapDomain;
inline constexpr std::size_t kNameBytes = Domain::kNameBytes;

// The name of the heap with this id; false when there is none now.
[[nodiscard]] bool copy_name(std::uint32_t id, char (&name)[kNameBytes]) noexcept;

// What is told about one heap.
struct Row {
  char name[kNameBytes];
  std::uint32_t id;
  HeapFigures figures;
};
// The next heap in use after `*cursor`, or the first for null; unseen ones are left out. False
// when there is none.
[[nodiscard]] bool next_row(Domain** cursor, Row* row) noexcept;

// The first-class heap that a used span belongs to, or null.
[[nodiscard]] const Domain* heap_of(const space::Span& span) noexcept;
// Bytes that unseen heaps hold.
[[nodiscard]] std::size_t unseen_bytes() noexcept;

}  // namespace allod::heaps

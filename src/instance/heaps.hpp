// The first-class heaps of the process.
#pragma once

#include "instance/process.hpp"

namespace allod::heaps {

// One of them.
using Domain = Process::Heap::HeapDomain;
inline constexpr std::size_t kNameBytes = Domain::kNameBytes;

// Copies the name of the heap with this id. False if there is none.
[[nodiscard]] bool copy_name(std::uint32_t id, char (&name)[kNameBytes]) noexcept;

struct Row {
  char name[kNameBytes];
  std::uint32_t id;
  HeapFigures figures;
};
// Advances to the next heap in use, or the first if *cursor is null; skips unseen heaps. False at
// the end.
[[nodiscard]] bool next_row(Domain** cursor, Row* row) noexcept;

// The first-class heap that owns a used span, or null.
[[nodiscard]] const Domain* heap_of(const space::Span& span) noexcept;
[[nodiscard]] std::size_t unseen_bytes() noexcept;

}  // namespace allod::heaps

#include "instance/heaps.hpp"

#include <string.h>

namespace allod::heaps {

bool copy_name(std::uint32_t id, char (&name)[kNameBytes]) noexcept {
  Domain* cursor = nullptr;
  for (Row row; next_row(&cursor, &row);) {
    if (row.id != id) continue;
    memcpy(name, row.name, sizeof name);
    return true;
  }
  return false;
}

namespace {

[[nodiscard]] bool next_in_use(Domain** cursor, Row* row, bool* unseen) noexcept {
  for (;;) {
    {
      LockGuard guard{Process::heap().registry_lock()};
      *cursor = Process::heap().next_heap(*cursor);
      if (*cursor == nullptr) return false;
    }
    Domain& heap = **cursor;
    Process::Heap::HeapTurn turn{heap, Process::heap().gate()};
    if (!heap.active || heap.id() == Profile::owner()) continue;
    memcpy(row->name, heap.name, sizeof row->name);
    row->id = heap.id();
    row->figures = heap.figures;
    *unseen = heap.unseen;
    return true;
  }
}

}  // namespace

bool next_row(Domain** cursor, Row* row) noexcept {
  bool unseen = false;
  while (next_in_use(cursor, row, &unseen)) {
    if (!unseen) return true;
  }
  return false;
}

std::size_t unseen_bytes() noexcept {
  std::size_t bytes = 0;
  bool unseen = false;
  Domain* cursor = nullptr;
  for (Row row; next_in_use(&cursor, &row, &unseen);) bytes += unseen ? row.figures.held : 0;
  return bytes;
}

const Domain* heap_of(const space::Span& span) noexcept {
  const space::Tag tag = Process::heap().space().map().tag_of(span.base);
  if (!space::is_heaps(tag)) return nullptr;
  if (span.home == nullptr) return static_cast<const Domain*>(span.heap);
  return static_cast<const Domain*>(static_cast<const slab::Slab&>(span).owner());
}

}  // namespace allod::heaps

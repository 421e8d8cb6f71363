#include "statistics/nodes.hpp"

#include "instance/heaps.hpp"

namespace allod {

namespace {

void count_used(const space::Span& span, allod_node_t& row) noexcept {
  const heaps::Domain* const heap = heaps::heap_of(span);
  if (heap != nullptr && heap->unseen) return;
  const std::size_t bytes = span.size.bytes();
  if (!Process::heap().is_kept(span)) {
    row.used += bytes;
    return;
  }
  const std::size_t present = Process::heap().present_in_kept(span);
  row.dirty += present;
  row.clean += bytes - present;
}

void count_span(const space::Span& span, allod_node_t& row) noexcept {
  switch (span.state) {
    case space::SpanState::used:
      return count_used(span, row);
    // Still in memory.
    case space::SpanState::purging:
    case space::SpanState::dirty:
      row.dirty += span.size.bytes();
      return;
    case space::SpanState::clean:
      row.clean += span.size.bytes();
      return;
    case space::SpanState::metadata:
      return;
  }
}

}  // namespace

std::uint32_t count_nodes(allod_node_t (&rows)[kMostNodes]) noexcept {
  Process::ensure_started();
  Process::Heap& heap = Process::heap();
  const std::uint32_t count = heap.space().nodes();
  for (std::uint32_t i = 0; i < count; ++i) rows[i] = {i, 0, 0, 0};
  // The registry's lock keeps owners from changing.
  LockGuard guard{heap.registry_lock()};
  heap.space().for_each_span([&](const space::Span& span) {
    if (span.region->source == nullptr) count_span(span, rows[span.region->node]);
  });
  return count;
}

}  // namespace allod

size_t allod_nodes_get(allod_node_t* nodes, size_t room, size_t size) noexcept {
  if (size != sizeof *nodes) return 0;
  allod_node_t rows[allod::kMostNodes];
  const std::size_t count = allod::count_nodes(rows);
  for (std::size_t i = 0; i < count && i < room; ++i) nodes[i] = rows[i];
  return count;
}

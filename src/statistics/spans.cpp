// allod_spans_get: what each span holds.
#include "allod.h"
#include "instance/heaps.hpp"

namespace allod {

namespace {

std::uint32_t kind_of(const space::Span& span) noexcept {
  switch (span.state) {
    case space::SpanState::used:
      if (Process::heap().is_kept(span)) return ALLOD_SPAN_DIRTY;
      return span.home == nullptr ? ALLOD_SPAN_HUGE : ALLOD_SPAN_SLAB;
    // Still in memory.
    case space::SpanState::purging:
    case space::SpanState::dirty:
      return ALLOD_SPAN_DIRTY;
    case space::SpanState::clean:
      return ALLOD_SPAN_CLEAN;
    case space::SpanState::metadata:
      break;
  }
  return ALLOD_SPAN_OWN;
}

void describe_used(const space::Span& span, allod_span_t& to) noexcept {
  if (const heaps::Domain* const heap = heaps::heap_of(span)) {
    if (heap->unseen) {
      to.kind = ALLOD_SPAN_OWN;
      return;
    }
    to.owner = heap->id();
  }
  if (span.home == nullptr) return;
  const auto& slab = static_cast<const slab::Slab&>(span);
  const space::Tag tag = Process::heap().space().map().tag_of(span.base);
  if (space::is_slab(tag) && space::owner_of(tag) != space::kOrphanOwner)
    to.owner = space::owner_of(tag);
  to.block_bytes = slab.block_bytes();
  to.blocks = slab.capacity();
  const std::uint32_t free = slab.free_count() + slab.remote_count();
  to.free = free < to.blocks ? free : to.blocks;
}

}  // namespace

}  // namespace allod

size_t allod_spans_get(allod_span_t* spans, size_t room, size_t size) noexcept {
  using allod::Process;
  if (size != sizeof *spans) return 0;
  Process::ensure_started();
  size_t count = 0;
  // The registry's lock keeps owners from changing.
  allod::LockGuard guard{Process::heap().registry_lock()};
  Process::heap().space().for_each_span([&](const allod::space::Span& span) {
    if (count++ >= room) return;
    allod_span_t& to = spans[count - 1];
    to = {};
    to.address = span.base;
    to.bytes = span.size.bytes();
    to.kind = allod::kind_of(span);
    if (span.state == allod::space::SpanState::used) allod::describe_used(span, to);
  });
  return count;
}

// Invariants of the space whenever its lock is free.
#pragma once

#include "allod/space/space.hpp"

namespace allod::space {

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::check_free(const Span& span, SpanState state, FreeBytes* sum) noexcept {
  always_check(span.state == state, "a free span is in the wrong bin");
  always_check(!is_partly_closed(span), "a part of a free span cannot be touched");
  always_check(map_.span_of(span.base) == &span, "the map misses a free span's start");
  always_check(map_.span_of(end_of(span) - 1) == &span, "the map misses a free span's end");
  for (Address at = span.base; at < end_of(span); at += kSliceBytes) {
    always_check(map_.tag_of(at) == kFreeTag, "a slice of a free span is not marked free");
  }
  const PageSource* const source = span.region->source;
  (state != SpanState::dirty                   ? sum->clean
   : FreeSpans::ages(span)                     ? sum->dirty
   : source != nullptr && source->ages_alone() ? sum->delayed
                                               : sum->kept) += span.size.bytes();
}

// Checks all spans in bins.
template <os::Platform P, CheckLevel kChecks>
auto Space<P, kChecks>::check_free_spans() noexcept -> FreeBytes {
  FreeBytes sum;
  for (std::uint32_t i = 0; i < nodes(); ++i) {
    const auto node = static_cast<Node>(i);
    if (!free_.has(node)) continue;
    const auto check_at = [&](const Span& span, SpanState state) {
      check_free(span, state, &sum);
      always_check(span.region->node == node, "a free span is in the bins of another node");
    };
    free_.dirty(node).for_each([&](const Span& span) { check_at(span, SpanState::dirty); });
    for (const Filling filling : {Filling::sparse, Filling::dense}) {
      free_.clean(node, filling).for_each([&](const Span& span) {
        check_at(span, SpanState::clean);
        always_check(span.region->filling == filling, "a clean span is in the wrong bins");
      });
    }
  }
  for (PageSource* source = sources_.first(); source != nullptr;
       source = PageSourceList::next(source)) {
    const auto check_own = [&](const Span& span, SpanState state) {
      check_free(span, state, &sum);
      always_check(span.region->source == source, "a span is free in another heap's source");
    };
    source->dirty.for_each([&](const Span& span) { check_own(span, SpanState::dirty); });
    source->clean.for_each([&](const Span& span) { check_own(span, SpanState::clean); });
  }
  return sum;
}

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::check_invariants() noexcept {
  if (!free_.is_started()) return;
  LockGuard guard{lock_};
  const auto [dirty, clean, kept, delayed] = check_free_spans();
  always_check(kept == free_.kept_bytes(), "dirty bytes that stay are counted wrongly");
  always_check(dirty == dirty_bytes(), "dirty bytes are counted wrongly");
  always_check(delayed == delayed_bytes(), "dirty bytes of heaps with a delay are counted wrongly");
  always_check(clean == free_.clean_bytes(), "clean bytes are counted wrongly");

  std::size_t aged = 0;
  free_.for_each_by_age([&](const Span& span) { aged += span.size.bytes(); });
  always_check(aged == dirty + delayed, "a dirty span is missing from the list by age");

  std::size_t reserved = 0;
  std::size_t handed_out = 0;
  for_each_region([&](const Region& region) {
    always_check(region.used <= region.committed && region.committed <= region.size,
                 "a region's marks are out of order");
    reserved += region.size.bytes();
    handed_out += region.used.bytes();
  });
  std::size_t purging = 0;
  for (Span* span = purging_.first(); span != nullptr; span = SpanList::next(span)) {
    purging += span->size.bytes();
  }
  always_check(reserved == counters_.reserved, "reserved bytes are counted wrongly");
  always_check(handed_out == counters_.used + dirty + delayed + kept + clean + purging,
               "a slice is neither used nor free");
}

}  // namespace allod::space

// Frees, cuts and lengthens spans.
#pragma once

#include "allod/space/space.hpp"

namespace allod::space {

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::free(Span* span, std::uint32_t age_ms, Contents contents) noexcept {
  if (!unguard(*span)) return abandon(*span);
  const auto now = now_ms() - age_ms;
  const bool clean =
      is_purged_at_once(*span, {0}) || (contents == Contents::users && is_erased(*span, {0}));
  // While its state is used, neighbours do not merge with it, whatever its tags say.
  map_.set_tags(span->base, span->size, kFreeTag);
  LockGuard guard{lock_};
  ++counters_.span_frees;
  account(span->size, {}, span->expected);
  free_.note_freed(span->size);
  if (age_ms != 0) free_.note_older(now);
  insert_free(go_home(span), clean ? SpanState::clean : SpanState::dirty, now);
}

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::grow(Span* span, Slices to) noexcept {
  LockGuard guard{lock_};
  const Slices before = span->size;
  const Slices more = to - before;
  Span* const right = free_neighbour(end_of(*span), *span->region);
  if (right != nullptr && right->size >= more) {
    free_.remove(right);
    give_back_tail(right, more);
    absorb(span, right);
  } else if (!is_at_front(*span) || !advance(*span->region, more)) {
    return false;
  } else {
    span->size = to;
    file_region(*span->region);
  }
  // Without metadata for the neighbour's rest, the span takes all of it.
  const Slices added = span->size - before;
  map_.set_spans(end_of(*span) - added.bytes(), added, span);
  account(before, span->size, span->expected);
  return true;
}

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::shrink(Span* span, Slices to, Tail rest) noexcept {
  const auto now = now_ms();
  const bool clean = (rest == Tail::absent && purge_behind(*span, to)) ||
                     is_purged_at_once(*span, to) || is_erased(*span, to);
  LockGuard guard{lock_};
  Span* const tail = split(span, to);
  if (tail == nullptr) return;
  account(span->size + tail->size, span->size, span->expected);
  map_.set_tags(tail->base, tail->size, kFreeTag);
  insert_free(tail, clean ? SpanState::clean : SpanState::dirty, now);
}

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::is_purged_at_once(const Span& span, Slices keep) noexcept {
  const PageSource* const source = span.region->source;
  if (__builtin_expect(source == nullptr, 1)) return false;
  return source->purges_at_once() && purge_behind(span, keep);
}

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::purge_behind(const Span& span, Slices keep) noexcept {
  return keep < span.size && platform_.purge(reinterpret_cast<void*>(span.base + keep.bytes()),
                                             (span.size - keep).bytes());
}

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::is_erased(const Span& span, Slices keep) noexcept {
  if constexpr (os::Erasing<P>) {
    return span.region->source == nullptr && keep < span.size &&
           platform_.erase(reinterpret_cast<void*>(span.base + keep.bytes()),
                           (span.size - keep).bytes());
  }
  return false;
}

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::go_home(Span* span) noexcept {
  Span* const home = span->home;
  if (home == nullptr) return span;
  const std::size_t bytes = span->descriptor_bytes;
  *home = *span;
  home->home = nullptr;
  home->descriptor_bytes = 0;
  metadata_.free_stable(span, bytes);
  return home;
}

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::insert_free(Span* span, SpanState state, std::uint32_t freed_ms) noexcept {
  span->state = state;
  span->freed_ms = freed_ms;
  span->wants_huge = false;
  span->absent_from = 0;
  span->links = {};
  span->age_links = {};
  Span* const left = free_neighbour(span->base - 1, *span->region);
  if (left != nullptr && left->state == state) {
    free_.remove(left);
    if (left->size < span->size) left->freed_ms = freed_ms;
    absorb(left, span);
    span = left;
  }
  Span* const right = free_neighbour(end_of(*span), *span->region);
  if (right != nullptr && right->state == state) {
    free_.remove(right);
    if (right->size > span->size) span->freed_ms = right->freed_ms;
    absorb(span, right);
  }
  file_free(span);
  return span;
}

}  // namespace allod::space

// Allocation of spans: from free spans, the untouched front of a region, or a new region.
#pragma once

#include <algorithm>

#include "allod/space/space.hpp"

namespace allod::space {

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::allocate(Slices size, Slices alignment, PageSource* source) noexcept {
  const auto attempt = [&]() noexcept {
    return allocate_with(size, alignment, Filling::sparse, source, nullptr, 0);
  };
  Span* const span = attempt();
  return span != nullptr || source != nullptr || !make_room() ? span : attempt();
}

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::allocate_growing(Slices size) noexcept {
  return hand_out([&]() noexcept {
    Span* span = free_.dirty(here()).largest();
    if (span == nullptr || span->size.count / 2 < size.count) {
      return take(size, {1}, Filling::sparse);
    }
    free_.remove(span);
    span->zero = false;
    give_back_tail(span, size);
    return span;
  });
}

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::allocate_described(Slices size, Filling filling, std::size_t bytes,
                                            PageSource* source) noexcept {
  auto* const descriptor = static_cast<Span*>(allocate_stable(bytes));
  if (descriptor == nullptr) return nullptr;
  const auto attempt = [&]() noexcept {
    return allocate_with(size, {1}, filling, source, descriptor, bytes);
  };
  Span* span = attempt();
  if (span == nullptr && source == nullptr && make_room()) span = attempt();
  if (span == nullptr) metadata_.free_stable(descriptor, bytes);
  return span;
}

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::allocate_with(Slices size, Slices alignment, Filling filling,
                                       PageSource* source, Span* descriptor,
                                       std::size_t bytes) noexcept {
  return hand_out([&]() noexcept {
    Span* const span = take_for(size, alignment, filling, source, descriptor != nullptr);
    return span == nullptr || descriptor == nullptr ? span : describe(span, descriptor, bytes);
  });
}

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take_for(Slices size, Slices alignment, Filling filling,
                                  PageSource* source, bool described) noexcept {
  if (size > kLargestHuge || counters_.used < huge_from_) filling = Filling::sparse;
  Span* const span = source != nullptr ? take_from(*source, size, alignment)
                     : described       ? take_anywhere(size, filling)
                                       : take(size, alignment, filling);
  if (span == nullptr) ++counters_.refused;
  return span;
}

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::describe(Span* span, Span* descriptor, std::size_t bytes) noexcept {
  *descriptor = *span;
  descriptor->home = span;
  descriptor->descriptor_bytes = static_cast<std::uint16_t>(bytes);
  return descriptor;
}

template <os::Platform P, CheckLevel kChecks>
template <class Take>
Span* Space<P, kChecks>::hand_out(Take&& take) noexcept {
  Span* span;
  {
    LockGuard guard{lock_};
    span = take();
    if (span == nullptr) return nullptr;
    note_used(span);
  }
  if (span->zero) span->absent_from = span->base;
  map_.set_spans(span->base, span->size, span);
  if (__builtin_expect(span->wants_huge, 0)) prefer_huge_again(*span);
  return span;
}

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::note_used(Span* span) noexcept {
  span->state = SpanState::used;
  span->block_state = 0;
  span->is_kept = false;
  span->is_filled = false;
  span->expected = {};
  map_.set_span(span->base, span);
  map_.set_span(end_of(*span) - 1, span);
  ++counters_.span_allocations;
  account({}, span->size);
}

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take(Slices size, Slices alignment, Filling filling) noexcept {
  const Node own = here();
  Span* span = take_at(own, size, alignment, filling);
  for (std::uint32_t i = 0; __builtin_expect(span == nullptr, 0) && i < nodes(); ++i) {
    if (free_.has_other(i, own)) span = take_at(static_cast<Node>(i), size, alignment, filling);
  }
  return span;
}

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take_at(Node node, Slices size, Slices alignment,
                                 Filling filling) noexcept {
  const Slices room{alignment.count > 1 ? size.count + alignment.count - 1 : size.count};
  Span* span = room == size ? take_lengthened(node, size) : nullptr;
  if (span == nullptr) span = take_free(node, room, filling);
  if (span == nullptr) span = take_fresh(node, room, filling);
  if (span == nullptr) span = take_free(node, room, other_than(filling));
  if (span != nullptr && alignment.count > 1) trim_to_alignment(span, size, alignment);
  return span;
}

// Dirty memory first: it costs no page fault, and does not raise the resident size.
template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take_free(Node node, Slices size, Filling filling) noexcept {
  Span* span = free_.dirty(node).find(size);
  if (span == nullptr) span = free_.clean(node, filling).find(size);
  if (span == nullptr) return nullptr;
  free_.remove(span);
  span->zero = span->state == SpanState::clean;
  note_huge_wanted(*span, size);
  give_back_tail(span, size);
  return span;
}

// For a large span above all dirty ones: one of the largest of these, with the missing memory
// behind it; or null. Without this, a program whose large blocks grow would leave all earlier ones
// behind. At least half is dirty, since the whole counts as dirty then, and is cleared for requests
// of zeros.
template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take_lengthened(Node node, Slices size) noexcept {
  if (size < kWorthLengthening) return nullptr;
  Span* const span = free_.dirty(node).largest();
  if (span == nullptr || span->size >= size || span->size.count < size.count / 2 ||
      span->region->filling == Filling::dense || free_.dirty(node).find(size) != nullptr) {
    return nullptr;
  }
  const Slices more = size - span->size;
  const Slices present = span->size;
  Span* const right = free_neighbour(end_of(*span), *span->region);
  if (right != nullptr && right->size >= more) {
    free_.remove(span);
    free_.remove(right);
    give_back_tail(right, more);
    absorb(span, right);
  } else if (is_at_front(*span) && advance(*span->region, more)) {
    free_.remove(span);
    span->size = size;
    file_region(*span->region);
  } else {
    const bool may_move = is_region(*span) && span->region->seams == nullptr;
    const Address base = may_move ? remap_pages(*span->region, size) : 0;
    if (base == 0) return nullptr;
    free_.remove(span);
    move_region(span, base, size);
  }
  span->zero = false;
  span->absent_from = span->base + present.bytes();
  return span;
}

// When the first slice of an absent huge page is reused where huge pages were given up, the page
// becomes huge nevertheless. Notes whether the `taken` slices of a free span have such pages;
// prefer_huge_again() follows without the lock.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::note_huge_wanted(Span& span, Slices taken) noexcept {
  const Region& region = *span.region;
  if (!span.zero || region.filling != Filling::dense) return;
  const Address first = align_up(span.base, kHugePage);
  const Address end = align_up(span.base + taken.bytes(), kHugePage);
  span.wants_huge =
      first < end && end <= end_of(span) && first < region.base + region.avoided.bytes();
}

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::prefer_huge_again(const Span& span) noexcept {
  const Address first = align_up(span.base, kHugePage);
  const Address end = align_up(end_of(span), kHugePage);
  if (first < end) platform_.prefer_huge_once(reinterpret_cast<void*>(first), end - first);
}

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take_fresh(Node node, Slices size, Filling filling) noexcept {
  Span* const span = new_span();
  if (span == nullptr) return nullptr;
  Region* const region = any_region_with(node, size, filling);
  if (region == nullptr) {
    metadata_.free(span, sizeof(Span));
    return nullptr;
  }
  span->region = region;
  span->size = size;
  span->base = region->base + (region->used - size).bytes();
  span->zero = true;
  fresh_bytes_.store(fresh_bytes() + size.bytes(), std::memory_order_relaxed);
  file_region(*region);
  return span;
}

// Keeps the aligned part of `span`, and frees the parts before and behind it.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::trim_to_alignment(Span*& span, Slices size, Slices alignment) noexcept {
  const Address aligned = align_up(span->base, alignment.bytes());
  const SpanState state = span->zero ? SpanState::clean : SpanState::dirty;
  const bool zero = span->zero;
  const auto file = [&](Span* part) noexcept {
    map_.set_tags(part->base, part->size, kFreeTag);
    insert_free(part, state, now_ms());
  };
  span->state = SpanState::used;
  const Slices head{static_cast<std::uint32_t>((aligned - span->base) >> kSliceShift)};
  if (head.count != 0) {
    Span* const body = split(span, head);
    if (body != nullptr) map_.set_spans(body->base, body->size, body);
    file(span);
    span = body;
    if (span == nullptr) return;
    span->zero = zero;
  }
  map_.set_spans(span->base, span->size, span);
  if (Span* const tail = split(span, size)) file(tail);
}

// A span that another thread is purging does not merge, and keeps its region. False if there was
// none. The wait ends even if that thread does not go on.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::wait_for_purges() noexcept {
  constexpr std::uint64_t kLongestMs = 100;
  constexpr std::uint32_t kMostYields = 100'000;
  const auto is_purging = [&]() noexcept {
    LockGuard guard{lock_};
    return !purging_.empty();
  };
  if (!is_purging()) return false;
  const std::uint64_t begun_ms = platform_.now_ms();
  for (std::uint32_t yields = 0; yields < kMostYields && is_purging(); ++yields) {
    if (platform_.now_ms() - begun_ms > kLongestMs) break;
    platform_.yield();
  }
  return true;
}

// Free spans in two states do not merge, and regions of the usual size keep their addresses: both
// can be in the way of a large request. So can guards, which need mappings, and a lack of metadata.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::make_room() noexcept {
  const std::size_t purged = purge_free();
  bool released = wait_for_purges();
  if (metadata_.spare_bytes() < kSpareMetadata && feed_metadata(0)) released = true;
  LockGuard guard{lock_};
  for (Region *region = regions_.first(), *next = nullptr; region != nullptr; region = next) {
    next = RegionList::next(region);
    Span* const span = free_neighbour(region->base, *region);
    if (span == nullptr || span->state != SpanState::clean || span->size != region->used) continue;
    free_.remove(span);
    release_region(span);
    released = true;
  }
  return released || purged != 0 || give_up_guards();
}

// The next slices of a region, as a clean span in no bin; or null.
template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::fresh_for_metadata(Slices size) noexcept {
  if (spare_ == nullptr) return nullptr;
  Region* const region = any_region_with(here(), size, Filling::sparse);
  if (region == nullptr) return nullptr;
  Span* const span = spare_;
  spare_ = nullptr;
  span->region = region;
  span->size = size;
  span->base = region->base + (region->used - size).bytes();
  span->state = SpanState::clean;
  file_region(*region);
  return span;
}

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::find_for_metadata(Node node, Slices least) noexcept {
  Span* span = free_.dirty(node).find(least);
  if (span == nullptr) span = free_.clean(node, Filling::sparse).find(least);
  return span != nullptr ? span : free_.clean(node, Filling::dense).find(least);
}

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::feed_metadata(std::size_t bytes) noexcept {
  if (!free_.is_started()) return false;
  // Spare descriptors come out of it as well.
  const Slices least = Slices::covering(bytes + kSpareMetadata);
  const Slices most = std::max(least, kFeed);
  LockGuard guard{lock_};
  // From the end of a run, and before the slices taken last: other spans are cut from the start, so
  // that large runs stay whole.
  Span* span = fed_ == nullptr ? nullptr : free_neighbour(fed_->base - 1, *fed_->region);
  if (span == nullptr || span->size < least) {
    const Node own = here();
    span = find_for_metadata(own, least);
    for (std::uint32_t i = 0; span == nullptr && i < nodes(); ++i) {
      if (free_.has_other(i, own)) span = find_for_metadata(static_cast<Node>(i), least);
    }
  }
  if (span != nullptr) {
    free_.remove(span);
  } else {
    span = fresh_for_metadata(most);
    if (span == nullptr) return false;
  }
  const bool zero = span->state == SpanState::clean;
  if (span->size > most && spare_ != nullptr) {
    Span* const head = span;
    span = spare_;
    spare_ = nullptr;
    cut(head, head->size - most, span);
    file_free(head);
  }
  span->state = SpanState::metadata;
  map_.set_spans(span->base, span->size, span);
  map_.set_tags(span->base, span->size, kInteriorTag);
  void* const memory = reinterpret_cast<void*>(span->base);
  const std::size_t given = span->size.bytes();
  if (!zero) __builtin_memset(memory, 0, given);
  account({}, span->size);
  metadata_.donate(memory, given);
  fed_ = span;
  if (spare_ == nullptr) spare_ = new_span();
  if (spare_region_ == nullptr) {
    spare_region_ = static_cast<Region*>(metadata_.allocate(platform_, sizeof(Region)));
  }
  return true;
}

}  // namespace allod::space

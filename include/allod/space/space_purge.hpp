// Purges: memory returns to the system, the addresses stay.
#pragma once

#include "allod/space/space.hpp"

namespace allod::space {

template <os::Platform P, CheckLevel kChecks>
std::size_t Space<P, kChecks>::purge(std::uint32_t delay_ms, std::size_t budget,
                                     std::size_t limit) noexcept {
  // Called with each span that is allocated or freed. Mostly nothing is due, which needs no lock.
  if (!free_.may_have_due(now_ms(), delay_ms, budget)) return 0;
  return purge_chosen(limit, [&](std::size_t* rest) noexcept {
    return free_.oldest_due(now_ms(), delay_ms, budget, rest);
  });
}

template <os::Platform P, CheckLevel kChecks>
std::size_t Space<P, kChecks>::purge_delayed(std::size_t limit, bool now) noexcept {
  return purge_chosen(limit,
                      [&](std::size_t*) noexcept { return free_.delayed_due(now_ms(), now); });
}

// Calls `choose` with the lock held. It may lower its argument, the bytes that are left.
template <os::Platform P, CheckLevel kChecks>
template <class Choose>
std::size_t Space<P, kChecks>::purge_chosen(std::size_t limit, Choose&& choose) noexcept {
  std::size_t purged = 0;
  while (purged < limit) {
    Span* span = nullptr;
    bool has_moved = false;
    {
      LockGuard guard{lock_};
      std::size_t rest = limit - purged;
      span = choose(&rest);
      if (span != nullptr) take_part_to_purge(span, rest);
      has_moved = span != nullptr && has_moved_pages(*span);
    }
    if (span == nullptr) break;
    // No other thread can reach the span: it is in no bin, and merges with nothing.
    const std::size_t bytes = span->size.bytes();
    const bool zero = platform_.purge(reinterpret_cast<void*>(span->base), bytes);
    if (zero && has_moved) renew(*span);
    LockGuard guard{lock_};
    // If the system refuses, it is the youngest now, so that others have their turn.
    finish_purge(span, zero, now_ms());
    refuses_purge_.store(!zero, std::memory_order_relaxed);
    if (!zero) break;
    ++counters_.purges;
    counters_.purged += bytes;
    purged += bytes;
  }
  return purged;
}

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::purge_within(Region& region, const os::Piece* pieces,
                                     std::size_t count) noexcept {
  const bool zero = platform_.purge_each(pieces, count);
  LockGuard guard{lock_};
  refuses_purge_.store(!zero, std::memory_order_relaxed);
  if (!zero) return false;
  counters_.purges += count;
  for (std::size_t i = 0; i < count; ++i) counters_.purged += pieces[i].bytes;
  const os::Piece& last = pieces[count - 1];
  if (region.filling == Filling::dense) {
    avoid_huge_pages(region, address_of(last.address) + last.bytes);
  }
  return true;
}

// Gives up huge pages after part of one below `to` was purged: the system might fill the hole
// again. Each change along the addresses splits a mapping, and a process may have only 65,530. So
// this covers all used slices of the region, and of dense regions below it. Present huge pages
// stay. Fresh memory still comes in huge pages, and clean memory does again by prefer_huge_again().
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::avoid_huge_pages(Region& region, Address to) noexcept {
  if (to <= region.base + region.avoided.bytes()) return;
  avoid_used_pages(region);
  if (region.source != nullptr) return;
  for (Region* lower = regions_.first(); lower != nullptr; lower = RegionList::next(lower)) {
    const bool is_below = lower->base < region.base && lower->filling == Filling::dense;
    if (is_below && lower->avoided < lower->used) avoid_used_pages(*lower);
  }
}

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::avoid_used_pages(Region& region) noexcept {
  const Slices whole = Slices::covering(align_up(region.used.bytes(), kHugePage));
  region.avoided = whole < region.committed ? whole : region.committed;
  platform_.avoid_huge(reinterpret_cast<void*>(region.base), region.avoided.bytes());
}

// Takes a dirty span out of its bin, or a part of it: somewhat more than `limit` with huge pages.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::take_part_to_purge(Span* span, std::size_t limit) noexcept {
  const bool is_oldest = free_.is_oldest(*span);
  free_.remove(span);
  Slices part = span->size;
  if (limit < part.bytes()) {
    part = Slices{limit < kSliceBytes ? 1 : static_cast<std::uint32_t>(limit >> kSliceShift)};
  }
  if (span->region->filling == Filling::dense) {
    // Huge pages are purged as a whole: a part would take more time, and leave small pages.
    const Address end = align_up(span->base + part.bytes(), kHugePage);
    part = Slices::covering(end - span->base);
  }
  Span* const rest = split(span, part);
  span->state = SpanState::purging;
  purging_.push_front(span);
  if (span->region->source != nullptr) ++span->region->source->purging;
  if (rest != nullptr) {
    // No merge is possible: its neighbour is `span`.
    rest->state = SpanState::dirty;
    file_free(rest);
    if (is_oldest) free_.make_oldest(rest);
  }
  // A neighbour that is freed now must not find a free span at this edge.
  map_.set_span(span->base, span);
  map_.set_span(end_of(*span) - 1, span);
}

// If it does not read as zero, it stays dirty, and counts as freed at `freed_ms`.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::finish_purge(Span* span, bool reads_zero, std::uint32_t freed_ms) noexcept {
  purging_.remove(span);
  if (span->region->source != nullptr) --span->region->source->purging;
  if (!reads_zero) {
    insert_free(span, SpanState::dirty, freed_ms);
  } else if (span->size == span->region->size && span->size > region_slices_ &&
             span->region->source == nullptr) {
    release_region(span);
  } else {
    finish_clean(span);
  }
}

// Huge pages at the ends of the purged span must be clean or untouched as a whole; otherwise huge
// pages are given up there.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::finish_clean(Span* span) noexcept {
  Region& region = *span->region;
  const Address begin = align_down(span->base, kHugePage);
  const Address end = align_up(end_of(*span), kHugePage);
  const Span* const whole = insert_free(span, SpanState::clean, 0);
  if (region.filling != Filling::dense) return;
  const bool ends_whole = end <= end_of(*whole) || is_at_front(*whole);
  if (whole->base > begin || !ends_whole) avoid_huge_pages(region, end);
}

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::repair_after_fork() noexcept {
  while (Span* const span = purging_.pop_front()) {
    if (span->region->source != nullptr) --span->region->source->purging;
    insert_free(span, SpanState::dirty, 0);
  }
}

}  // namespace allod::space

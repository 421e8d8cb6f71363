// Pages that move: a new block gets the memory of free spans that are too small for it.
//
// A large block rarely fits where a freed one of another size was. Without moves, it would take
// untouched memory, with a page fault for each page, while as much goes back to the system. To move
// page tables costs a fraction of that, and the resident size stays the same.
#pragma once

#include "allod/space/space.hpp"

namespace allod::space {

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::fill(Span& span, Slices part) noexcept {
  if (part == span.size && !span.is_full) {
    LockGuard guard{lock_};
    recent_.add(span.size.bytes() - bytes_if_full(span.size, false));
    span.is_full = true;
  }
  Region& region = *span.region;
  const bool is_own = region.source != nullptr || is_region(span);
  if (span.absent_from == 0 || is_own || region.filling == Filling::dense) return;
  const Address end = span.base + (part.bytes() - kSliceBytes);
  while (span.absent_from < end) {
    const Slices moved = move_to(span, end);
    if (moved.count == 0) return;
    span.zero = false;
    span.is_filled = true;
    span.absent_from += moved.bytes();
  }
}

// Moves the memory of a dirty span, or of a part of one, to the absent part of a used span, up to
// `end` at most. Returns how much: perhaps none.
template <os::Platform P, CheckLevel kChecks>
Slices Space<P, kChecks>::move_to(const Span& span, Address end) noexcept {
  Span* donor = nullptr;
  bool had_moved = false;
  {
    LockGuard guard{lock_};
    if (seams_ + 2 > kMostSeams || !has_seams(*span.region)) return {};
    donor = take_donor(Slices::covering(end - span.absent_from));
    if (donor == nullptr) return {};
    had_moved = has_moved_pages(*donor);
  }
  Span target = span;
  target.base = span.absent_from;
  target.size = donor->size;
  const bool has_moved =
      platform_.move_pages(reinterpret_cast<void*>(donor->base), donor->size.bytes(),
                           reinterpret_cast<void*>(target.base));
  if (has_moved && had_moved) renew(*donor);
  LockGuard guard{lock_};
  if (has_moved) {
    change_seams(target, [](Seams& seams, std::uint32_t first, std::uint32_t count) noexcept {
      seams.note_moved(first, count);
    });
    counters_.moved += target.size.bytes();
    ++counters_.moves;
  }
  finish_purge(donor, has_moved, donor->freed_ms);
  return has_moved ? target.size : Slices{};
}

// Takes a dirty span out of its bin, or a part of one, as for a purge: at most `most`, in one
// mapping. Null if there is none. Huge pages stay where they are.
template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take_donor(Slices most) noexcept {
  const auto suits = [](const Span& span) noexcept {
    return span.region->filling == Filling::sparse;
  };
  Span* donor = free_.dirty().find(most);
  if (donor == nullptr || !suits(*donor)) donor = free_.dirty().largest(suits);
  if (donor == nullptr) return nullptr;
  std::uint32_t size = donor->size < most ? donor->size.count : most.count;
  if (const Seams* const seams = donor->region->seams) {
    size = seams->run_from(slice_in_region(*donor), size);
  }
  take_part_to_purge(donor, Slices{size}.bytes());
  return donor;
}

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::has_seams(Region& region) noexcept {
  if (region.seams != nullptr) return true;
  void* const memory = metadata_.allocate(platform_, Seams::bytes_for(region.size));
  if (memory == nullptr) return false;
  region.seams = new (memory) Seams{region.size};
  return true;
}

// Whether pages have moved to a free span, whose region is then one mapping no more.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::has_moved_pages(const Span& span) noexcept {
  const Seams* const seams = span.region->seams;
  return seams != nullptr && seams->has_moved(slice_in_region(span), span.size.count);
}

// Calls change(seams, first, count) for the slices of a span.
template <os::Platform P, CheckLevel kChecks>
template <class Change>
void Space<P, kChecks>::change_seams(const Span& span, Change&& change) noexcept {
  Seams& seams = *span.region->seams;
  seams_ -= seams.count();
  change(seams, slice_in_region(span), span.size.count);
  seams_ += seams.count();
}

// Maps a purged span anew. Mostly it merges with its neighbours: not with pages that moved, nor
// where both sides were touched while they were apart. No change if the system refuses. Called
// without the lock.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::renew(const Span& span) noexcept {
  void* const memory = reinterpret_cast<void*>(span.base);
  const std::size_t bytes = span.size.bytes();
  if (!platform_.renew(memory, bytes)) return;
  const Region& region = *span.region;
  if (region.avoids_huge) platform_.avoid_huge(memory, bytes);
  platform_.name(memory, bytes, kName);
  const auto is_joined_at = [&](Address at) noexcept {
    const std::size_t page = platform_.page_size();
    return at == region.base || at == region.base + region.size.bytes() ||
           platform_.is_one_mapping(reinterpret_cast<void*>(at - page), 2 * page);
  };
  const bool joins_before = is_joined_at(span.base);
  const bool joins_behind = is_joined_at(end_of(span));
  LockGuard guard{lock_};
  change_seams(span, [&](Seams& seams, std::uint32_t first, std::uint32_t count) noexcept {
    seams.note_renewed(first, count, joins_before, joins_behind);
  });
}

}  // namespace allod::space

// Pages that move: a new block gets the memory of free spans that are too small for it.
//
// A large block rarely fits where a freed one of another size was. Without moves, it would take
// untouched memory, with a page fault for each page, while as much goes back to the system. To move
// page tables costs a fraction of that, and the resident size stays the same.
#pragma once

#include "allod/space/space.hpp"

namespace allod::space {

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::fill(Span& span, Slices part, std::size_t budget) noexcept {
  if (part != span.expected) {
    LockGuard guard{lock_};
    recent_.add(bytes_in_use(span.size, part) - bytes_in_use(span.size, span.expected));
    span.expected = part;
  }
  const Region& region = *span.region;
  const Address from = span.absent_from;
  const Address end = span.base + (part.bytes() - kSliceBytes);
  if (from == 0 || from >= end || region.source != nullptr || region.filling == Filling::dense) {
    return true;
  }
  if (!may_guess(end - from, budget)) return true;
  os::Moved moved = is_region(span) ? os::Moved::no : os::Moved::yes;
  while (moved == os::Moved::yes && span.absent_from < end) moved = move_to(span, end);
  if (span.absent_from != from) {
    platform_.forget_advice(reinterpret_cast<void*>(from), span.absent_from - from);
  }
  if (moved == os::Moved::no) populate_huge(span, end);
  if (span.is_filled) {
    LockGuard guard{lock_};
    guesses_.add({span.base, span.absent_from, span.absent_from - from});
  }
  if (moved != os::Moved::lost) return true;
  // Whatever is behind it may be another's now.
  span.guarded_from = span.absent_from;
  abandon(span);
  return false;
}

// What no dirty span had, as far as it is whole huge pages.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::populate_huge(Span& span, Address end) noexcept {
  const Address from = align_up(span.absent_from, kHugePage);
  const Address to = align_down(end, kHugePage);
  if (from >= to || !is_large_enough_for_huge_pages()) return;
  void* const memory = reinterpret_cast<void*>(from);
  if (span.region->avoids_huge) {
    platform_.prefer_huge_once(memory, to - from);
  } else {
    platform_.populate_huge(memory, to - from);
  }
  span.absent_from = to;
  span.is_filled = true;
}

// Whether a span may get so much memory, as those before were written, or are free.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::may_guess(std::size_t bytes, std::size_t budget) noexcept {
  Guesses open;
  {
    LockGuard guard{lock_};
    if (guesses_.have_room(bytes, budget)) return true;
    guesses_.remove_if([&](const Guesses::Guess& guess) noexcept {
      if (map_.tag_of(guess.base) != kHugeTag) return true;
      const Span& span = *map_.span_of(guess.base);
      return span.base != guess.base || !span.is_filled || span.absent_from != guess.probe;
    });
    open = guesses_;
  }
  open.remove_if([&](const Guesses::Guess& guess) noexcept {
    return platform_.present_bytes(reinterpret_cast<void*>(guess.probe), kSliceBytes) != 0;
  });
  LockGuard guard{lock_};
  guesses_.remove_if([&](const Guesses::Guess& guess) noexcept { return !open.has(guess); });
  return guesses_.have_room(bytes, budget);
}

template <os::Platform P, CheckLevel kChecks>
os::Piece Space<P, kChecks>::swap_newest(const Span& span) noexcept {
  LockGuard guard{lock_};
  const Address before = guesses_.swap_newest(span.base);
  if (before == 0 || map_.tag_of(before) != kHugeTag) return {};
  const Span& newest = *map_.span_of(before);
  const bool was_absent = newest.base == before && newest.absent_from == before;
  if (!was_absent) return {};
  return {reinterpret_cast<void*>(before), newest.size.bytes()};
}

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::leave_out_last(Span& span) noexcept {
  const Slices before = span.size - Slices{1};
  if (span.region->filling == Filling::dense || !purge_behind(span, before)) return;
  span.absent_from = span.base + before.bytes();
  span.is_filled = true;
}

// Moves the memory of a dirty span, or of a part of one, to the absent part of a used span, up to
// `end` at most.
template <os::Platform P, CheckLevel kChecks>
os::Moved Space<P, kChecks>::move_to(Span& span, Address end) noexcept {
  Span* donor = nullptr;
  os::Piece around{};
  bool had_moved = false;
  {
    LockGuard guard{lock_};
    if (seams_ + 2 > kMostSeams || !has_seams(*span.region)) return os::Moved::no;
    donor = take_donor(span.region->node, Slices::covering(end - span.absent_from));
    if (donor == nullptr) return os::Moved::no;
    around = mapping_around(*donor);
    had_moved = has_moved_pages(*donor);
  }
  Span target = span;
  target.base = span.absent_from;
  target.size = donor->size;
  void* const memory = reinterpret_cast<void*>(donor->base);
  // The program may have said something of a block, or mapped something over it.
  const bool is_plain = platform_.is_one_mapping(around.address, around.bytes);
  const os::Moved moved = is_plain ? platform_.move_pages(memory, donor->size.bytes(),
                                                          reinterpret_cast<void*>(target.base))
                                   : os::Moved::no;
  const bool is_clean =
      moved == os::Moved::yes || (!is_plain && platform_.purge(memory, donor->size.bytes()));
  if (is_clean && had_moved) renew(*donor);
  LockGuard guard{lock_};
  if (moved == os::Moved::yes) {
    change_seams(target, [](Seams& seams, std::uint32_t first, std::uint32_t count) noexcept {
      seams.note_moved(first, count);
    });
    counters_.moved += target.size.bytes();
    ++counters_.moves;
    span.zero = false;
    span.is_filled = true;
    span.absent_from += target.size.bytes();
  }
  finish_purge(donor, is_clean, donor->freed_ms);
  return moved;
}

// A free span, and a page on each side that should be in the same mapping.
template <os::Platform P, CheckLevel kChecks>
os::Piece Space<P, kChecks>::mapping_around(const Span& span) noexcept {
  const Region& region = *span.region;
  const std::uint32_t first = slice_in_region(span);
  const std::uint32_t end = first + span.size.count;
  const auto is_joined_at = [&](std::uint32_t at) noexcept {
    const bool is_within = at != 0 && at < region.used.count;
    return is_within && (region.seams == nullptr || !region.seams->begins_at(at));
  };
  const std::size_t before = is_joined_at(first) ? platform_.page_size() : 0;
  const std::size_t behind = is_joined_at(end) ? platform_.page_size() : 0;
  return {reinterpret_cast<void*>(span.base - before), before + span.size.bytes() + behind};
}

// Takes a dirty span out of its bin, or a part of one, as for a purge: at most `most`, in one
// mapping. Null if there is none. Huge pages stay where they are.
template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take_donor(Node node, Slices most) noexcept {
  const auto suits = [](const Span& span) noexcept {
    return span.region->filling == Filling::sparse;
  };
  Span* donor = free_.dirty(node).find(most);
  if (donor == nullptr || !suits(*donor)) donor = free_.dirty(node).largest(suits);
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

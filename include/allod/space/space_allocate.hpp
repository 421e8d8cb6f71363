// Where a span comes from: free spans, the untouched front of a region, a new region.
#pragma once

#include <errno.h>

#include <utility>

#include "allod/space/space.hpp"

namespace allod::space {

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take(Slices size, Slices alignment, Filling filling) noexcept {
  const Slices room{alignment.count > 1 ? size.count + alignment.count - 1 : size.count};
  Span* span = room == size ? take_lengthened(size) : nullptr;
  if (span == nullptr) span = take_free(room, filling);
  if (span == nullptr) span = take_fresh(room, filling);
  if (span == nullptr) span = take_free(room, other_than(filling));
  if (span != nullptr && alignment.count > 1) trim_to_alignment(span, size, alignment);
  return span;
}

// Dirty memory first: it costs no page fault, and using it keeps the resident
// size where it is.
template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take_free(Slices size, Filling filling) noexcept {
  Span* span = bins_->dirty.find(size);
  if (span == nullptr) span = clean_bins(filling).find(size);
  if (span == nullptr) return nullptr;
  remove_free(span);
  span->zero = span->state == SpanState::clean;
  note_huge_wanted(*span, size);
  give_back_tail(span, size);
  return span;
}

// For a large span that is larger than all dirty ones: nearly the largest of these, with as much
// memory behind it as is missing; or null. Without this, a program whose large blocks become larger
// and larger leaves all of them behind. At least half is dirty, because the whole counts as that
// from then on, and is cleared for whoever wants zeros.
template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take_lengthened(Slices size) noexcept {
  if (size < kWorthLengthening) return nullptr;
  Span* const span = bins_->dirty.largest();
  if (span == nullptr || span->size >= size || span->size.count < size.count / 2 ||
      span->region->filling == Filling::dense || bins_->dirty.find(size) != nullptr) {
    return nullptr;
  }
  const Slices more = size - span->size;
  Span* const right = free_neighbour(end_of(*span), *span->region);
  if (right != nullptr && right->size >= more) {
    remove_free(span);
    remove_free(right);
    give_back_tail(right, more);
    absorb(span, right);
  } else if (is_at_front(*span) && advance(*span->region, more)) {
    remove_free(span);
    span->size = size;
    file_region(*span->region);
  } else {
    const Address base = is_region(*span) ? remap_pages(*span->region, size) : 0;
    if (base == 0) return nullptr;
    remove_free(span);
    move_region(span, base, size);
  }
  span->zero = false;
  return span;
}

// Whoever takes the first slice of a huge page without memory, where they were given up, has that
// one page nevertheless. Here it is seen whether `taken`, of a free span, has such pages; what
// follows is done without the lock.
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
Span* Space<P, kChecks>::take_fresh(Slices size, Filling filling) noexcept {
  Span* const span = new_span();
  if (span == nullptr) return nullptr;
  Region* const region = any_region_with(size, filling);
  if (region == nullptr) {
    metadata_.free(span, sizeof(Span));
    return nullptr;
  }
  span->region = region;
  span->size = size;
  span->base = region->base + (region->used - size).bytes();
  span->zero = true;
  file_region(*region);
  return span;
}

// Where addresses, or mappings, are scarce, memory of the other kind has to do. A kind whose
// regions were refused is asked for again when the heap has got another one, or nothing else is
// left.
template <os::Platform P, CheckLevel kChecks>
Region* Space<P, kChecks>::any_region_with(Slices size, Filling filling) noexcept {
  const Filling other = other_than(filling);
  std::size_t& refused_at = refused_at_[static_cast<unsigned>(filling)];
  const auto attempt = [&]() noexcept {
    Region* const region = new_region(size, filling);
    if (region == nullptr) refused_at = counters_.reserved;
    return region;
  };
  Region* region = region_with(size, filling);
  const bool was_refused = refused_at == counters_.reserved;
  if (region == nullptr && !was_refused) region = attempt();
  if (region == nullptr) region = region_with(size, other);
  if (region == nullptr) region = new_region(size, other);
  if (region == nullptr && was_refused) region = attempt();
  return region;
}

// A region of that kind which has just handed out its next `size` slices, or null.
template <os::Platform P, CheckLevel kChecks>
Region* Space<P, kChecks>::region_with(Slices size, Filling filling) noexcept {
  for (Region* region = regions_.first(); region != nullptr; region = RegionList::next(region)) {
    // See file_region.
    if (region->used == region->size) break;
    if (region->filling == filling && advance(*region, size)) return region;
  }
  return nullptr;
}

// Regions without untouched slices go to the end of the list.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::file_region(Region& region) noexcept {
  if (region.used != region.size || region.source != nullptr) return;
  regions_.remove(&region);
  regions_.push_back(&region);
}

// Hands out the next `more` slices of a region.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::advance(Region& region, Slices more) noexcept {
  if (more > region.size - region.used) return false;
  const Slices needed = region.used + more;
  if (needed > region.committed) {
    Slices goal = needed + kCommitStep;
    if (region.filling == Filling::dense)
      goal = Slices::covering(align_up(goal.bytes(), kHugePage));
    if (goal > region.size) goal = region.size;
    if (!commit(region, goal) && !commit(region, needed)) return false;
  }
  region.used = needed;
  return true;
}

// Makes a region usable up to `to`. Where its tail is hidden, the next part of it is a mapping of
// its own for a moment; without a mapping for that, all of the tail is shown.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::commit(Region& region, Slices to) noexcept {
  void* const from = reinterpret_cast<void*>(region.base + region.committed.bytes());
  const std::size_t bytes = (to - region.committed).bytes();
  if (region.is_tail_hidden) {
    const bool done = platform_.commit(from, bytes);
    platform_.dump(from, done ? bytes : (region.size - region.committed).bytes(), true);
    if (!done) region.is_tail_hidden = false;
    if (!done && !platform_.commit(from, bytes)) return false;
  } else if (!platform_.commit(from, bytes)) {
    return false;
  }
  region.committed = to;
  return true;
}

// A debugger would write it into a core file, though there is nothing.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::hide_tail(Region& region) noexcept {
  if (region.committed == region.size) return;
  platform_.dump(reinterpret_cast<void*>(region.base + region.committed.bytes()),
                 (region.size - region.committed).bytes(), false);
  region.is_tail_hidden = true;
}

// A region of the usual size, or as large as the request; when addresses are scarce, less, but none
// for huge pages. Its first `size` slices are handed out.
template <os::Platform P, CheckLevel kChecks>
Region* Space<P, kChecks>::new_region(Slices size, Filling filling) noexcept {
  auto* region = static_cast<Region*>(metadata_.allocate(platform_, sizeof(Region)));
  if (region == nullptr) region = std::exchange(spare_region_, nullptr);
  if (region == nullptr) return nullptr;
  *region = {};
  region->filling = filling;
  const Slices share = Slices::covering(counters_.reserved / kShare);
  const Slices usual = share > region_slices_ ? share : region_slices_;
  const bool is_shared = !is_for_itself(size);
  for (Slices wanted = is_shared ? usual : size; !place(*region, wanted, is_shared);) {
    if (wanted == size || filling == Filling::dense) {
      metadata_.free(region, sizeof(Region));
      return nullptr;
    }
    wanted.count = wanted.count / 2 > size.count ? wanted.count / 2 : size.count;
  }
  void* const memory = reinterpret_cast<void*>(region->base);
  platform_.name(memory, region->size.bytes(), "allod: heap");
  choose_pages(*region, size);
  if (!advance(*region, size)) {
    platform_.unmap(memory, region->size.bytes());
    forget(*region);
    return nullptr;
  }
  hide_tail(*region);
  if (is_shared) last_[static_cast<unsigned>(filling)] = region;
  regions_.push_front(region);
  ++counters_.regions;
  counters_.reserved += region->size.bytes();
  return region;
}

// Dense memory gets huge pages. A small program gets none, even where the system gives them to all
// memory unasked: what is touched there is spread over the region, and it would pay for each.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::choose_pages(const Region& region, Slices first) noexcept {
  void* const memory = reinterpret_cast<void*>(region.base);
  if (region.filling == Filling::dense) {
    platform_.prefer_huge(memory, region.size.bytes());
  } else if (counters_.used + first.bytes() < huge_from_) {
    platform_.avoid_huge(memory, region.size.bytes());
  }
}

// Finds addresses for a region of that size. Regions that lie beside each other are one mapping, of
// which the system has so many for a process: each begins where the last of its kind ends, as long
// as that is nobody's. One that is not shared, but for one block, does not, as it may go, or grow.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::place(Region& region, Slices size, bool is_shared) noexcept {
  const bool gathers = is_shared && platform_.gathers();
  if (gathers && place_behind(region, size)) return true;
  const std::size_t alignment = region.filling == Filling::dense ? kHugePage : kSliceBytes;
  void* const apart = gathers ? reserve_before_room(size.bytes(), alignment) : nullptr;
  if (apart != nullptr && settle(region, apart, size)) return true;
  void* const memory = platform_.reserve(size.bytes(), alignment);
  if (memory != nullptr && settle(region, memory, size)) return true;
  return !gathers && place_behind(region, size);
}

// What is left of the region before becomes usable: between two that are, it would be a mapping.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::place_behind(Region& region, Slices size) noexcept {
  Region* const last = last_[static_cast<unsigned>(region.filling)];
  if (last == nullptr) return false;
  if (last->committed < last->size && !commit(*last, last->size)) return false;
  void* const memory = reinterpret_cast<void*>(last->base + last->size.bytes());
  if (!platform_.reserve_at(memory, size.bytes()) || !settle(region, memory, size)) return false;
  last_[static_cast<unsigned>(region.filling)] = &region;
  return true;
}

// Where others can follow. Null when there are not so many addresses in one place.
template <os::Platform P, CheckLevel kChecks>
void* Space<P, kChecks>::reserve_before_room(std::size_t bytes, std::size_t alignment) noexcept {
  for (std::size_t room = kRoom; room > bytes; room /= 4) {
    void* const memory = platform_.reserve(bytes + room, alignment);
    if (memory == nullptr) continue;
    platform_.unmap(reinterpret_cast<void*>(address_of(memory) + bytes), room);
    return memory;
  }
  return nullptr;
}

// Gives the addresses back when the page map cannot tell of them.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::settle(Region& region, void* memory, Slices size) noexcept {
  if (!map_.cover(platform_, address_of(memory), size.bytes())) {
    platform_.unmap(memory, size.bytes());
    return false;
  }
  region.base = address_of(memory);
  region.size = size;
  return true;
}

// Keeps the aligned part of `span` and frees what is before and behind it.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::trim_to_alignment(Span*& span, Slices size, Slices alignment) noexcept {
  const Address aligned = align_up(span->base, alignment.bytes());
  const SpanState state = span->zero ? SpanState::clean : SpanState::dirty;
  const bool zero = span->zero;
  const auto file = [&](Span* part) noexcept {
    map_.set_tags(part->base, part->size, kFreeTag);
    insert_free(part, state, static_cast<std::uint32_t>(platform_.now_ms()));
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

// What another thread is just giving back merges with nothing, and keeps its region. False when
// there is nothing such. The wait ends even if that thread does not go on.
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

// Free spans in two states do not merge, and regions of the usual size keep their
// addresses: both can stand in the way of a large request. So can guards, of mappings, and
// metadata that cannot be had for want of them.
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
    remove_free(span);
    release_region(span);
    released = true;
  }
  return released || purged != 0 || give_up_guards();
}

// The next slices of a region, as a clean span in no bin; or null.
template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::fresh_for_metadata(Slices size) noexcept {
  if (spare_ == nullptr) return nullptr;
  Region* const region = any_region_with(size, Filling::sparse);
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
bool Space<P, kChecks>::feed_metadata(std::size_t bytes) noexcept {
  if (bins_ == nullptr) return false;
  // Spare descriptors come out of it as well.
  const Slices least = Slices::covering(bytes + kSpareMetadata);
  const Slices most = std::max(least, kFeed);
  LockGuard guard{lock_};
  // From the end of a run, and before what was taken last: other spans are cut
  // from the start, and large runs stay whole.
  Span* span = fed_ == nullptr ? nullptr : free_neighbour(fed_->base - 1, *fed_->region);
  if (span == nullptr || span->size < least) span = bins_->dirty.find(least);
  if (span == nullptr) span = clean_bins(Filling::sparse).find(least);
  if (span == nullptr) span = clean_bins(Filling::dense).find(least);
  if (span != nullptr) {
    remove_free(span);
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

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::remap(Span* span, Slices to) noexcept {
  LockGuard guard{lock_};
  const Address base = is_region(*span) ? remap_pages(*span->region, to) : 0;
  if (base == 0) return false;
  account(span->size, to);
  move_region(span, base, to);
  return true;
}

// Lengthens the mapping of a region; where it then is, or 0, and it is as it was.
template <os::Platform P, CheckLevel kChecks>
Address Space<P, kChecks>::remap_pages(const Region& region, Slices to) noexcept {
  void* const base = reinterpret_cast<void*>(region.base);
  const std::size_t bytes = region.size.bytes();
  // The page map first: once the pages have moved there is no way back.
  if (map_.cover(platform_, region.base, to.bytes())) {
    const int error = platform_.grow(base, bytes, to.bytes());
    if (error == 0) return region.base;
    // The program has changed a part of it, by mlock or madvise, so that it is several mappings.
    if (error != ENOMEM) return 0;
  }
  void* const target = platform_.reserve(to.bytes(), kSliceBytes);
  if (target == nullptr) return 0;
  if (!map_.cover(platform_, address_of(target), to.bytes())) {
    platform_.unmap(target, to.bytes());
    return 0;
  }
  return platform_.move(base, bytes, target, to.bytes()) ? address_of(target) : 0;
}

// Of a span that is a region: its pages are at `base` now, and more of them. In no bin.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::move_region(Span* span, Address base, Slices to) noexcept {
  Region& region = *span->region;
  map_.set_tags(span->base, span->size, kForeignTag);
  map_.set_spans(span->base, span->size, nullptr);
  counters_.reserved += (to - region.size).bytes();
  region.base = span->base = base;
  region.size = region.used = region.committed = span->size = to;
  map_.set_spans(span->base, span->size, span);
}

}  // namespace allod::space

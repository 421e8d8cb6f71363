// Where a span comes from: free spans, the untouched front of a region, a new region.
#pragma once

#include <errno.h>

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
  if (span->zero && filling == Filling::dense) prefer_huge_again(*span, size);
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

// Whoever takes the first slice of a huge page without memory asks for it once more,
// because purges of its parts may have given it up.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::prefer_huge_again(const Span& span, Slices taken) noexcept {
  const Address first = align_up(span.base, kHugePage);
  const Address end = align_up(span.base + taken.bytes(), kHugePage);
  if (first >= span.base + taken.bytes() || end > end_of(span)) return;
  platform_.prefer_huge(reinterpret_cast<void*>(first), end - first);
}

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take_fresh(Slices size, Filling filling) noexcept {
  Span* const span = new_span();
  if (span == nullptr) return nullptr;
  Region* region = region_with(size, filling);
  if (region == nullptr) region = new_region(size, filling);
  // Addresses are scarce: memory of the other kind has to do.
  if (region == nullptr) region = region_with(size, other_than(filling));
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
    const auto commit_to = [&](Slices to) noexcept {
      void* const from = reinterpret_cast<void*>(region.base + region.committed.bytes());
      const std::size_t bytes = (to - region.committed).bytes();
      if (!platform_.commit(from, bytes)) return false;
      if (region.filling == Filling::dense) platform_.prefer_huge(from, bytes);
      region.committed = to;
      return true;
    };
    if (!commit_to(goal) && !commit_to(needed)) return false;
  }
  region.used = needed;
  return true;
}

// A region of the usual size, or as large as the request; less when addresses
// are scarce. Its first `size` slices are handed out.
template <os::Platform P, CheckLevel kChecks>
Region* Space<P, kChecks>::new_region(Slices size, Filling filling) noexcept {
  auto* const region = static_cast<Region*>(metadata_.allocate(platform_, sizeof(Region)));
  if (region == nullptr) return nullptr;
  region->filling = filling;
  const std::size_t alignment = filling == Filling::dense ? kHugePage : kSliceBytes;
  for (Slices wanted = size.count * 2 > region_slices_.count ? size : region_slices_;;) {
    void* const memory = platform_.reserve(wanted.bytes(), alignment);
    if (memory != nullptr && !map_.cover(platform_, address_of(memory), wanted.bytes())) {
      platform_.unmap(memory, wanted.bytes());
    } else if (memory != nullptr) {
      region->base = address_of(memory);
      region->size = wanted;
      break;
    }
    if (wanted == size) {
      metadata_.free(region, sizeof(Region));
      return nullptr;
    }
    wanted.count = wanted.count / 2 > size.count ? wanted.count / 2 : size.count;
  }
  if (!advance(*region, size)) {
    platform_.unmap(reinterpret_cast<void*>(region->base), region->size.bytes());
    metadata_.free(region, sizeof(Region));
    return nullptr;
  }
  platform_.name(reinterpret_cast<void*>(region->base), region->size.bytes(), "allod: heap");
  regions_.push_front(region);
  ++counters_.regions;
  counters_.reserved += region->size.bytes();
  return region;
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

// Free spans in two states do not merge, and regions of the usual size keep their
// addresses: both can stand in the way of a large request.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::make_room() noexcept {
  const std::size_t purged = purge_free();
  LockGuard guard{lock_};
  bool released = false;
  for (Region *region = regions_.first(), *next = nullptr; region != nullptr; region = next) {
    next = RegionList::next(region);
    Span* const span = free_neighbour(region->base, *region);
    if (span == nullptr || span->state != SpanState::clean || span->size != region->used) continue;
    remove_free(span);
    release_region(span);
    released = true;
  }
  return released || purged != 0;
}

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::feed_metadata() noexcept {
  if (bins_ == nullptr) return false;
  LockGuard guard{lock_};
  // From the end of a run, and before what was taken last: other spans are cut
  // from the start, and large runs stay whole.
  Span* span = fed_ == nullptr ? nullptr : free_neighbour(fed_->base - 1, *fed_->region);
  if (span == nullptr) span = bins_->dirty.find({1});
  if (span == nullptr) span = clean_bins(Filling::sparse).find({1});
  if (span == nullptr) span = clean_bins(Filling::dense).find({1});
  if (span == nullptr) return false;
  remove_free(span);
  const bool zero = span->state == SpanState::clean;
  if (span->size > kFeed && spare_ != nullptr) {
    Span* const head = span;
    span = spare_;
    spare_ = nullptr;
    cut(head, head->size - kFeed, span);
    file_free(head);
  }
  span->state = SpanState::metadata;
  map_.set_spans(span->base, span->size, span);
  map_.set_tags(span->base, span->size, kInteriorTag);
  void* const memory = reinterpret_cast<void*>(span->base);
  const std::size_t bytes = span->size.bytes();
  if (!zero) __builtin_memset(memory, 0, bytes);
  account({}, span->size);
  metadata_.donate(memory, bytes);
  fed_ = span;
  if (spare_ == nullptr) spare_ = new_span();
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

// Memory of one heap alone: its regions, and their end.
#pragma once

#include <errno.h>

#include "allod/space/space.hpp"

namespace allod::space {

template <os::Platform P, CheckLevel kChecks>
PageSource* Space<P, kChecks>::open_source(const PageWishes& wishes, int* error) noexcept {
  *error = ENOMEM;
  void* const memory = allocate_metadata(sizeof(PageSource));
  if (memory == nullptr) return nullptr;
  auto* const source = new (memory) PageSource{wishes};
  LockGuard guard{lock_};
  sources_.push_back(source);
  // The first region shows whether the system can fulfil the wishes.
  *error = source->is_buffer()                          ? adopt_buffer(*source)
           : map_region(*source, {1}, error) != nullptr ? 0
                                                        : *error;
  if (*error == 0) return source;
  sources_.remove(source);
  metadata_.free(source, sizeof(PageSource));
  return nullptr;
}

// All whole slices of a buffer are one free span with unknown content.
template <os::Platform P, CheckLevel kChecks>
int Space<P, kChecks>::adopt_buffer(PageSource& source) noexcept {
  const Address from = source.wishes.buffer;
  const Address to = from + source.wishes.buffer_bytes;
  const Address first = align_up(from, kSliceBytes);
  const Address last = align_down(to, kSliceBytes);
  if (to < from || std::uint64_t{to} > std::uint64_t{1} << kAddressBits) return EINVAL;
  if (!map_.cover(platform_, align_down(from, kSliceBytes),
                  align_up(to, kSliceBytes) - align_down(from, kSliceBytes))) {
    return ENOMEM;
  }
  if (first >= last) return 0;
  if (!is_nobodys(first, last)) return EBUSY;
  Span* const span = new_span();
  if (span == nullptr) return ENOMEM;
  Region* const region = add_region(source, first, Slices::covering(last - first));
  if (region == nullptr) {
    metadata_.free(span, sizeof(Span));
    return ENOMEM;
  }
  region->used = region->size;
  span->region = region;
  span->base = region->base;
  span->size = region->size;
  map_.set_tags(span->base, span->size, kFreeTag);
  insert_free(span, SpanState::dirty, 0);
  return 0;
}

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::is_nobodys(Address from, Address to) const noexcept {
  for (Address at = from; at < to; at += kSliceBytes) {
    if (map_.tag_of(at) != kForeignTag || map_.span_of(at) != nullptr) return false;
  }
  return true;
}

// Another buffer, which ends where this one begins, may have taken their common slice.
template <os::Platform P, CheckLevel kChecks>
template <class Take>
bool Space<P, kChecks>::take_ends(PageSource& source, std::size_t bytes, Take&& take) noexcept {
  const Address from = source.wishes.buffer;
  const Address to = from + source.wishes.buffer_bytes;
  const Address first = align_down(from, kSliceBytes);
  const Address last = align_down(to, kSliceBytes);
  const auto take_end = [&](Address base) noexcept {
    auto* const descriptor = static_cast<Span*>(metadata_.allocate_stable(platform_, bytes));
    if (descriptor == nullptr) return false;
    LockGuard guard{lock_};
    Span* const span = is_nobodys(base, base + kSliceBytes) ? new_span() : nullptr;
    Region* const region = span != nullptr ? add_region(source, base, {1}) : nullptr;
    if (region == nullptr) {
      const bool is_lost = span == nullptr && !is_nobodys(base, base + kSliceBytes);
      if (span != nullptr) metadata_.free(span, sizeof(Span));
      metadata_.free_stable(descriptor, bytes);
      return is_lost;
    }
    region->used = region->size;
    span->region = region;
    span->base = base;
    span->size = {1};
    const Address end = base + kSliceBytes;
    Span* const used = describe(span, descriptor, bytes);
    note_used(used);
    take(used, from > base ? from : base, to < end ? to : end);
    return true;
  };
  if (first != from && !take_end(first)) return false;
  return last == to || (last == first && first != from) || take_end(last);
}

template <os::Platform P, CheckLevel kChecks>
Region* Space<P, kChecks>::add_region(PageSource& source, Address base, Slices size) noexcept {
  auto* const region = static_cast<Region*>(metadata_.allocate(platform_, sizeof(Region)));
  if (region == nullptr) return nullptr;
  region->base = base;
  region->size = size;
  region->committed = size;
  region->source = &source;
  region->filling = source.wishes.pages == Pages::large ? Filling::dense : Filling::sparse;
  source.regions.push_front(region);
  source.bytes += size.bytes();
  ++counters_.regions;
  counters_.reserved += size.bytes();
  return region;
}

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::close_source(PageSource* source) noexcept {
  for (;;) {
    {
      LockGuard guard{lock_};
      // Another thread may be purging one of its free spans.
      if (source->purging == 0) {
        while (Region* const region = source->regions.first()) drop_region(*source, *region);
        sources_.remove(source);
        break;
      }
    }
    platform_.yield();
  }
  metadata_.free(source, sizeof(PageSource));
}

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::drop_region(PageSource& source, Region& region) noexcept {
  for (Address at = region.base; at < region.base + region.used.bytes();) {
    Span* const span = map_.span_of(at);
    at = end_of(*span);
    // It was abandoned. Its guard goes with the memory.
    if (is_partly_closed(*span)) continue;
    always_check(is_free(*span), "a heap's memory goes while a part of it is used");
    free_.remove(span);
    metadata_.free(span, sizeof(Span));
  }
  map_.set_tags(region.base, region.used, kForeignTag);
  map_.set_spans(region.base, region.used, nullptr);
  if (!source.is_buffer()) {
    platform_.unmap(reinterpret_cast<void*>(region.base), region.size.bytes());
  }
  counters_.reserved -= region.size.bytes();
  --counters_.regions;
  source.regions.remove(&region);
  metadata_.free(&region, sizeof(Region));
}

// --- spans ------------------------------------------------------------------------

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take_from(PageSource& source, Slices size, Slices alignment) noexcept {
  const Slices room{alignment.count > 1 ? size.count + alignment.count - 1 : size.count};
  Span* span = source.dirty.find(room);
  if (span == nullptr) span = source.clean.find(room);
  if (span != nullptr) {
    free_.remove(span);
    span->zero = span->state == SpanState::clean;
    give_back_tail(span, room);
  } else {
    span = take_fresh_from(source, room);
  }
  if (span != nullptr && alignment.count > 1) trim_to_alignment(span, size, alignment);
  return span;
}

template <os::Platform P, CheckLevel kChecks>
Span* Space<P, kChecks>::take_fresh_from(PageSource& source, Slices size) noexcept {
  if (source.is_buffer()) return nullptr;
  Span* const span = new_span();
  if (span == nullptr) return nullptr;
  Region* region = source.regions.first();
  while (region != nullptr && !advance(*region, size)) region = RegionList::next(region);
  int error;
  if (region == nullptr) region = map_region(source, size, &error);
  if (region == nullptr || (region->used < size && !advance(*region, size))) {
    metadata_.free(span, sizeof(Span));
    return nullptr;
  }
  span->region = region;
  span->size = size;
  span->base = region->base + (region->used - size).bytes();
  span->zero = true;
  return span;
}

// An unused region. Each is as large as all before it, within bounds; if memory is scarce, as large
// as needed.
template <os::Platform P, CheckLevel kChecks>
Region* Space<P, kChecks>::map_region(PageSource& source, Slices size, int* error) noexcept {
  const PageWishes& wishes = source.wishes;
  const std::size_t unit = wishes.pages == Pages::huge_1g ? std::size_t{1} << 30
                           : wishes.pages != Pages::usual ? kHugePage
                           : wishes.locked                ? 4 * kSliceBytes
                                                          : 16 * kSliceBytes;
  const std::size_t least = align_up(size.bytes(), unit);
  const std::size_t most =
      source.bytes < region_slices_.bytes() ? source.bytes : region_slices_.bytes();
  for (std::size_t bytes = most > least ? align_up(most, unit) : least;; bytes = least) {
    void* const memory = map_pages(wishes, bytes, error);
    if (memory != nullptr) {
      Region* region = nullptr;
      if (map_.cover(platform_, address_of(memory), bytes)) {
        region = add_region(source, address_of(memory), Slices::covering(bytes));
      }
      if (region != nullptr) {
        platform_.name(memory, bytes, "allod: heap");
        if (!source.can_purge()) return region;
        region->committed = {0};
        choose_pages(*region, size);
        hide_tail(*region);
        return region;
      }
      platform_.unmap(memory, bytes);
      *error = ENOMEM;
    }
    if (bytes == least) return nullptr;
  }
}

// Memory that can be purged is only reserved, and committed when used.
template <os::Platform P, CheckLevel kChecks>
void* Space<P, kChecks>::map_pages(const PageWishes& wishes, std::size_t bytes,
                                   int* error) noexcept {
  *error = ENOMEM;
  void* memory;
  if (wishes.pages > Pages::large) {
    memory = platform_.map_huge(bytes, wishes.pages == Pages::huge_1g ? 30 : 21, error);
  } else {
    memory = platform_.reserve(bytes, wishes.pages == Pages::large ? kHugePage : kSliceBytes);
  }
  if (memory == nullptr) return nullptr;
  *error = wishes.nodes != 0 ? platform_.bind(memory, bytes, wishes.nodes) : 0;
  if (*error == 0 && wishes.locked) {
    const bool usable = wishes.pages > Pages::large || platform_.commit(memory, bytes);
    if (usable && wishes.pages == Pages::large) platform_.prefer_huge(memory, bytes);
    *error = usable ? platform_.lock(memory, bytes) : ENOMEM;
  }
  if (*error == 0) return memory;
  platform_.unmap(memory, bytes);
  return nullptr;
}

}  // namespace allod::space

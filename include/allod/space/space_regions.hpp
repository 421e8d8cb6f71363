// Regions: addresses from the system, committed from the front on, moved and unmapped.
#pragma once

#include <errno.h>

#include <utility>

#include "allod/space/space.hpp"

namespace allod::space {

// If addresses or mappings are scarce, memory of the other filling must do. After a refusal, a
// region is requested again only when the heap has got another one, or nothing else is left.
template <os::Platform P, CheckLevel kChecks>
Region* Space<P, kChecks>::any_region_with(Node node, Slices size, Filling filling) noexcept {
  const Filling other = other_than(filling);
  std::size_t& refused_at = refused_at_[static_cast<unsigned>(filling)];
  const auto attempt = [&]() noexcept {
    Region* const region = new_region(node, size, filling);
    if (region == nullptr) refused_at = counters_.reserved;
    return region;
  };
  Region* region = region_with(node, size, filling);
  const bool was_refused = refused_at == counters_.reserved;
  if (region == nullptr && !was_refused) region = attempt();
  if (region == nullptr) region = region_with(node, size, other);
  if (region == nullptr) region = new_region(node, size, other);
  if (region == nullptr && was_refused) region = attempt();
  return region;
}

// A region of this node and filling that has handed out its next `size` slices, or null.
template <os::Platform P, CheckLevel kChecks>
Region* Space<P, kChecks>::region_with(Node node, Slices size, Filling filling) noexcept {
  for (Region* region = regions_.first(); region != nullptr; region = RegionList::next(region)) {
    // See file_region().
    if (region->used == region->size) break;
    const bool suits = region->filling == filling && region->node == node;
    if (suits && advance(*region, size)) return region;
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

// Where spans are scattered, what nobody has asked for yet is not usable either.
template <os::Platform P>
[[nodiscard]] bool commits_ahead(const P& platform) noexcept {
  if constexpr (os::Scattering<P>) return !platform.scatters();
  return true;
}

// Hands out the next `more` slices of a region.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::advance(Region& region, Slices more) noexcept {
  if (more > region.size - region.used) return false;
  const Slices needed = region.used + more;
  if (needed > region.committed) {
    Slices goal = commits_ahead(platform_) ? needed + kCommitStep : needed;
    if (region.filling == Filling::dense)
      goal = Slices::covering(align_up(goal.bytes(), kHugePage));
    if (goal > region.size) goal = region.size;
    if (!commit(region, goal) && !commit(region, needed)) return false;
  }
  region.used = needed;
  return true;
}

// Makes a region usable up to `to`. Committing a part of a hidden tail needs a mapping for a
// moment. Without one, all of the tail is shown.
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

// A debugger would write the untouched tail into a core file.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::hide_tail(Region& region) noexcept {
  if (region.committed == region.size) return;
  platform_.dump(reinterpret_cast<void*>(region.base + region.committed.bytes()),
                 (region.size - region.committed).bytes(), false);
  region.is_tail_hidden = true;
}

// A region of the usual size, or of the request's if larger; smaller if addresses are scarce, but
// not for huge pages, which it has as a whole: the next one begins at its end. Hands out its first
// `size` slices.
template <os::Platform P, CheckLevel kChecks>
Region* Space<P, kChecks>::new_region(Node node, Slices size, Filling filling) noexcept {
  auto* region = static_cast<Region*>(metadata_.allocate(platform_, sizeof(Region)));
  if (region == nullptr) region = std::exchange(spare_region_, nullptr);
  if (region == nullptr) return nullptr;
  *region = {};
  region->filling = filling;
  region->node = node;
  const std::size_t least = std::max(counters_.reserved / kShare, region_slices_.bytes());
  const std::size_t step = filling == Filling::dense ? kHugePage : kSliceBytes;
  const Slices usual = Slices::covering(align_up(least, step));
  const bool is_shared = !is_for_itself(size);
  for (Slices wanted = is_shared ? usual : size; !place(*region, wanted, is_shared);) {
    if (wanted == size || filling == Filling::dense) {
      metadata_.free(region, sizeof(Region));
      return nullptr;
    }
    wanted.count = wanted.count / 2 > size.count ? wanted.count / 2 : size.count;
  }
  void* const memory = reinterpret_cast<void*>(region->base);
  platform_.name(memory, region->size.bytes(), kName);
  choose_pages(*region, size);
  if (!advance(*region, size) && !advance_alike(*region, size)) {
    platform_.unmap(memory, region->size.bytes());
    forget(*region);
    return nullptr;
  }
  hide_tail(*region);
  if (is_shared) last_[node][static_cast<unsigned>(filling)] = region;
  regions_.push_front(region);
  ++counters_.regions;
  counters_.reserved += region->size.bytes();
  return region;
}

// Dense memory gets huge pages. A small program gets none, even if the system gives them to all
// memory: its use is spread over the region, and every huge page would be resident.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::choose_pages(Region& region, Slices first) noexcept {
  void* const memory = reinterpret_cast<void*>(region.base);
  if (region.filling == Filling::dense) {
    platform_.prefer_huge(memory, region.size.bytes());
  } else if (counters_.used + first.bytes() < huge_from_) {
    region.avoids_huge = true;
    platform_.avoid_huge(memory, region.size.bytes());
  }
}

// Where mappings are scarce: without huge pages, as the region in front of it, it can be one
// mapping with that.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::advance_alike(Region& region, Slices first) noexcept {
  if (region.filling == Filling::dense) return false;
  region.avoids_huge = true;
  platform_.avoid_huge(reinterpret_cast<void*>(region.base), region.size.bytes());
  return advance(region, first);
}

// Finds addresses for a region. Adjacent regions are one mapping, whose number the system limits:
// each begins at the end of the last one of its filling, if the addresses there are free. A region
// for one block does not, as it may be unmapped or grow.
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

// Commits the rest of the last region: between usable ones, it would be a mapping.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::place_behind(Region& region, Slices size) noexcept {
  Region*& last = last_[region.node][static_cast<unsigned>(region.filling)];
  if (last == nullptr) return false;
  if (last->committed < last->size && !commit(*last, last->size)) return false;
  void* const memory = reinterpret_cast<void*>(last->base + last->size.bytes());
  if (!platform_.reserve_at(memory, size.bytes()) || !settle(region, memory, size)) return false;
  last = &region;
  return true;
}

// Reserves addresses with free room behind them. Null if there are not enough in one place.
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

// Unmaps the addresses if the page map cannot cover them.
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

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::remap(Span* span, Slices to) noexcept {
  LockGuard guard{lock_};
  const bool may_move = is_region(*span) && span->region->seams == nullptr;
  const Address base = may_move ? remap_pages(*span->region, to) : 0;
  if (base == 0) return false;
  account(span->size, to, span->expected);
  move_region(span, base, to);
  return true;
}

// Lengthens the mapping of a region, and returns its base. 0, and no change, on failure.
template <os::Platform P, CheckLevel kChecks>
Address Space<P, kChecks>::remap_pages(const Region& region, Slices to) noexcept {
  void* const base = reinterpret_cast<void*>(region.base);
  const std::size_t bytes = region.size.bytes();
  // The page map first: moved pages cannot go back.
  if (map_.cover(platform_, region.base, to.bytes())) {
    const int error = platform_.grow(base, bytes, to.bytes());
    if (error == 0) return region.base;
    // The program has split the mapping, by mlock or madvise on a part.
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

// For a span, in no bin, that is a region: its pages are now at `base`, `to` of them.
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

// No other span can use the addresses of a region of its own.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::release_region(Span* span) noexcept {
  Region* const region = span->region;
  map_.set_tags(span->base, span->size, kForeignTag);
  map_.set_spans(span->base, span->size, nullptr);
  platform_.unmap(reinterpret_cast<void*>(region->base), region->size.bytes());
  counters_.reserved -= region->size.bytes();
  --counters_.regions;
  regions_.remove(region);
  forget(*region);
  metadata_.free(span, sizeof(Span));
}

// --- content ---------------------------------------------------------------------------

template <os::Platform P, CheckLevel kChecks>
template <class Visit>
void Space<P, kChecks>::for_each_region(Visit&& visit) noexcept {
  const auto visit_all = [&](const RegionList& list) noexcept {
    for (Region* r = list.first(); r != nullptr; r = RegionList::next(r)) visit(*r);
  };
  visit_all(regions_);
  for (PageSource* s = sources_.first(); s != nullptr; s = PageSourceList::next(s)) {
    visit_all(s->regions);
  }
}

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::for_each_span(auto&& visit) noexcept {
  LockGuard guard{lock_};
  for_each_region([&](const Region& region) noexcept {
    const Address end = region.base + region.used.bytes();
    for (Address at = region.base; at < end;) {
      const Span& span = *map_.span_of(at);
      visit(span);
      at = end_of(span);
    }
  });
}

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::for_each_untouched(auto&& visit) noexcept {
  LockGuard guard{lock_};
  for_each_region([&](const Region& region) noexcept {
    const Slices rest = region.committed - region.used;
    if (rest.count != 0) visit(region.base + region.used.bytes(), rest.bytes());
  });
}

template <os::Platform P, CheckLevel kChecks>
template <class Mappings>
void Space<P, kChecks>::narrow_map(std::size_t limit, bool is_alone,
                                   Mappings&& each_mapping) noexcept {
  LockGuard guard{lock_};
  const auto each_region = [&](auto&& keep) noexcept {
    for_each_region([&](const Region& region) noexcept {
      keep(region.base, region.base + region.size.bytes());
    });
  };
  map_.narrow(platform_, limit, is_alone, each_region, each_mapping);
}

template <os::Platform P, CheckLevel kChecks>
auto Space<P, kChecks>::range_from(Address at) noexcept -> Range {
  LockGuard guard{lock_};
  Range best;
  for (Region* region = regions_.first(); region != nullptr; region = RegionList::next(region)) {
    const Address end = region->base + region->used.bytes();
    if (end > at && (best.to == 0 || end < best.to)) {
      best = {region->base > at ? region->base : at, end};
    }
  }
  return best;
}

}  // namespace allod::space

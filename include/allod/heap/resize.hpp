// realloc without copying, where that is possible.
#pragma once

#include "allod/heap/heap.hpp"

namespace allod::heap {

template <class Policy>
void* Heap<Policy>::resize_in_place(Domain& domain, void* address, std::size_t size) noexcept {
  space::PageMap& map = space_.map();
  const Address at = address_of(address);
  const space::Tag tag = map.tag_of(at);
  if (tag == space::kHugeTag) return resize_huge(address, size);
  if (!space::is_slab(tag)) return nullptr;
  const ClassIndex old_class = space::class_of(tag);
  if (size > Sizes::kMaxSize) return nullptr;
  const ClassIndex new_class = Sizes::of(size);
  if (new_class == old_class) return address;
  // Only the owner may change what its slab is, and only when the block is all
  // of it.
  if (!domain.owns(tag) || Sizes::shape_of(old_class).capacity != 1) {
    // A block that would get only a little smaller stays.
    const std::size_t old_size = Sizes::size_of(old_class);
    return size < old_size && size >= old_size - old_size / 4 ? address : nullptr;
  }
  if (Sizes::shape_of(new_class).capacity != 1) return nullptr;
  SlowPath slow{domain, gate_};
  Slab& slab = *slab::as_slab(map.span_of(at));
  const Slices slices{Sizes::shape_of(new_class).slices};
  if (slices > slab.size) {
    if (!space_.grow(&slab, slices)) return nullptr;
  } else {
    // Without metadata for the rest, the slab is larger than its block needs.
    space_.shrink(&slab, slices);
  }
  Bin& from = domain.bins[old_class];
  from.full.remove(&slab);
  --from.slab_count;
  slab.become(Sizes::shape_of(new_class), new_class);
  domain.bins[new_class].full.push_front(&slab);
  ++domain.bins[new_class].slab_count;
  set_slab_tags(slab, space::make_tag(domain.id(), new_class));
  maybe_purge();
  return address;
}

template <class Policy>
void* Heap<Policy>::resize_huge(void* address, std::size_t size) noexcept {
  space::Span* const span = space_.map().span_of(address_of(address));
  if (size > kMaxBlock) return nullptr;
  const Slices to = Slices::covering(size > 0 ? size : 1);
  if (size <= Sizes::kMaxSize) {
    // A much smaller block moves to where its size belongs.
    const Slices least{span->size.count - span->size.count / 4};
    return to <= span->size && to >= least ? address : nullptr;
  }
  if (to < span->size) {
    space_.shrink(span, to);
    maybe_purge();
  } else if (to > span->size && !space_.grow(span, to) && !space_.remap(span, to)) {
    return nullptr;
  }
  space_.map().set_tags(span->base, span->size, space::kInteriorTag);
  space_.map().set_tags(span->base, {1}, space::kHugeTag);
  return reinterpret_cast<void*>(span->base);
}

}  // namespace allod::heap

// realloc without copying, if possible.
#pragma once

#include "allod/heap/engine.hpp"

namespace allod::heap {

template <class Policy, class Above>
bool Engine<Policy, Above>::fits(const Front<Sizes>& front, const void* address,
                                 std::size_t size) const noexcept {
  const Address at = address_of(address);
  space::Tag tag;
  if (!space_.map().fast_tag_of(at, &tag)) return false;
  if (tag == space::kHugeTag && size >= kGrowable) {
    const space::Span& span = *space_.map().span_at(at);
    return span.base == at && span.size.just_covers(size);
  }
  // An empty front has the tag of foreign memory.
  if (tag == space::kForeignTag || !front.owns(tag) || size > Sizes::kMaxSize) return false;
  if (space::class_of(tag) != Sizes::of(size)) return false;
  return slab::as_slab(space_.map().span_at(at))->index_of(at) != Slab::kNoBlock;
}

template <class Policy, class Above>
void* Engine<Policy, Above>::resize_in_place(Domain* own, void* address,
                                             std::size_t size) noexcept {
  space::PageMap& map = space_.map();
  const Address at = address_of(address);
  const space::Tag tag = map.tag_of(at);
  if (tag == space::kHugeTag) return resize_huge(own, address, size, tag);
  if (space::is_heaps(tag)) return above().resize_in_heap(address, size);
  if (!space::is_slab(tag)) return nullptr;
  const ClassIndex old_class = space::class_of(tag);
  if (size > Sizes::kMaxSize) return nullptr;
  const ClassIndex new_class = Sizes::of(size);
  if (new_class == old_class) return address;
  if (is_interrupting()) return nullptr;
  // Only the owner may change its slab's class, and only if the slab is one block.
  if (own == nullptr || !own->owns(tag) || Sizes::shape_of(old_class).capacity != 1) {
    // A block that would become only a little smaller stays.
    const std::size_t old_size = Sizes::size_of(old_class);
    return size < old_size && size >= old_size - old_size / 4 ? address : nullptr;
  }
  if (Sizes::shape_of(new_class).capacity != 1) return nullptr;
  Domain& domain = *own;
  SlowPath slow{domain, gate_};
  Slab& slab = *slab::as_slab(map.span_of(at));
  if (!space_.unguard(slab)) return nullptr;
  const Slices slices{Sizes::shape_of(new_class).slices};
  if (slices > slab.size) {
    if (!grow(own, slab, slices)) return nullptr;
  } else {
    // Without metadata for the rest, the slab stays larger than its block needs.
    space_.shrink(&slab, slices);
  }
  Bin& from = domain.bins()[old_class];
  from.full.remove(&slab);
  --from.slab_count;
  slab.become(Sizes::shape_of(new_class), new_class);
  domain.bins()[new_class].full.push_front(&slab);
  ++domain.bins()[new_class].slab_count;
  set_slab_tags(slab, space::make_tag(domain.id(), new_class));
  maybe_purge();
  return address;
}

// A block that has grown will perhaps grow again. A span of its own can do so in place or by moving
// its pages, whatever its size.
template <class Policy, class Above>
void* Engine<Policy, Above>::allocate_growing(Domain* own, std::size_t size) noexcept {
  if (size < kGrowable || size > kMaxBlock || !usable_ || is_interrupting()) return nullptr;
  if (own != nullptr) {
    SlowPath slow{*own, gate_};
    put_aside(*own);
  }
  space::Span* const span = space_.allocate_growing(Slices::covering(size));
  return span == nullptr ? nullptr : make_huge(span, space::kHugeTag);
}

// A block that the domain keeps may lie behind the span.
template <class Policy, class Above>
bool Engine<Policy, Above>::grow(Domain* own, space::Span& span, Slices to) noexcept {
  if (space_.grow(&span, to)) return true;
  if (own == nullptr) return false;
  SlowPath slow{*own, gate_};
  if (own->kept.is_nothing()) return false;
  give_back_kept(own->kept);
  return space_.grow(&span, to);
}

template <class Policy, class Above>
void* Engine<Policy, Above>::resize_huge(Domain* own, void* address, std::size_t size,
                                         space::Tag tag) noexcept {
  space::Span* const span = space_.map().span_of(address_of(address));
  if (size > kMaxBlock) return nullptr;
  // A small block moves to its size class.
  if (size < kGrowable) return nullptr;
  const Slices to = Slices::covering(size);
  if (to == span->size) return address;
  if (is_interrupting()) return nullptr;
  if (to < span->size) {
    space_.shrink(span, to);
    maybe_purge();
  } else if (!grow(own, *span, to) && !space_.remap(span, to)) {
    return nullptr;
  }
  return make_huge(span, tag);
}

}  // namespace allod::heap

// Heaps in a buffer. A slab for each class would soon fill a small one, so slabs hold blocks of all
// sizes.
#pragma once

#include "allod/heaps/heap.hpp"

namespace allod::heaps {

// Larger blocks get slices of their own, as long as there are some.
inline constexpr std::size_t kMostMixed = kSliceBytes / 2;
// Slabs that are tried before another slice is taken.
inline constexpr int kMixedLooks = 16;

// In a turn on the heap, like everything here.
template <class Policy>
ALLOD_NOINLINE void* Heap<Policy>::take_from_buffer(HeapDomain& heap,
                                                    HeapRequest& request) noexcept {
  const bool fits = request.size <= kSliceBytes && request.alignment <= kSliceBytes;
  const ClassIndex c = request.alignment <= kSliceBytes
                           ? Sizes::of_aligned(request.size, request.alignment)
                           : kClasses;
  const bool has_slabs =
      c != kClasses && Slices{Sizes::shape_of(c).slices}.bytes() <= heap.largest_slab;
  if (!has_slabs && fits && request.size <= kMostMixed) return take_mixed(heap, request);
  const std::uint64_t refused = heap.figures.refused;
  void* const block = has_slabs ? take_class(heap, c, request) : take_huge(heap, request);
  if (block != nullptr || !fits || request.over_limit) return block;
  heap.figures.refused = refused;
  return take_mixed(heap, request);
}

template <class Policy>
void* Heap<Policy>::take_mixed(HeapDomain& heap, HeapRequest& request) noexcept {
  request.slow = true;
  if (++heap.operations >= kHeapLookInterval) {
    heap.operations = 0;
    if (!heap.inbox.empty()) collect_in_heap(heap, &request.doubled);
  }
  const std::uint32_t grains = slab::MixedSlab::grains_for(request.size);
  const std::size_t bytes = grains * slab::MixedSlab::kGrain;
  request.over_limit = !heap.has_room_for(bytes);
  void* const block = request.over_limit ? nullptr : find_run(heap, grains, request.alignment);
  if (block == nullptr) {
    ++heap.figures.refused;
    return nullptr;
  }
  heap.count_in(bytes);
  return block;
}

// Slabs with recent frees come first, slabs without room last.
template <class Policy>
void* Heap<Policy>::find_run(HeapDomain& heap, std::uint32_t grains,
                             std::size_t alignment) noexcept {
  for (int look = 0; look < kMixedLooks && !heap.mixed.empty(); ++look) {
    space::Span* const first = heap.mixed.first();
    void* const block = slab::as_mixed(*slab::as_slab(first)).take_run(grains, alignment);
    if (block != nullptr) return block;
    heap.mixed.remove(first);
    heap.mixed.push_back(first);
  }
  if (slab::MixedSlab* const slab = new_mixed_slab(heap)) return slab->take_run(grains, alignment);
  for (space::Span* s = heap.mixed.first(); s != nullptr; s = SpanList::next(s)) {
    void* const block = slab::as_mixed(*slab::as_slab(s)).take_run(grains, alignment);
    if (block != nullptr) return block;
  }
  return nullptr;
}

template <class Policy>
slab::MixedSlab* Heap<Policy>::new_mixed_slab(HeapDomain& heap) noexcept {
  space::Span* const span = space().allocate_described(
      {1}, space::Filling::sparse, slab::MixedSlab::descriptor_bytes(), heap.source);
  if (span == nullptr) return nullptr;
  auto& slab = slab::as_mixed(*slab::as_slab(span));
  slab.start(&heap, span->base, end_of(*span));
  add_mixed_slab(heap, slab);
  return &slab;
}

template <class Policy>
void Heap<Policy>::add_mixed_slab(HeapDomain& heap, slab::MixedSlab& slab) noexcept {
  space().map().set_tags(slab.base, {1}, space::make_tag(heap.id(), space::kMixedClass));
  heap.mixed.push_front(&slab);
  ++heap.figures.slabs;
  heap.figures.held += slab.usable_bytes();
}

template <class Policy>
void Heap<Policy>::release_mixed(HeapDomain& heap, slab::MixedSlab& slab, const void* address,
                                 HeapRelease& outcome) noexcept {
  const std::uint32_t at = slab.index_of(address_of(address));
  const std::uint32_t grains = at == Slab::kNoBlock ? 0 : slab.give_run(at);
  outcome.given = grains != 0;
  if (grains == 0) return;
  heap.count_out(grains * slab::MixedSlab::kGrain, 1);
  // The first slab serves the next allocation, and stays.
  if (heap.mixed.first() == &slab) return;
  heap.mixed.remove(&slab);
  heap.mixed.push_front(&slab);
  retire_if_empty(heap, slab);
}

template <class Policy>
void Heap<Policy>::collect_mixed(HeapDomain& heap, slab::MixedSlab& slab,
                                 const void** doubled) noexcept {
  slab.collect_runs(
      [&](std::uint32_t grains) noexcept { heap.count_out(grains * slab::MixedSlab::kGrain, 1); },
      [&](std::uint32_t at) noexcept { *doubled = slab.block_at(at); });
  if (heap.mixed.first() != &slab) retire_if_empty(heap, slab);
}

// Frees the slice for any use.
template <class Policy>
void Heap<Policy>::retire_if_empty(HeapDomain& heap, slab::MixedSlab& slab) noexcept {
  if (!slab.is_whole() || !slab.is_empty() || slab.is_announced()) return;
  heap.mixed.remove(&slab);
  --heap.figures.slabs;
  heap.figures.held -= slab.usable_bytes();
  slab.set_owner(nullptr);
  space().free(&slab);
}

}  // namespace allod::heaps

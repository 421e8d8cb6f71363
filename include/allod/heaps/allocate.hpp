// malloc in a first-class heap.
#pragma once

#include "allod/heaps/heap.hpp"

namespace allod::heaps {

template <class Policy>
void* Heap<Policy>::allocate_in(Domain* own, HeapDomain& heap, HeapRequest& request) noexcept {
  return serve(own, heap, nullptr, request);
}

template <class Policy>
void* Heap<Policy>::allocate_beside(Domain* own, const void* block, HeapRequest& request,
                                    bool* owned) noexcept {
  HeapDomain* const heap = heap_of(block);
  *owned = heap != nullptr;
  if (heap == nullptr) return nullptr;
  void* const result = serve(own, *heap, block, request);
  *owned = !request.moved;
  return result;
}

// The common case of allocate_in(): a small size, and no request in memory.
template <class Policy>
ALLOD_INLINE void* Heap<Policy>::allocate_at_once(HeapDomain& heap, std::size_t size) noexcept {
  if (__builtin_expect(size > HeapDomain::kQuickSize, 0)) return nullptr;
  const ClassIndex c = HeapDomain::quick_class_of(size);
  LeaningTurn turn{heap, gate()};
  if (__builtin_expect(!turn, 0)) return nullptr;
  check_in_use(heap);
  if (void* const newest = take_newest(heap, c)) return newest;
  Slab* const slab = heap.at_hand[c];
  if (__builtin_expect(slab == nullptr || slab->is_full(), 0)) return nullptr;
  if (__builtin_expect(++heap.operations >= kHeapLookInterval, 0)) return nullptr;
  const std::size_t bytes = HeapDomain::quick_bytes_of(c);
  if (!heap.count_in_below_ceiling(bytes)) {
    if (__builtin_expect(!heap.has_room_for(bytes), 0)) return nullptr;
    heap.count_in(bytes);
  }
  return slab->take_one_of_many();
}

// `beside`: null, or a block that the heap must own; otherwise `request.moved` is set.
template <class Policy>
void* Heap<Policy>::serve(Domain* own, HeapDomain& heap, const void* beside,
                          HeapRequest& request) noexcept {
  const auto attempt = [&]() noexcept -> void* {
    HeapTurn turn{heap, gate()};
    request.moved = beside != nullptr && !is_owned_by(heap, beside);
    if (request.moved) return nullptr;
    const bool hardened = heap.hardening != nullptr;
    return __builtin_expect(hardened, 0) ? take_hardened(heap, request) : take_from(heap, request);
  };
  void* block = attempt();
  if (__builtin_expect(request.found, 0)) tell_findings(heap);
  if (!request.slow) return block;
  if (block == nullptr && !request.over_limit && request.size <= kMaxBlock) {
    // The system refuses. A buffer is full, whatever other owners could give back.
    if (heap.source == nullptr || !heap.source->is_buffer()) {
      if (own != nullptr) {
        SlowPath slow{*own, gate()};
        give_up_stocks(*own);
      }
      give_back_kept_of(Keepers::all);
    }
    collect_heap(heap);
    block = attempt();
  }
  if (request.doubled != nullptr) report(MisuseKind::double_free, request.doubled);
  maybe_purge();
  return block;
}

// In a turn on the heap, like all functions that take or give blocks.
template <class Policy>
ALLOD_INLINE void* Heap<Policy>::take_from(HeapDomain& heap, HeapRequest& request) noexcept {
  if (__builtin_expect(heap.source != nullptr, 0) && heap.source->is_buffer()) {
    return take_from_buffer(heap, request);
  }
  const ClassIndex c = class_for(request);
  if (__builtin_expect(c == kClasses, 0)) return take_huge(heap, request);
  return take_class(heap, c, request);
}

// The request's class; kClasses if none is large enough.
template <class Policy>
ALLOD_INLINE ClassIndex Heap<Policy>::class_for(const HeapRequest& request) noexcept {
  if (__builtin_expect(request.alignment <= 8, 1)) {
    return __builtin_expect(request.size <= Sizes::kMaxSize, 1) ? Sizes::of(request.size)
                                                                : kClasses;
  }
  if (request.alignment > kSliceBytes) return kClasses;
  return Sizes::of_aligned(request.size, request.alignment);
}

template <class Policy>
ALLOD_INLINE void* Heap<Policy>::take_class(HeapDomain& heap, ClassIndex c,
                                            HeapRequest& request) noexcept {
  if (void* const newest = take_newest(heap, c)) return newest;
  Slab* const slab = at_hand(heap, c);
  return slab != nullptr ? take_at_hand(heap, *slab, request) : take_with_look(heap, c, request);
}

// Null if there is none, or the limit must be checked.
template <class Policy>
ALLOD_INLINE void* Heap<Policy>::take_newest(HeapDomain& heap, ClassIndex c) noexcept {
  if (c >= HeapDomain::kQuickClasses) return nullptr;
  void* const block = heap.newest[c];
  if (block == nullptr || !heap.count_in_below_ceiling(HeapDomain::quick_bytes_of(c))) {
    return nullptr;
  }
  heap.newest[c] = nullptr;
  return block;
}

// A slab of class `c` with a free block. Null if there is none, or it is time to look for remote
// frees.
template <class Policy>
ALLOD_INLINE Slab* Heap<Policy>::at_hand(HeapDomain& heap, ClassIndex c) noexcept {
  check_in_use(heap);
  Slab* const slab = first_with_room(heap, c);
  if (__builtin_expect(slab == nullptr, 0)) return nullptr;
  if (__builtin_expect(++heap.operations >= kHeapLookInterval, 0)) return nullptr;
  return __builtin_expect(heap.has_room_for(slab->block_bytes()), 1) ? slab : nullptr;
}

template <class Policy>
ALLOD_INLINE Slab* Heap<Policy>::first_with_room(HeapDomain& heap, ClassIndex c) noexcept {
  if (c < HeapDomain::kQuickClasses && heap.at_hand[c] != nullptr) {
    if (!heap.at_hand[c]->is_full()) return heap.at_hand[c];
    put_full_away(heap, *heap.at_hand[c]);
  }
  const Bin* const bin = heap.find_bin(c);
  return bin == nullptr ? nullptr : slab::as_slab(bin->partial.first());
}

template <class Policy>
ALLOD_INLINE void* Heap<Policy>::take_at_hand(HeapDomain& heap, Slab& slab,
                                              HeapRequest& request) noexcept {
  bool virgin;
  void* const block = slab.take_one(&virgin);
  request.zero = virgin && slab.zero;
  count_taken(heap, slab);
  return block;
}

template <class Policy>
ALLOD_INLINE void Heap<Policy>::count_taken(HeapDomain& heap, Slab& slab) noexcept {
  heap.count_in(slab.block_bytes());
  if (slab.is_full()) {
    put_full_away(heap, slab);
  } else if (slab.size_class() < HeapDomain::kQuickClasses) {
    heap.at_hand[slab.size_class()] = &slab;
  }
}

template <class Policy>
ALLOD_NOINLINE void Heap<Policy>::put_full_away(HeapDomain& heap, Slab& slab) noexcept {
  const ClassIndex c = slab.size_class();
  if (c < HeapDomain::kQuickClasses) heap.at_hand[c] = nullptr;
  Bin& bin = *heap.find_bin(c);
  bin.partial.remove(&slab);
  bin.full.push_front(&slab);
}

template <class Policy>
ALLOD_NOINLINE void* Heap<Policy>::take_with_look(HeapDomain& heap, ClassIndex c,
                                                  HeapRequest& request) noexcept {
  Slab* const slab = look_for_slab(heap, c, request);
  return slab == nullptr ? nullptr : take_at_hand(heap, *slab, request);
}

template <class Policy>
Slab* Heap<Policy>::look_for_slab(HeapDomain& heap, ClassIndex c, HeapRequest& request) noexcept {
  request.slow = true;
  heap.operations = 0;
  if (!heap.inbox.empty()) collect_in_heap(heap, &request.doubled);
  request.over_limit = !heap.has_room_for(Sizes::shape_of(c).block_bytes);
  Slab* const slab = request.over_limit ? nullptr : stock_bin(heap, c);
  if (slab == nullptr) ++heap.figures.refused;
  return slab;
}

// A slab of class `c` with a free block. Never an orphan: destroy_heap() would destroy its other
// blocks, and frees of them may be waiting in batches.
template <class Policy>
Slab* Heap<Policy>::stock_bin(HeapDomain& heap, ClassIndex c) noexcept {
  using Group = typename HeapDomain::BinGroup;
  Group*& group = heap.groups[c / HeapDomain::kBinsInGroup];
  if (group == nullptr) {
    void* const memory = space().allocate_metadata(sizeof(Group));
    if (memory == nullptr) return nullptr;
    group = new (memory) Group{};
  }
  if (Slab* const slab = first_with_room(heap, c)) return slab;
  Slab* const slab =
      fresh_slab(*heap.find_bin(c), c, &heap, heap.id(), heap.source, heap.hardening != nullptr);
  if (slab == nullptr) return nullptr;
  clear_fresh(heap, *slab);
  ++heap.figures.slabs;
  heap.figures.held += slab->size.bytes();
  return slab;
}

template <class Policy>
ALLOD_NOINLINE void* Heap<Policy>::take_huge(HeapDomain& heap, HeapRequest& request) noexcept {
  check_in_use(heap);
  request.slow = true;
  if (request.size > kMaxBlock || request.alignment > kMaxBlock) return nullptr;
  const Slices slices = Slices::covering(request.size > 0 ? request.size : 1);
  const std::size_t bytes = slices.bytes();
  if (!heap.inbox.empty()) collect_in_heap(heap, &request.doubled);
  request.over_limit = !heap.has_room_for(bytes);
  const Slices alignment{static_cast<std::uint32_t>(request.alignment >> kSliceShift)};
  space::Span* const span =
      request.over_limit
          ? nullptr
          : space().allocate(slices, alignment.count > 1 ? alignment : Slices{1}, heap.source);
  if (span == nullptr) {
    ++heap.figures.refused;
    return nullptr;
  }
  span->heap = &heap;
  heap.huge.push_front(span);
  space().map().set_tags(span->base, span->size, space::kInteriorTag);
  space().map().set_tags(span->base, {1}, space::make_tag(heap.id(), space::kHugeClass));
  request.zero = span->zero;
  ++heap.figures.huge_blocks;
  // It may be larger than requested if there was no metadata for the rest.
  heap.figures.held += span->size.bytes();
  heap.count_in(span->size.bytes());
  return reinterpret_cast<void*>(span->base);
}

template <class Policy>
ALLOD_INLINE bool Heap<Policy>::is_owned_by(const HeapDomain& heap,
                                            const void* address) const noexcept {
  return space::owner_of(space().map().tag_of(address_of(address))) == heap.id();
}

}  // namespace allod::heaps

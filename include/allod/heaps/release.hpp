// free and realloc in first-class heaps.
#pragma once

#include "allod/heaps/heap.hpp"

namespace allod::heaps {

// For the thread that the heap leans to. Reads the tag within the turn: a heap that another thread
// is deleting leans to no thread.
template <class Policy>
ALLOD_INLINE bool Heap<Policy>::release_at_once(HeapDomain& heap, void* address) noexcept {
  LeaningTurn turn{heap, gate()};
  if (__builtin_expect(!turn, 0)) return false;
  check_in_use(heap);
  space::Tag tag;
  space::Span* span;
  if (__builtin_expect(!space().map().fast_find(address_of(address), &tag, &span), 0)) return false;
  constexpr std::uint32_t kEnd = HeapDomain::kQuickClasses * space::kClassStride;
  if (__builtin_expect((tag ^ heap.tag) >= kEnd, 0)) return false;
  return release_small(heap, *slab::as_slab(span), address, turn);
}

// The block becomes the newest of its class if there is none.
template <class Policy>
ALLOD_INLINE bool Heap<Policy>::release_small(HeapDomain& heap, Slab& slab, void* address,
                                              LeaningTurn& turn) noexcept {
  if (__builtin_expect(!slab.has_in_use_in_slice(address), 0)) return false;
  void*& newest = heap.newest[slab.size_class()];
  if (newest == nullptr) {
    newest = address;
    heap.count_out(slab.block_bytes(), 1);
    return true;
  }
  if (__builtin_expect(newest == address, 0)) return false;
  turn.pass_on();
  release_behind_newest(heap, slab, address);
  return true;
}

// Frees a block in use, and ends the turn of release_at_once().
template <class Policy>
ALLOD_NOINLINE void Heap<Policy>::release_behind_newest(HeapDomain& heap, Slab& slab,
                                                        void* address) noexcept {
  const std::uint32_t free_before = slab.free_count();
  static_cast<void>(slab.give_one(address));
  heap.count_out(slab.block_bytes(), 1);
  if (&slab != heap.at_hand[slab.size_class()] && must_settle(slab, free_before)) {
    return settle_and_leave(heap, slab, free_before);
  }
  LeaningTurn::end_passed();
}

// Ends that turn as well.
template <class Policy>
ALLOD_NOINLINE void Heap<Policy>::settle_and_leave(HeapDomain& heap, Slab& slab,
                                                   std::uint32_t free_before) noexcept {
  const std::size_t held = heap.figures.held;
  settle_in_heap(heap, slab, free_before);
  const bool retired = heap.figures.held != held;
  LeaningTurn::end_passed();
  if (retired) maybe_purge();
}

template <class Policy>
void Heap<Policy>::release_in(Domain* own, HeapDomain& heap, void* address) noexcept {
  if (address == nullptr) return;
  const space::Tag tag = space().map().tag_of(address_of(address));
  if (__builtin_expect(space::owner_of(tag) != heap.id(), 0)) {
    Misuse misuse = describe(MisuseKind::wrong_heap, address);
    // A foreign or invalid address is reported as such.
    if (misuse.block != address) return release_detached(address);
    misuse.claimed_owner = heap.id();
    return Reporter::report(misuse);
  }
  if (__builtin_expect(space::class_of(tag) == space::kHugeClass, 0)) {
    return release_to_heap(own, tag, address);
  }
  HeapRelease outcome;
  {
    HeapTurn turn{heap, gate()};
    check_in_use(heap);
    release_in_turn(heap, address, outcome);
  }
  tell(heap, outcome, address);
}

// For a plain free, which does not wait for the heap: while another thread uses it, the block is
// marked, and collected later. It never joins a batch.
template <class Policy>
ALLOD_NOINLINE void Heap<Policy>::release_to_heap(Domain* own, space::Tag tag,
                                                  void* address) noexcept {
  // A signal handler that interrupts a slow path must not wait for a fork, which waits for that
  // path. Nor may it take a lock that the path may hold.
  const bool interrupts = own != nullptr && own->in_slow_path.load(std::memory_order_relaxed);
  if (__builtin_expect(interrupts, 0) || !release_small_at_once(tag, address)) {
    release_to_heap_in_turn(own, address, interrupts);
  }
}

// The caller has read `tag`, which names a heap. False, and no change, if it is no small block or
// the heap does not lean to the caller.
template <class Policy>
ALLOD_INLINE bool Heap<Policy>::release_small_at_once(space::Tag tag, void* address) noexcept {
  if (space::class_stride_of(tag) >= HeapDomain::kQuickClasses * space::kClassStride) return false;
  const space::PageMap& map = space().map();
  const std::size_t slice = map.slice_of(address_of(address));
  Slab& slab = *slab::as_slab(map.span_in(slice));
  auto* const heap = static_cast<HeapDomain*>(slab.owner());
  // See heap_of().
  if (__builtin_expect(!map.is_tagged(slice, tag), 0)) return false;
  LeaningTurn turn{*heap, gate()};
  if (__builtin_expect(!turn, 0)) return false;
  check_in_use(*heap);
  if (__builtin_expect(!map.is_tagged(slice, tag), 0)) return false;
  return release_small(*heap, slab, address, turn);
}

template <class Policy>
ALLOD_NOINLINE void Heap<Policy>::release_to_heap_in_turn(Domain* own, void* address,
                                                          bool interrupts) noexcept {
  space::Span* const span = space().map().span_of(address_of(address));
  if (__builtin_expect(span->home == nullptr, 0)) {
    if (span->base != address_of(address)) return report(MisuseKind::invalid_free, address);
    free_huge_of_heap(span, address);
    return maybe_purge();
  }
  HeapDomain* const heap = heap_of(address);
  if (heap != nullptr && !interrupts) {
    HeapRelease outcome;
    bool owned = false;
    const void* doubled = nullptr;
    {
      HeapTurn turn{*heap, gate(), HeapTurn::Wait::no};
      owned = turn && is_owned_by(*heap, address);
      if (owned) release_in_turn(*heap, address, outcome);
      if (owned && heap->has_many_marks()) collect_in_heap(*heap, &doubled);
    }
    if (doubled != nullptr) report(MisuseKind::double_free, doubled);
    if (owned) return tell(*heap, outcome, address);
    heap->marks.fetch_add(1, std::memory_order_relaxed);
  }
  mark_for_heap(own, *slab::as_slab(span), address);
}

template <class Policy>
void Heap<Policy>::mark_for_heap(Domain* own, Slab& slab, void* address) noexcept {
  const std::uint32_t index = slab.index_of(address_of(address));
  const bool is_block =
      index != Slab::kNoBlock && (!slab::is_mixed(slab) || slab::as_mixed(slab).is_start(index));
  if (!is_block) return report(MisuseKind::invalid_free, address);
  if (own == nullptr) return release_detached(address);
  SlowPath slow{*own, gate()};
  own->counters.remote_frees.add(1);
  own->counters.remote_batches.add(1);
  mark_remote(slab, index / kWordBits, bit(index % kWordBits));
}

// Frees an address in a slab of the heap.
template <class Policy>
ALLOD_INLINE void Heap<Policy>::release_in_turn(HeapDomain& heap, void* address,
                                                HeapRelease& outcome) noexcept {
  Slab& slab = *slab::as_slab(space().map().span_of(address_of(address)));
  if (__builtin_expect(slab::is_mixed(slab), 0)) {
    return release_mixed(heap, slab::as_mixed(slab), address, outcome);
  }
  if (__builtin_expect(heap.hardening != nullptr, 0)) {
    return release_hardened(heap, slab, address, outcome);
  }
  // A double free, which the slab then detects.
  if (__builtin_expect(is_newest(heap, slab, address), 0)) put_newest_back(heap);
  const std::uint32_t free_before = slab.free_count();
  outcome.given = slab.give_one(address);
  if (__builtin_expect(!outcome.given, 0)) return;
  heap.count_out(slab.block_bytes(), 1);
  const std::size_t held = heap.figures.held;
  if (must_settle(slab, free_before)) settle_in_heap(heap, slab, free_before);
  outcome.retired = heap.figures.held != held;
}

// Without a turn.
template <class Policy>
ALLOD_INLINE void Heap<Policy>::tell(HeapDomain& heap, const HeapRelease& outcome,
                                     const void* address) noexcept {
  if (__builtin_expect(outcome.found, 0)) tell_findings(heap);
  if (__builtin_expect(outcome.given && !outcome.retired, 1)) return;
  if (outcome.retired) return maybe_purge();
  const Slab& slab = *slab::as_slab(space().map().span_of(address_of(address)));
  const std::uint32_t index = slab.index_of(address_of(address));
  const bool is_block =
      index != Slab::kNoBlock && (!slab::is_mixed(slab) || slab.is_marked_free(index));
  report(is_block ? MisuseKind::double_free : MisuseKind::invalid_free, address);
}

template <class Policy>
void Heap<Policy>::free_huge_of_heap(space::Span* span, void* address) noexcept {
  auto& heap = *static_cast<HeapDomain*>(span->heap);
  HugeRelease outcome = free_huge_in_turn(heap, span, address, false);
  if (__builtin_expect(outcome == HugeRelease::damaged, 0)) {
    report_huge(*span);
    outcome = free_huge_in_turn(heap, span, address, true);
  }
  if (__builtin_expect(outcome == HugeRelease::gone, 0)) report(MisuseKind::double_free, address);
}

// The caller has read `span` before the turn. If the block has an overflow that is not `reported`,
// nothing changes.
template <class Policy>
HugeRelease Heap<Policy>::free_huge_in_turn(HeapDomain& heap, space::Span* span, void* address,
                                            bool reported) noexcept {
  const space::PageMap& map = space().map();
  HeapTurn turn{heap, gate()};
  const bool owned = is_owned_by(heap, address);
  // A deleted heap leaves its blocks to the space.
  const bool in_use = owned || map.tag_of(address_of(address)) == space::kHugeTag;
  if (!in_use || map.span_of(address_of(address)) != span) return HugeRelease::gone;
  if (owned) {
    if (__builtin_expect(heap.hardening != nullptr, 0)) {
      if (!reported && !is_huge_intact(heap, *span)) return HugeRelease::damaged;
      clear(*span, span->base, open_end_of(*span) - span->base);
    }
    const std::size_t bytes = span->size.bytes();
    heap.huge.remove(span);
    --heap.figures.huge_blocks;
    heap.figures.held -= bytes;
    heap.count_out(bytes, 1);
  }
  space().free(span);
  return HugeRelease::done;
}

template <class Policy>
ALLOD_INLINE bool Heap<Policy>::is_newest(const HeapDomain& heap, const Slab& slab,
                                          const void* address) noexcept {
  const ClassIndex c = slab.size_class();
  return c < HeapDomain::kQuickClasses && heap.newest[c] == address;
}

// Afterwards the bits of the slabs tell which blocks are in use.
template <class Policy>
void Heap<Policy>::put_newest_back(HeapDomain& heap) noexcept {
  for (void*& newest : heap.newest) {
    void* const block = newest;
    if (block == nullptr) continue;
    newest = nullptr;
    Slab& slab = *slab::as_slab(space().map().span_at(address_of(block)));
    const std::uint32_t free_before = slab.free_count();
    always_check(slab.give_one(block), "a block that was freed is free already");
    if (must_settle(slab, free_before)) settle_in_heap(heap, slab, free_before);
  }
}

template <class Policy>
void Heap<Policy>::settle_in_heap(HeapDomain& heap, Slab& slab,
                                  std::uint32_t free_before) noexcept {
  const ClassIndex c = slab.size_class();
  if (c < HeapDomain::kQuickClasses && heap.at_hand[c] == &slab) return;
  Bin& bin = *heap.find_bin(c);
  settle(bin, slab, free_before, [&]() noexcept { retire_from_heap(heap, bin, slab); });
}

template <class Policy>
void Heap<Policy>::retire_from_heap(HeapDomain& heap, Bin& bin, Slab& slab) noexcept {
  const ClassIndex c = slab.size_class();
  if (c < HeapDomain::kQuickClasses && heap.at_hand[c] == &slab) heap.at_hand[c] = nullptr;
  bin.partial.remove(&slab);
  --bin.slab_count;
  --heap.figures.slabs;
  heap.figures.held -= slab.size.bytes();
  slab.set_owner(nullptr);
  space().free(&slab);
}

// Sets `*doubled` to a block that was freed twice, if any.
template <class Policy>
void Heap<Policy>::collect_in_heap(HeapDomain& heap, const void** doubled) noexcept {
  heap.marks.store(0, std::memory_order_relaxed);
  // A remote free of the newest block is a double free, which its slab then detects.
  put_newest_back(heap);
  heap.inbox.take_all([&](Slab* slab) noexcept {
    // See collect_inbox().
    if (slab->owner() != &heap) return slab->announce();
    if (slab::is_mixed(*slab)) return collect_mixed(heap, slab::as_mixed(*slab), doubled);
    if (heap.hardening != nullptr) return collect_hardened(heap, *slab, doubled);
    const std::uint32_t free_before = slab->free_count();
    const std::uint32_t gained =
        slab->collect([&](std::uint32_t index) noexcept { *doubled = slab->block_at(index); });
    heap.count_out(std::size_t{gained} * slab->block_bytes(), gained);
    if (must_settle(*slab, free_before)) settle_in_heap(heap, *slab, free_before);
  });
}

template <class Policy>
void Heap<Policy>::give_up_empty(HeapDomain& heap) noexcept {
  heap.for_each_bin([&](Bin& bin) noexcept {
    for_each_slab(bin, [&](Slab& slab) noexcept {
      if (slab.is_empty() && !slab.is_announced()) retire_from_heap(heap, bin, slab);
    });
  });
  for (space::Span *s = heap.mixed.first(), *next = nullptr; s != nullptr; s = next) {
    next = SpanList::next(s);
    retire_if_empty(heap, slab::as_mixed(*slab::as_slab(s)));
  }
}

// --- realloc --------------------------------------------------------------------------

template <class Policy>
void* Heap<Policy>::resize_in_heap(void* address, std::size_t size) noexcept {
  const space::Tag tag = space().map().tag_of(address_of(address));
  const ClassIndex c = space::class_of(tag);
  // Hardened blocks move, so that old pointers are detected.
  if (const auto* const heap = heap_of(address); heap != nullptr && heap->hardening != nullptr) {
    return nullptr;
  }
  if (c == space::kMixedClass) {
    const std::size_t before = usable_size(address);
    return size <= before && size >= before - before / 4 ? address : nullptr;
  }
  if (c != space::kHugeClass) {
    if (size > Sizes::kMaxSize) return nullptr;
    // A block that would become only a little smaller stays.
    const std::size_t old_size = Sizes::size_of(c);
    const bool stays = size < old_size && size >= old_size - old_size / 4;
    return stays || Sizes::of(size) == c ? address : nullptr;
  }
  space::Span* const span = space().map().span_of(address_of(address));
  auto& heap = *static_cast<HeapDomain*>(span->heap);
  HeapTurn turn{heap, gate()};
  if (!is_owned_by(heap, address)) return resize_huge(nullptr, address, size, space::kHugeTag);
  const std::size_t before = span->size.bytes();
  if (size > before && !heap.has_room_for(align_up(size, kSliceBytes) - before)) return nullptr;
  // Within a turn, no slow path of the caller's domain may begin.
  void* const same = resize_huge(nullptr, address, size, tag);
  const std::size_t more = span->size.bytes() - before;  // may wrap around
  heap.figures.held += more;
  heap.figures.live += more;
  heap.raise_peak();
  return same;
}

}  // namespace allod::heaps

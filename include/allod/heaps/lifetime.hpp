// Starts and ends first-class heaps, and answers questions about them.
#pragma once

#include "allod/heaps/heap.hpp"

namespace allod::heaps {

inline constexpr const char* kGone = "a heap is used after it was deleted or destroyed";
// In a buffer of this many times the size of a class's slab, the class gets slabs of its own.
inline constexpr std::size_t kSlabsInBuffer = 512;

template <class Policy>
auto Heap<Policy>::create_heap(const char* name, const space::PageWishes& wishes, int* error,
                               bool hardened) noexcept -> HeapDomain* {
  *error = ENOMEM;
  HeapDomain* const heap = new_heap();
  if (heap == nullptr) return nullptr;
  bool opened = true;
  {
    HeapTurn turn{*heap, gate()};
    heap->restart_figures();
    heap->on_limit = nullptr;
    heap->was_deleted = heap->reports_leaks = false;
    heap->unseen = false;
    copy_name(*heap, name);
    heap->inbox.open();
    heap->active = true;
    heap->may_lean = true;
    heap->favour(gate().self());
    if (wishes.are_any()) opened = open_source(*heap, wishes, error);
    if (opened && hardened) opened = open_hardening(*heap);
    if (!opened) destroy_in_turn(*heap);
  }
  if (opened) return heap;
  pool_heap(*heap);
  return nullptr;
}

template <class Policy>
auto Heap<Policy>::new_heap() noexcept -> HeapDomain* {
  if (!is_usable()) return nullptr;
  LockGuard guard{registry_lock()};
  if (pooled_heaps_ > kKeptHeaps) {
    --pooled_heaps_;
    return heap_pool_.pop_front();
  }
  if (next_heap_id_ < space::kFirstHeapOwner) return nullptr;
  void* const memory = space().allocate_metadata(sizeof(HeapDomain));
  if (memory == nullptr) return nullptr;
  auto* const heap = new (memory) HeapDomain{next_heap_id_--};
  heaps_.push_back(heap);
  return heap;
}

template <class Policy>
bool Heap<Policy>::take_seat() noexcept {
  if (!is_usable() || own_seat<Gate>() != nullptr) return is_usable();
  LockGuard guard{registry_lock()};
  Seat* seat = free_seats_.pop_front();
  if (seat == nullptr) {
    void* const memory = space().allocate_metadata(sizeof(Seat));
    if (memory == nullptr) return false;
    seat = new (memory) Seat;
    seats_.push_back(seat);
  }
  Gate::own_word() = seat;
  return true;
}

// Heaps go on leaning to the seat, and to its next thread.
template <class Policy>
void Heap<Policy>::leave_seat() noexcept {
  Seat* const seat = own_seat<Gate>();
  Gate::own_word() = &nobodys_seat;
  if (seat == nullptr || seat == &nobodys_seat) return;
  LockGuard guard{registry_lock()};
  free_seats_.push_front(seat);
}

// With the registry's lock held.
template <class Policy>
bool Heap<Policy>::are_heaps_quiet() noexcept {
  bool quiet = true;
  for (HeapDomain* heap = heaps_.first(); heap != nullptr; heap = HeapList::next(heap)) {
    if (!heap->is_quiet()) quiet = false;
  }
  return quiet;
}

template <class Policy>
void Heap<Policy>::after_fork_in_child(Domain* own, const Cache* cache) noexcept {
  for (HeapDomain* heap = heaps_.first(); heap != nullptr; heap = HeapList::next(heap)) {
    heap->HeapTurns<Lock>::reset_in_child();
    if (heap->hardening != nullptr) heap->hardening->random.reseed();
  }
  keep_own_seat();
  Engine::after_fork_in_child(own, cache);
}

// In the child of a fork: frees the seats of other threads.
template <class Policy>
void Heap<Policy>::keep_own_seat() noexcept {
  while (free_seats_.pop_front() != nullptr) {
  }
  for (Seat* seat = seats_.first(); seat != nullptr; seat = SeatList::next(seat)) {
    if (seat == own_seat<Gate>()) continue;
    seat->on.store(nullptr, std::memory_order_relaxed);
    free_seats_.push_front(seat);
  }
}

template <class Policy>
void Heap<Policy>::copy_name(HeapDomain& heap, const char* name) noexcept {
  std::size_t length = 0;
  while (length + 1 < HeapDomain::kNameBytes && name != nullptr && name[length] != '\0') {
    heap.name[length] = name[length];
    ++length;
  }
  // Does not cut a UTF-8 character in two.
  while (length > 0 && (name[length] & 0xc0) == 0x80) --length;
  heap.name[length] = '\0';
}

template <class Policy>
bool Heap<Policy>::open_source(HeapDomain& heap, const space::PageWishes& wishes,
                               int* error) noexcept {
  heap.source = space().open_source(wishes, error);
  if (heap.source == nullptr) return false;
  if (!heap.source->is_buffer()) return true;
  const auto take_end = [&](space::Span* span, Address from, Address to) noexcept {
    auto& slab = slab::as_mixed(*slab::as_slab(span));
    slab.start(&heap, from, to);
    add_mixed_slab(heap, slab);
  };
  *error = ENOMEM;
  if (!space().take_ends(*heap.source, slab::MixedSlab::descriptor_bytes(), take_end)) return false;
  heap.largest_slab = heap.source->bytes / kSlabsInBuffer;
  // All of it may belong to another heap.
  *error = EBUSY;
  return heap.source->bytes != 0;
}

template <class Policy>
ALLOD_INLINE void Heap<Policy>::check_in_use(const HeapDomain& heap) const noexcept {
  check<kChecks>(heap.active, kGone);
}

// In a turn on the heap, which has no more blocks.
template <class Policy>
void Heap<Policy>::close_heap(HeapDomain& heap) noexcept {
  for (auto*& group : heap.groups) {
    if (group == nullptr) continue;
    space().metadata().free(group, sizeof *group);
    group = nullptr;
  }
  if (heap.source != nullptr) {
    space().close_source(heap.source);
    heap.source = nullptr;
  }
  close_hardening(heap);
  for (Slab*& slab : heap.at_hand) slab = nullptr;
  for (void*& block : heap.newest) block = nullptr;
  heap.restart_figures();
  heap.active = false;
  heap.lean_to_nobody();
}

// From here on, the object may be reused.
template <class Policy>
void Heap<Policy>::pool_heap(HeapDomain& heap) noexcept {
  LockGuard guard{registry_lock()};
  ++pooled_heaps_;
  kKeptHeaps == 0 ? heap_pool_.push_front(&heap) : heap_pool_.push_back(&heap);
}

template <class Policy>
bool Heap<Policy>::delete_heap(HeapDomain& heap) noexcept {
  const void* doubled = nullptr;
  bool stays = false;
  settle_hardening(heap);
  {
    HeapTurn turn{heap, gate()};
    always_check(heap.active, kGone);
    end_all_waiting(heap);
    if (heap.source != nullptr) {
      collect_in_heap(heap, &doubled);
      stays = heap.figures.live_blocks != 0;
      if (!stays) destroy_in_turn(heap);
    } else {
      abandon_slabs(heap, &doubled);
      close_heap(heap);
    }
    heap.was_deleted = !stays;
  }
  if (!stays) pool_heap(heap);
  maybe_purge();
  if (doubled != nullptr) report(MisuseKind::double_free, doubled);
  return !stays;
}

// Its slabs become orphans.
template <class Policy>
void Heap<Policy>::abandon_slabs(HeapDomain& heap, const void** doubled) noexcept {
  put_newest_back(heap);
  LockGuard guard{registry_lock()};
  disown_slabs(heap);
  heap.for_each_bin([&](Bin& bin) noexcept {
    for (SpanList* list : {&bin.partial, &bin.full}) {
      while (space::Span* const span = list->pop_front()) abandon(*slab::as_slab(span), doubled);
    }
  });
  while (space::Span* const span = heap.huge.pop_front()) {
    // From now on an ordinary block, without guard.
    static_cast<void>(space().unguard(*span));
    space().map().set_tags(span->base, {1}, space::kHugeTag);
  }
}

// No thread frees blocks of this heap now or later, and no free of one waits in a batch: so all
// marks for its slabs have been made.
template <class Policy>
void Heap<Policy>::destroy_heap(HeapDomain& heap) noexcept {
  settle_hardening(heap);
  {
    HeapTurn turn{heap, gate()};
    always_check(heap.active, kGone);
    destroy_in_turn(heap);
  }
  pool_heap(heap);
  maybe_purge();
}

template <class Policy>
void Heap<Policy>::destroy_in_turn(HeapDomain& heap) noexcept {
  // A source that ends as a whole need not take back spans.
  if (heap.source != nullptr) heap.source->closing = true;
  for (space::Span* s = heap.mixed.first(); s != nullptr; s = SpanList::next(s)) {
    slab::as_slab(s)->set_owner(nullptr);
  }
  disown_slabs(heap);
  const auto free_all = [&](SpanList& slabs) noexcept {
    while (space::Span* const span = slabs.pop_front()) {
      Slab& slab = *slab::as_slab(span);
      const bool is_empty = slab.is_empty();
      slab::is_mixed(slab) ? slab::as_mixed(slab).forget() : slab.forget_remote();
      is_empty ? space().free(span) : free_in_use(heap, span);
    }
  };
  heap.for_each_bin([&](Bin& bin) noexcept {
    free_all(bin.partial);
    free_all(bin.full);
  });
  free_all(heap.mixed);
  while (space::Span* const span = heap.huge.pop_front()) free_in_use(heap, span);
  close_heap(heap);
}

// Frees a span with blocks in use, after erasing it in a hardened heap. A source takes its memory
// along.
template <class Policy>
void Heap<Policy>::free_in_use(HeapDomain& heap, space::Span* span) noexcept {
  if (heap.hardening != nullptr && heap.source == nullptr) {
    clear(*span, span->base, open_end_of(*span) - span->base);
  }
  space().free(span, 0, Space::Contents::users);
}

template <class Policy>
std::size_t Heap<Policy>::collect_heap(HeapDomain& heap) noexcept {
  const void* doubled = nullptr;
  std::size_t bytes;
  {
    HeapTurn turn{heap, gate()};
    check_in_use(heap);
    const std::size_t held = heap.figures.held;
    collect_in_heap(heap, &doubled);
    end_all_waiting(heap);
    give_up_empty(heap);
    bytes = held - heap.figures.held;
  }
  if (heap.hardening != nullptr) tell_findings(heap);
  if (doubled != nullptr) report(MisuseKind::double_free, doubled);
  maybe_purge();
  return bytes;
}

template <class Policy>
HeapFigures Heap<Policy>::figures_of(HeapDomain& heap) noexcept {
  const void* doubled = nullptr;
  HeapFigures figures;
  {
    HeapTurn turn{heap, gate()};
    collect_in_heap(heap, &doubled);
    figures = heap.figures;
  }
  if (heap.hardening != nullptr) tell_findings(heap);
  if (doubled != nullptr) report(MisuseKind::double_free, doubled);
  return figures;
}

template <class Policy>
void Heap<Policy>::limit_heap(HeapDomain& heap, std::size_t bytes) noexcept {
  HeapTurn turn{heap, gate()};
  check_in_use(heap);
  heap.set_limit(bytes);
}

template <class Policy>
bool Heap<Policy>::contains(HeapDomain& heap, const void* address) noexcept {
  const Address at = address_of(address);
  if (space::owner_of(space().map().tag_of(at)) != heap.id()) return false;
  HeapTurn turn{heap, gate()};
  if (!is_owned_by(heap, address)) return false;
  space::Span* const span = space().map().span_of(at);
  if (span->home == nullptr) return span->base == at;
  const Slab& slab = *slab::as_slab(span);
  const std::uint32_t index = slab.index_of(at);
  if (index == Slab::kNoBlock) return false;
  if (slab::is_mixed(slab) && !slab::as_mixed(slab).is_start(index)) return false;
  if (heap.hardening != nullptr && heap.hardening->waiting.holds(address)) return false;
  if (is_newest(heap, slab, address)) return false;
  return (slab.used_in_word(index / kWordBits) & bit(index % kWordBits)) != 0;
}

// --- walking -----------------------------------------------------------------------

// Notes the spans in a turn, and then visits each without one. Skips spans that were freed
// meanwhile.
template <class Policy>
template <class Visit>
bool Heap<Policy>::walk_heap(HeapDomain& heap, Visit&& visit) noexcept {
  std::size_t room = 0;
  for (;;) {
    const std::size_t bytes = align_up(room * sizeof(Address) + 1, space().platform().page_size());
    auto* const bases = static_cast<Address*>(space().platform().map(bytes));
    if (bases == nullptr) return false;
    room = bytes / sizeof(Address);
    std::size_t count;
    {
      HeapTurn turn{heap, gate()};
      check_in_use(heap);
      count = heap.figures.slabs + heap.figures.huge_blocks;
      if (count <= room) snapshot(heap, bases);
    }
    for (std::size_t i = 0; count <= room && i < count; ++i) {
      if (!walk_span(heap, bases[i], visit)) break;
    }
    space().platform().unmap(bases, bytes);
    if (count <= room) return true;
    room = count + count / 8;
  }
}

template <class Policy>
void Heap<Policy>::snapshot(HeapDomain& heap, Address* bases) noexcept {
  heap.for_each_bin([&](Bin& bin) noexcept {
    for_each_slab(bin, [&](const Slab& slab) noexcept { *bases++ = slab.base; });
  });
  for (const SpanList* list : {&heap.mixed, &heap.huge}) {
    for (space::Span* s = list->first(); s != nullptr; s = SpanList::next(s)) *bases++ = s->base;
  }
}

// False if the visitor stops the walk.
template <class Policy>
template <class Visit>
bool Heap<Policy>::walk_span(HeapDomain& heap, Address base, Visit&& visit) noexcept {
  constexpr std::uint32_t kMostWords = words_for(kSliceBytes / 8);
  Word used[kMostWords];
  std::uint32_t words = 1;
  std::size_t step;
  const slab::MixedSlab* mixed = nullptr;
  bool is_sealed = false;
  {
    HeapTurn turn{heap, gate()};
    put_newest_back(heap);
    if (!is_owned_by(heap, reinterpret_cast<void*>(base))) return true;
    space::Span* const span = space().map().span_of(base);
    if (span->base != base) return true;
    used[0] = 1;
    step = span->size.bytes();
    if (span->home != nullptr) {
      const Slab& slab = *slab::as_slab(span);
      step = slab.block_bytes();
      words = words_for(slab.capacity());
      always_check(words <= kMostWords, "a slab has more blocks than a slice has of the smallest");
      if (slab::is_mixed(slab)) mixed = &slab::as_mixed(slab);
      for (std::uint32_t word = 0; word < words; ++word) {
        used[word] = mixed != nullptr ? mixed->live_in_word(word) : slab.used_in_word(word);
      }
      is_sealed = heap.hardening != nullptr;
      if (is_sealed) hide_waiting(heap, slab, used);
    } else if (heap.hardening != nullptr) {
      step = static_cast<std::size_t>(span->block_state);
    }
  }
  for (std::uint32_t word = 0; word < words; ++word) {
    for (Word rest = used[word]; rest != 0; rest &= rest - 1) {
      const std::uint32_t index = word * kWordBits + lowest_bit(rest);
      void* const block = reinterpret_cast<void*>(base + index * step);
      std::size_t bytes = mixed != nullptr ? mixed->run_at(index) * step : step;
      if (is_sealed && !read_sealed(heap, block, step, &bytes)) continue;
      if (!visit(block, bytes)) return false;
    }
  }
  return true;
}

}  // namespace allod::heaps

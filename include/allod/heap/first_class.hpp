// First-class heaps: how they come and go, and what they can tell.
#pragma once

#include "allod/heap/heap.hpp"

namespace allod::heap {

inline constexpr const char* kGone = "a heap is used after it was deleted or destroyed";

template <class Policy>
auto Heap<Policy>::create_heap(const char* name) noexcept -> HeapDomain* {
  if (!usable_) return nullptr;
  HeapDomain* heap;
  {
    LockGuard guard{registry_lock_};
    heap = heap_pool_.pop_front();
    if (heap == nullptr) {
      if (next_heap_id_ < space::kFirstHeapOwner) return nullptr;
      void* const memory = space_.allocate_metadata(sizeof(HeapDomain));
      if (memory == nullptr) return nullptr;
      heap = new (memory) HeapDomain{next_heap_id_--};
      heaps_.push_back(heap);
    }
  }
  HeapTurn turn{*heap, gate_};
  heap->figures = {};
  heap->on_limit = nullptr;
  std::size_t length = 0;
  while (length + 1 < HeapDomain::kNameBytes && name != nullptr && name[length] != '\0') {
    heap->name[length] = name[length];
    ++length;
  }
  // A character of UTF-8 is not cut in two.
  while (length > 0 && (name[length] & 0xc0) == 0x80) --length;
  heap->name[length] = '\0';
  heap->inbox.open();
  heap->active = true;
  return heap;
}

template <class Policy>
ALLOD_INLINE void Heap<Policy>::check_in_use(const HeapDomain& heap) const noexcept {
  check<kChecks>(heap.active, kGone);
}

// In a turn on the heap, which has no blocks any more.
template <class Policy>
void Heap<Policy>::close_heap(HeapDomain& heap) noexcept {
  for (auto*& group : heap.groups) {
    if (group == nullptr) continue;
    space_.metadata().free(group, sizeof *group);
    group = nullptr;
  }
  heap.figures = {};
  heap.active = false;
}

// The next one may use it at once.
template <class Policy>
void Heap<Policy>::pool_heap(HeapDomain& heap) noexcept {
  LockGuard guard{registry_lock_};
  heap_pool_.push_front(&heap);
}

template <class Policy>
void Heap<Policy>::delete_heap(HeapDomain& heap) noexcept {
  const void* doubled = nullptr;
  {
    HeapTurn turn{heap, gate_};
    always_check(heap.active, kGone);
    LockGuard guard{registry_lock_};
    disown_slabs(heap);
    heap.for_each_bin([&](Bin& bin) noexcept {
      for (SpanList* list : {&bin.partial, &bin.full}) {
        while (space::Span* const span = list->pop_front()) abandon(*slab::as_slab(span), &doubled);
      }
    });
    while (space::Span* const span = heap.huge.pop_front()) {
      space_.map().set_tags(span->base, {1}, space::kHugeTag);
    }
    close_heap(heap);
  }
  pool_heap(heap);
  maybe_purge();
  if (doubled != nullptr) report(MisuseKind::double_free, doubled);
}

// Nobody else frees blocks of this heap now or later, and no free of one waits in a
// batch, so that marks for its slabs are there already or never come.
template <class Policy>
void Heap<Policy>::destroy_heap(HeapDomain& heap) noexcept {
  {
    HeapTurn turn{heap, gate_};
    always_check(heap.active, kGone);
    disown_slabs(heap);
    heap.for_each_bin([&](Bin& bin) noexcept {
      for (SpanList* list : {&bin.partial, &bin.full}) {
        while (space::Span* const span = list->pop_front()) {
          slab::as_slab(span)->forget_remote();
          space_.free(span);
        }
      }
    });
    while (space::Span* const span = heap.huge.pop_front()) space_.free(span);
    close_heap(heap);
  }
  pool_heap(heap);
  maybe_purge();
}

template <class Policy>
std::size_t Heap<Policy>::collect_heap(HeapDomain& heap) noexcept {
  const void* doubled = nullptr;
  std::size_t bytes;
  {
    HeapTurn turn{heap, gate_};
    check_in_use(heap);
    const std::size_t held = heap.figures.held;
    collect_in_heap(heap, &doubled);
    give_up_empty(heap);
    bytes = held - heap.figures.held;
  }
  if (doubled != nullptr) report(MisuseKind::double_free, doubled);
  maybe_purge();
  return bytes;
}

template <class Policy>
HeapFigures Heap<Policy>::figures_of(HeapDomain& heap) noexcept {
  const void* doubled = nullptr;
  HeapFigures figures;
  {
    HeapTurn turn{heap, gate_};
    collect_in_heap(heap, &doubled);
    figures = heap.figures;
  }
  if (doubled != nullptr) report(MisuseKind::double_free, doubled);
  return figures;
}

template <class Policy>
void Heap<Policy>::limit_heap(HeapDomain& heap, std::size_t bytes) noexcept {
  HeapTurn turn{heap, gate_};
  check_in_use(heap);
  heap.figures.limit = bytes;
}

template <class Policy>
bool Heap<Policy>::contains(HeapDomain& heap, const void* address) noexcept {
  const Address at = address_of(address);
  if (space::owner_of(space_.map().tag_of(at)) != heap.id()) return false;
  HeapTurn turn{heap, gate_};
  if (!is_owned_by(heap, address)) return false;
  space::Span* const span = space_.map().span_of(at);
  if (span->home == nullptr) return span->base == at;
  const Slab& slab = *slab::as_slab(span);
  const std::uint32_t index = slab.index_of(at);
  if (index == Slab::kNoBlock) return false;
  return (slab.used_in_word(index / kWordBits) & bit(index % kWordBits)) != 0;
}

// --- walking -----------------------------------------------------------------------

// The spans are noted first, under the lock, and then visited one by one without it.
// Those that are gone by then are left out.
template <class Policy>
template <class Visit>
bool Heap<Policy>::walk_heap(HeapDomain& heap, Visit&& visit) noexcept {
  std::size_t room = 0;
  for (;;) {
    const std::size_t bytes = align_up(room * sizeof(Address) + 1, space_.platform().page_size());
    auto* const bases = static_cast<Address*>(space_.platform().map(bytes));
    if (bases == nullptr) return false;
    room = bytes / sizeof(Address);
    std::size_t count;
    {
      HeapTurn turn{heap, gate_};
      check_in_use(heap);
      count = heap.figures.slabs + heap.figures.huge_blocks;
      if (count <= room) snapshot(heap, bases);
    }
    for (std::size_t i = 0; count <= room && i < count; ++i) {
      if (!walk_span(heap, bases[i], visit)) break;
    }
    space_.platform().unmap(bases, bytes);
    if (count <= room) return true;
    room = count + count / 8;
  }
}

template <class Policy>
void Heap<Policy>::snapshot(HeapDomain& heap, Address* bases) noexcept {
  heap.for_each_bin([&](Bin& bin) noexcept {
    for_each_slab(bin, [&](const Slab& slab) noexcept { *bases++ = slab.base; });
  });
  for (space::Span* s = heap.huge.first(); s != nullptr; s = SpanList::next(s)) *bases++ = s->base;
}

// False when the visitor wants no more.
template <class Policy>
template <class Visit>
bool Heap<Policy>::walk_span(HeapDomain& heap, Address base, Visit&& visit) noexcept {
  constexpr std::uint32_t kMostWords = words_for(kSliceBytes / 8);
  Word used[kMostWords];
  std::uint32_t words = 1;
  std::size_t step;
  {
    HeapTurn turn{heap, gate_};
    if (!is_owned_by(heap, reinterpret_cast<void*>(base))) return true;
    space::Span* const span = space_.map().span_of(base);
    if (span->base != base) return true;
    used[0] = 1;
    step = span->size.bytes();
    if (span->home != nullptr) {
      const Slab& slab = *slab::as_slab(span);
      step = slab.block_bytes();
      words = words_for(slab.capacity());
      always_check(words <= kMostWords, "a slab has more blocks than a slice has of the smallest");
      for (std::uint32_t word = 0; word < words; ++word) used[word] = slab.used_in_word(word);
    }
  }
  for (std::uint32_t word = 0; word < words; ++word) {
    for (Word rest = used[word]; rest != 0; rest &= rest - 1) {
      const std::size_t index = std::size_t{word} * kWordBits + lowest_bit(rest);
      if (!visit(reinterpret_cast<void*>(base + index * step), step)) return false;
    }
  }
  return true;
}

}  // namespace allod::heap

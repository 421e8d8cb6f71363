// Slow paths of threads, with or without domains of their own.
#pragma once

#include "allod/thread/process_heap.hpp"

namespace allod::thread {

template <class Policy>
void* ProcessHeap<Policy>::refill_processor(ClassIndex c, bool* zero) noexcept {
  if (void* const block = processors_.pop(c)) return block;
  if (must_not_wait()) return nullptr;
  const Inside inside;
  if (inside.is_first()) {
    if (__builtin_expect(processors_.is_outside(), 0)) enter_processors();
    if (void* const block = processors_.refill(heap_, shared_, c, zero)) return block;
  }
  return in_turn(inside,
                 [&](Domain& domain) noexcept { return heap_.allocate_class(domain, c, zero); });
}

template <class Policy>
void* ProcessHeap<Policy>::refill(Domain* own, ClassIndex c, bool* zero) noexcept {
  if (own != nullptr) return heap_.allocate_class(*own, c, zero);
  if (must_not_wait()) return nullptr;
  const Inside inside;
  Cache* const cache = Own::cache();
  if (cache != nullptr && inside.is_first()) {
    count_cached(*cache, c);
    return heap_.allocate_cached(*cache, c, zero);
  }
  return in_turn(inside,
                 [&](Domain& domain) noexcept { return heap_.allocate_class(domain, c, zero); });
}

template <class Policy>
void ProcessHeap<Policy>::release_shared(void* block) noexcept {
  const space::Tag tag = heap_.space().map().tag_of(address_of(block));
  if (shares_processor() && processors_.push(tag, block)) return;
  if (must_not_wait()) return heap_.release_interrupting(block);
  const Inside inside;
  if (__builtin_expect(processors_.is_outside(), 0) && inside.is_first()) enter_processors();
  if (Cache* const cache = Own::cache(); cache != nullptr && cache->owns(tag)) {
    // The fast path has tried this, unless the page map is a window.
    if (cache->push(tag, block)) return;
    if (inside.is_first()) {
      count_cached(*cache, space::class_of(tag));
      return heap_.release_cached(*cache, space::class_of(tag), block);
    }
  }
  if (space::is_heaps(tag)) return heap_.release_to_heap(nullptr, tag, block);
  if (!space::is_slab(tag)) return heap_.release_detached(block);
  if (Domain* const owner = shared_owner(block)) {
    // To its owner at once, if no other thread has a turn there.
    Turn turn{*owner, heap_.gate(), Turn::Wait::no};
    if (turn && is_shared(*owner)) {
      heap_.release(*owner, block);
      if (shares_processor()) processors_.unload(heap_, *owner, space::class_of(tag));
      return;
    }
  }
  const auto release = [&](Domain& domain) noexcept {
    heap_.release(domain, block);
    return block;
  };
  if (in_turn(inside, release) == nullptr) heap_.release_detached(block);
}

template <class Policy>
void* ProcessHeap<Policy>::resize_in_place(void* block, std::size_t size) noexcept {
  if (__builtin_expect(Sampler::may_know(), 0)) return resize_counted(block, size);
  if (Domain* const own = own_domain()) return heap_.resize_in_place(own, block, size);
  if (must_not_wait()) return nullptr;
  if (void* const same = heap_.resize_in_place(nullptr, block, size)) return same;
  // Only large blocks are slabs of their own, which their owner can resize.
  Domain* const owner = size < heap::kLargeBlock ? nullptr : shared_owner(block);
  if (owner == nullptr) return nullptr;
  const Inside inside;
  Turn turn{*owner, heap_.gate(), inside.may_wait()};
  return turn && is_shared(*owner) ? heap_.resize_in_place(owner, block, size) : nullptr;
}

template <class Policy>
void ProcessHeap<Policy>::collect() noexcept {
  if (must_not_wait()) return;
  const Inside inside;
  Cache* const cache = Own::cache();
  if (cache != nullptr && inside.is_first()) heap_.empty_cache(*cache);
  if (inside.is_first()) processors_.empty_all(heap_, inside.may_wait());
  if (Domain* const own = own_domain()) heap_.collect(*own);
}

template <class Policy>
std::size_t ProcessHeap<Policy>::trim() noexcept {
  ensure_started();
  if (must_not_wait()) return 0;
  const Inside inside;
  Cache* const cache = Own::cache();
  if (cache != nullptr && inside.is_first()) heap_.empty_cache(*cache);
  if (inside.is_first()) processors_.empty_all(heap_, inside.may_wait());
  if (Domain* const own = own_domain()) heap_.give_up(*own);
  shared_.for_each([&](Domain& domain) noexcept {
    Turn turn{domain, heap_.gate(), inside.may_wait()};
    if (turn) heap_.give_up(domain);
  });
  if (inside.is_first()) heap_.collect_for_others();
  heap_.give_up_kept();
  // Without a turn, as it waits for other threads to leave their slow paths.
  const std::size_t within = inside.is_first() ? heap_.purge_slabs() : 0;
  return within + heap_.space().purge_free();
}

}  // namespace allod::thread

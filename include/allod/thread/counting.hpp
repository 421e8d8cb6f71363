// Counts and samples the allocations and frees of a heap's threads.
//
// Samples are points on the line of all allocated bytes; the block around a point is the sampled
// one. Points drawn separately for each class of each thread are together as random as those on one
// line. So a magazine is filled up to the class's next point, and the fast path meets the sample by
// an empty magazine.
#pragma once

#include "allod/thread/process_heap.hpp"

namespace allod::thread {

template <class Policy>
ALLOD_NOINLINE void* ProcessHeap<Policy>::allocate_counted(ClassIndex c, bool* zero,
                                                           std::size_t size,
                                                           std::size_t alignment) noexcept {
  Front& front = *AtHand::now;
  if (front.kind == heap::FrontKind::domain && front.counts != nullptr &&
      front.period == Sampler::period()) {
    if (void* const block = front.reuse_all(c)) return block;
  }
  return refill_counted(c, zero, size, alignment);
}

template <class Policy>
ALLOD_NOINLINE void* ProcessHeap<Policy>::refill_counted(ClassIndex c, bool* zero, std::size_t size,
                                                         std::size_t alignment) noexcept {
  Domain* const own = domain_now();
  Front& front = *AtHand::now;
  const std::size_t bytes = Sizes::size_of(c);
  heap::ClassCount* const counts = counts_of(front);
  if (counts == nullptr) {
    elsewhere_[c].allocated.fetch_add(1, std::memory_order_relaxed);
    if (Sampler::is_due(bytes)) {
      if (void* const block = Sampler::allocate(size, alignment, bytes, zero)) return block;
    }
    return refill(own, c, zero);
  }
  heap::ClassCount& count = counts[c];
  count.settle();
  if (count.until == 0) {
    count.until = blocks_to_sample(bytes);
    count.worth = heap_.worth_reuse(c);
  }
  if (count.until == 1) {
    count.until = blocks_to_sample(bytes);
    if (void* const block = Sampler::allocate(size, alignment, bytes, zero)) {
      count.allocated.add(1);
      return block;
    }
  }
  // This block, and as many behind it, come before the sample.
  const std::uint64_t behind = count.until > 1 ? count.until - 2 : 0;
  const std::uint32_t most = behind < ~0U ? static_cast<std::uint32_t>(behind) : ~0U;
  heap::Magazine& magazine = front.magazines[c];
  void* block = nullptr;
  if (magazine.count() == 0 && heap_.can_reuse(front, c)) {
    front.reuse_freed(c, most < ~0U ? most + 1 : most);
    block = magazine.pop();
  }
  if (block == nullptr) block = refill(own, c, zero);
  if (block == nullptr) return nullptr;
  // Blocks beyond the sample are freed.
  while (magazine.count() > most) {
    void* const beyond = magazine.pop();
    if (!front.freed[c].push(beyond)) {
      own != nullptr ? heap_.release(*own, beyond) : release_shared(beyond);
    }
    count.freed.add(-std::uint64_t{1});
  }
  count.filled = magazine.count() + 1;
  return block;
}

template <class Policy>
void ProcessHeap<Policy>::count_span(void* block, std::size_t size) noexcept {
  if (heap::ClassCount* const counts = counts_of(*AtHand::now)) {
    counts[Sizes::kCount].allocated.add(1);
  } else {
    elsewhere_[Sizes::kCount].allocated.fetch_add(1, std::memory_order_relaxed);
  }
  const std::size_t bytes = heap_.usable_size(block);
  if (Sampler::is_due(bytes)) Sampler::note(block, size, bytes);
}

// The distance to the next sample in blocks of `bytes`, at least 1.
template <class Policy>
std::uint64_t ProcessHeap<Policy>::blocks_to_sample(std::size_t bytes) noexcept {
  return (Sampler::draw(bytes) - 1) / bytes + 1;
}

// The counts of a front, reset with each period; null for a thread without magazines.
template <class Policy>
heap::ClassCount* ProcessHeap<Policy>::counts_of(Front& front) noexcept {
  if (!front.has_magazines()) return nullptr;
  if (__builtin_expect(front.counts == nullptr, 0)) {
    front.counts = static_cast<heap::ClassCount*>(
        heap_.space().allocate_metadata((Sizes::kCount + 1) * sizeof(heap::ClassCount)));
    if (front.counts == nullptr) return nullptr;
    front.period = 0;
  }
  if (__builtin_expect(front.period != Sampler::period(), 0)) {
    front.period = Sampler::period();
    for (ClassIndex c = 0; c <= Sizes::kCount; ++c) {
      front.counts[c].filled = 0;
      front.counts[c].until = 0;
    }
    front.count(true);
  }
  return front.counts;
}

// False if the sampler frees the block, or has freed it.
template <class Policy>
ALLOD_NOINLINE bool ProcessHeap<Policy>::forget_sample(void* block) noexcept {
  const space::Tag tag = heap_.space().map().tag_of(address_of(block));
  const bool is_sample = Sampler::is_sample(tag);
  if (is_sample && !Sampler::forget(block)) return false;
  if (Sampler::is_on() && !AtHand::now->owns(tag)) count_freed(tag);
  if (!is_sample || !space::is_heaps(tag)) return true;
  Sampler::give_back(tag, block);
  return false;
}

// For a block that no magazine has taken.
template <class Policy>
void ProcessHeap<Policy>::count_freed(space::Tag tag) noexcept {
  ClassIndex c = Sizes::kCount;
  if (space::is_slab(tag)) {
    c = space::class_of(tag);
  } else if (tag != space::kHugeTag) {
    return;
  }
  if (heap::ClassCount* const counts = counts_of(*AtHand::now)) {
    counts[c].freed.add(1);
  } else {
    elsewhere_[c].freed.fetch_add(1, std::memory_order_relaxed);
  }
}

template <class Policy>
void ProcessHeap<Policy>::changed_span(void* block, std::size_t size) noexcept {
  if (Sampler::is_on()) count_span(block, size);
}

// For samples, a block that grows is a new allocation.
template <class Policy>
void* ProcessHeap<Policy>::resize_counted(void* block, std::size_t size) noexcept {
  const space::Tag tag = heap_.space().map().tag_of(address_of(block));
  // Without a domain, only blocks that are spans can be resized.
  void* const same = heap_.resize_in_place(nullptr, block, size);
  if (same != nullptr && tag == space::kHugeTag) {
    // The sampler knows a moved block by its old address.
    if (!Sampler::is_busy()) static_cast<void>(Sampler::forget(block));
    changed_span(same, size);
  }
  return same;
}

// For a thread that gets a front.
template <class Policy>
void ProcessHeap<Policy>::count_from_now(Front& front) noexcept {
  if (front.counts != nullptr) {
    for (ClassIndex c = 0; c <= Sizes::kCount; ++c) front.counts[c].clear();
  }
  front.count(Sampler::is_on());
  // Another thread may be switching sampling.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  front.count(Sampler::is_on());
}

// For a thread that leaves its front.
template <class Policy>
void ProcessHeap<Policy>::keep_counts(Front& front) noexcept {
  if (front.counts == nullptr || !front.has_magazines()) return;
  for (ClassIndex c = 0; c <= Sizes::kCount; ++c) {
    const Total total = total_of(front, c);
    elsewhere_[c].allocated.fetch_add(total.allocated, std::memory_order_relaxed);
    elsewhere_[c].freed.fetch_add(total.freed, std::memory_order_relaxed);
  }
}

template <class Policy>
auto ProcessHeap<Policy>::total_of(const Front& front, ClassIndex c) noexcept -> Total {
  if (front.counts == nullptr) return {};
  const heap::ClassCount& count = front.counts[c];
  const std::uint64_t filled = count.filled;
  if (c == Sizes::kCount) return {count.allocated.value(), count.freed.value()};
  const std::uint64_t left = front.magazines[c].count();
  return {count.allocated.value() + (filled > left ? filled - left : 0),
          count.freed.value() + front.freed[c].count()};
}

template <class Policy>
void ProcessHeap<Policy>::switch_counting(bool on) noexcept {
  ensure_started();
  look_at_short_cut();
  {
    LockGuard guard{heap_.registry_lock()};
    heap_.for_each_domain([&](Domain& domain) noexcept {
      if (domain.state == heap::DomainState::active) domain.count(on);
      Heap::for_each_cache(domain, [&](Cache& cache) noexcept { cache.count(on); });
    });
  }
  if (on) collect();
}

}  // namespace allod::thread

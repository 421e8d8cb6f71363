// Starts a heap, gives threads fronts and takes them back, and handles forks.
#pragma once

#include "allod/thread/process_heap.hpp"

namespace allod::thread {

template <class Policy>
void ProcessHeap<Policy>::start_once() noexcept {
  std::uint32_t expected = kAsleep;
  if (phase_.compare_exchange_strong(expected, kStarting, std::memory_order_acquire)) {
    const heap::HeapOptions options = Policy::options();
    heap_.start(options);
    shared_.start(heap_);
    if (options.caches != heap::Caches::thread) processors_.start(heap_);
    look_at_short_cut();
    if (options.caches == heap::Caches::processor && processors_.is_on()) places_.forbid();
    places_.set(heap_.processors());
    phase_.store(kStarted, std::memory_order_release);
    Policy::Platform::futex_wake(&phase_, kEverybody);
    // After the others may go on: an interposed pthread_key_create may allocate.
    make_key();
    if (places_.are_forbidden()) return;
    // Programs with one thread have a domain from the start.
    if (places_.take(1) && !become_owner()) places_.give_back();
    return;
  }
  while (phase_.load(std::memory_order_acquire) != kStarted) {
    Policy::Platform::futex_wait(&phase_, kStarting);
  }
}

template <class Policy>
ALLOD_HOT void ProcessHeap<Policy>::make_key() noexcept {
  if (has_key()) return;
  has_key_.store(end_.watch(&unbind), std::memory_order_release);
}

template <class Policy>
void ProcessHeap<Policy>::advance_to(std::int32_t done) noexcept {
  ensure_started();
  const Inside inside;
  if (Own::is_gone_or_guest() || Own::is_away()) return;
  if (done < kBeforeCache || !inside.is_first()) return;
  const auto rounds = rounds_ + static_cast<std::uint32_t>(done / kBeforeDomain);
  if (done >= kBeforeDomain && has_key() && places_.take(rounds)) {
    if (become_owner()) return;
    places_.give_back();
  }
  // Counting needs a front for each thread.
  if (processors_.are_open() && !Sampler::is_on()) {
    // A place may become free later.
    if (done >= kBeforeDomain) {
      operations_ = 1 - kBeforeDomain;
      rounds_ = rounds;
      heap_.empty_resting_if_due();
    }
    return;
  }
  if (!has_key()) return;
  Cache* const cache = Own::cache();
  const bool has_moved = cache != nullptr && heap_.space().node() != cache->home.node;
  if (AtHand::now == &AtHand::nobody || has_moved) move_cache(cache);
}

// To a cache over the shared domain of its processor. `left`: the one that it has, or null.
template <class Policy>
void ProcessHeap<Policy>::move_cache(Cache* left) noexcept {
  Domain* const home = shared_.near(heap_);
  if (home == nullptr || (left != nullptr && home == &left->home)) return;
  Cache* const cache = heap_.attach_cache(*home);
  if (cache == nullptr) return;
  if (left != nullptr) keep_counts(*left);
  bind(cache);
  if (left != nullptr) heap_.detach_cache(*left);
}

// A thread that stays on another memory node than that of its domain gets another domain, whose
// record, slabs and kept blocks are there. Those of the old one stay for threads of its node.
template <class Policy>
void ProcessHeap<Policy>::follow(Domain& own) noexcept {
  if (__builtin_expect(heap_.space().node() == own.node, 1)) {
    own.away = 0;
    return;
  }
  if (!is_worth_leaving(own) || is_interrupted() || heap_.gate().is_closed()) return;
  const Inside inside;
  Domain* const next = heap_.attach();
  if (next == nullptr) return;
  keep_counts(own);
  bind(next);
  heap_.detach(own);
}

// A thread may be moved back soon. To leave costs a step for each slab, so the thread has first
// taken as many slow paths.
template <class Policy>
bool ProcessHeap<Policy>::is_worth_leaving(Domain& own) noexcept {
  constexpr std::uint32_t kBetweenLooks = 32;
  if (++own.away % kBetweenLooks != 0) return false;
  std::uint32_t slabs = 0;
  own.for_each_bin([&](const heap::Bin& bin) noexcept { slabs += bin.slab_count; });
  return own.away >= slabs;
}

template <class Policy>
bool ProcessHeap<Policy>::become_owner() noexcept {
  Cache* const cache = Own::cache();
  Domain* const domain = heap_.attach();
  if (domain == nullptr) return false;
  Domain* const shared = cache != nullptr ? &cache->home : shared_.made_near();
  if (cache != nullptr) {
    keep_counts(*cache);
    heap_.detach_cache(*cache);
  }
  bind(domain);
  if (shared == nullptr || shared_.are_few()) return true;
  // The thread has allocated from a shared domain, mostly its processor's, and will not any more.
  // If its slabs are few, they become orphans, which this thread or others adopt.
  Turn turn{*shared, heap_.gate(), Turn::Wait::no};
  if (turn && is_shared(*shared)) heap_.pass_on(*shared);
  return true;
}

// Sets unbind to be called at the end of the thread, after its thread-local destructors. If libc
// allocates here, it finds the thread's new front.
template <class Policy>
void ProcessHeap<Policy>::bind(Front* front) noexcept {
  count_from_now(*front);
  Own::bind(front);
  if (has_key()) end_.expect(front);
}

// The kernel writes to the memory of a thread that has entered, so unbind must be called at the end
// of the thread: musl unmaps the stack of a detached thread, on which its variables lie, before
// that is gone. Also in a signal handler, unless it interrupted a slow path.
template <class Policy>
void ProcessHeap<Policy>::enter_processors() noexcept {
  if (AtHand::now != &AtHand::nobody || Own::is_away() || !has_key()) return;
  if (end_.expect(AtHand::now)) processors_.enter();
}

template <class Policy>
void ProcessHeap<Policy>::unbind(void*) noexcept {
  const Inside inside;
  heap_.leave_seat();
  keep_counts(*AtHand::now);
  if (Cache* const cache = Own::cache()) {
    Own::leave();
    heap_.detach_cache(*cache);
  } else if (Domain* const domain = Own::domain()) {
    Own::leave();
    heap_.detach(*domain);
    places_.give_back();
  } else {
    Own::leave();
  }
  processors_.leave();
}

template <class Policy>
void ProcessHeap<Policy>::take_first_seat() noexcept {
  ensure_started();
  if (Own::is_marked()) Own::look_who_is_here();
  if (Own::is_gone_or_guest()) return;
  if (Own::is_away() || !has_key() || Inside::is_anybody()) return;
  const bool is_taken = [] {
    const Inside inside;
    return heap_.take_seat();
  }();
  if (is_taken && AtHand::now == &AtHand::nobody) end_.expect(AtHand::now);
}

template <class Policy>
void ProcessHeap<Policy>::before_fork() noexcept {
  // A child with a copy of the memory is no guest, unless this process is one.
  if (Own::is_marked()) Own::look_who_is_here();
  heap_.before_fork(Own::bound_domain());
  processors_.before_fork();
}

template <class Policy>
void ProcessHeap<Policy>::after_fork_in_parent() noexcept {
  processors_.after_fork_in_parent();
  heap_.after_fork_in_parent();
}

template <class Policy>
void ProcessHeap<Policy>::after_fork_in_child() noexcept {
  Domain* const own = Own::bound_domain();
  heap_.after_fork_in_child(own, Own::cache());
  processors_.after_fork_in_child();
  if (own != nullptr) own->thread = heap_.space().platform().thread_id();
  places_.reset_in_child(own != nullptr ? 1 : 0);
}

}  // namespace allod::thread

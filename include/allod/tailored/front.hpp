// The magazines in front of a tailored heap, and which of them a thread uses.
#pragma once

#include <pthread.h>

#include "allod/heap/magazine.hpp"
#include "allod/tailored/core.hpp"

namespace allod::tailored {

template <class Sizes>
struct Front {
  static constexpr std::uint32_t kMagazines = Sizes::kCount > 0 ? Sizes::kCount : 1;

  // A magazine has no cells before its first use, nor while tools are told about each block: it is
  // empty and full then.
  void open(ClassIndex c) noexcept {
    void** const bottom = cells + Sizes::kCellOffsets[c];
    magazines[c] = {bottom, bottom, bottom + Sizes::kShapes[c].capacity};
  }

  heap::Magazine magazines[kMagazines] = {};
  void* cells[Sizes::kCells > 0 ? Sizes::kCells : 1] = {};
  Front* next_idle = nullptr;
};

// The fronts that threads have over the thread-caching heaps of one type. What a thread used last
// is at hand; the others are found in its list.
//
// Heap has: id, a number that no two heaps of the process share, 0 before its first use;
// begin_front(), a front or null, and end_front(front).
template <class Heap, class Front>
class ThreadFronts {
 public:
  // Null when the heap is not the one that the thread used last.
  [[nodiscard]] static ALLOD_INLINE Front* at_hand(const Heap& heap) noexcept {
    if (__builtin_expect(last_.id != heap.id.load(std::memory_order_relaxed), 0)) return nullptr;
    Front* const front = last_.front;
    // Spares the caller a test of its own.
    if (front == nullptr) __builtin_unreachable();
    return front;
  }
  // Null when the calling thread has none.
  [[nodiscard]] static Front* find(const Heap& heap) noexcept {
    const std::uint64_t id = heap.id.load(std::memory_order_relaxed);
    for (Link* link = links_; link != nullptr && id != 0; link = link->next) {
      // No other thread sets the id of a link that is this thread's.
      if (link->id == id) return remember(*link);
    }
    return nullptr;
  }
  // Makes one where there is none. Null when there is no memory.
  [[nodiscard]] static ALLOD_NOINLINE Front* bind(Heap& heap) noexcept {
    if (Front* const front = find(heap)) return front;
    LockGuard guard{lock_};
    if (!has_key_) has_key_ = pthread_key_create(&key_, &end_thread) == 0;
    Link* const link = has_key_ ? unused_link() : nullptr;
    Front* const front = link == nullptr ? nullptr : heap.begin_front();
    if (front == nullptr) return nullptr;
    if (heap.id.load(std::memory_order_relaxed) == 0) {
      heap.id.store(++next_id_, std::memory_order_relaxed);
    }
    link->id = heap.id.load(std::memory_order_relaxed);
    link->front = front;
    link->heap = &heap;
    pthread_setspecific(key_, links_);
    return remember(*link);
  }
  // The heap goes, or begins anew: nobody uses it just now, and all fronts of it are gone.
  static void forget(Heap& heap) noexcept {
    LockGuard guard{lock_};
    for (Link* link = all_; link != nullptr; link = link->next_of_all) {
      if (link->heap == &heap) link->heap = nullptr;
    }
    heap.id.store(0, std::memory_order_relaxed);
  }

  static void lock_for_fork() noexcept { lock_.lock_for_fork(); }
  static void unlock_in_parent() noexcept { lock_.unlock_in_parent(); }
  // What other threads had at hand is lost to the child.
  static void reset_in_child() noexcept { lock_.reset_in_child(); }

 private:
  struct Link {
    Link* next;         // of the same thread, or unused
    Link* next_of_all;  // of all that were ever made
    Heap* heap;         // null: the link can serve another heap
    std::uint64_t id;
    Front* front;
  };
  struct Last {
    std::uint64_t id = ~std::uint64_t{0};
    Front* front = nullptr;
  };

  static Front* remember(const Link& link) noexcept {
    last_ = {link.id, link.front};
    return link.front;
  }
  // Of the calling thread, with the lock held.
  [[nodiscard]] static Link* unused_link() noexcept {
    for (Link* link = links_; link != nullptr; link = link->next) {
      if (link->heap == nullptr) return link;
    }
    if (pool_ == nullptr) {
      constexpr std::size_t kBytes = kSliceBytes;
      os::Linux system;
      auto* const links = static_cast<Link*>(system.map(kBytes));
      if (links == nullptr) return nullptr;
      for (std::size_t i = 0; i < kBytes / sizeof(Link); ++i) {
        links[i] = {pool_, all_, nullptr, 0, nullptr};
        pool_ = all_ = links + i;
      }
    }
    Link* const link = pool_;
    pool_ = link->next;
    link->next = links_;
    links_ = link;
    return link;
  }
  // Called by libc for a thread that ends.
  static void end_thread(void*) noexcept {
    LockGuard guard{lock_};
    last_ = {};
    while (Link* const link = links_) {
      links_ = link->next;
      if (link->heap != nullptr) link->heap->end_front(*link->front);
      *link = {pool_, link->next_of_all, nullptr, 0, nullptr};
      pool_ = link;
    }
  }

  // One load reaches them, and the loader never has to allocate for them.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Last last_;
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Link* links_ = nullptr;
  static inline constinit FutexLock lock_;
  static inline constinit Link* all_ = nullptr;
  static inline constinit Link* pool_ = nullptr;
  static inline constinit std::uint64_t next_id_ = 0;
  static inline constinit pthread_key_t key_ = 0;
  static inline constinit bool has_key_ = false;
};

}  // namespace allod::tailored

// The magazines of a tailored heap, and the fronts of threads.
#pragma once

#include <pthread.h>

#include "allod/heap/magazine.hpp"
#include "allod/tailored/core.hpp"

namespace allod::tailored {

template <class Sizes>
struct Front {
  static constexpr std::uint32_t kMagazines = Sizes::kCount > 0 ? Sizes::kCount : 1;

  // A magazine has no cells before its first use, and none while tools are told about each block:
  // it is both empty and full then.
  void open(ClassIndex c) noexcept {
    void** const bottom = cells + Sizes::kCellOffsets[c];
    magazines[c] = {bottom, bottom, bottom + Sizes::kShapes[c].capacity};
  }

  heap::Magazine magazines[kMagazines] = {};
  void* cells[Sizes::kCells > 0 ? Sizes::kCells : 1] = {};
  Front* next_idle = nullptr;
};

// The fronts of threads over the thread-caching heaps of one type. The last one used is at hand;
// the others are in the thread's list.
//
// Heap has: id, unique in the process, 0 before its first use; begin_front(), a front or null;
// end_front(front).
template <class Heap, class Front>
class ThreadFronts {
 public:
  // Null if the thread has last used another heap.
  [[nodiscard]] static ALLOD_INLINE Front* at_hand(const Heap& heap) noexcept {
    if (__builtin_expect(last_.id != heap.id.load(std::memory_order_relaxed), 0)) return nullptr;
    Front* const front = last_.front;
    // Spares the caller a test.
    if (front == nullptr) __builtin_unreachable();
    return front;
  }
  // Null if the calling thread has none.
  [[nodiscard]] static Front* find(const Heap& heap) noexcept {
    const std::uint64_t id = heap.id.load(std::memory_order_relaxed);
    for (Link* link = links_; link != nullptr && id != 0; link = link->next) {
      // Only this thread sets the ids of its links.
      if (link->id == id) return remember(*link);
    }
    return nullptr;
  }
  // Makes a front if there is none. Null without memory.
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
  // Before the heap ends or is reset, when no thread uses it and all its fronts have ended.
  static void forget(Heap& heap) noexcept {
    LockGuard guard{lock_};
    for (Link* link = all_; link != nullptr; link = link->next_of_all) {
      if (link->heap == &heap) link->heap = nullptr;
    }
    heap.id.store(0, std::memory_order_relaxed);
  }

  static void lock_for_fork() noexcept { lock_.lock_for_fork(); }
  static void unlock_in_parent() noexcept { lock_.unlock_in_parent(); }
  // The fronts of other threads are lost to the child.
  static void reset_in_child() noexcept { lock_.reset_in_child(); }

 private:
  struct Link {
    Link* next;         // of the same thread, or unused
    Link* next_of_all;  // of all links ever made
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
  // For the calling thread, with the lock held.
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
  // Called by libc when a thread ends.
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

  // One load reaches these, and the loader need not allocate for them.
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

// The calling thread's front, and whether it is at hand.
#pragma once

#include "allod/heap/domain.hpp"

namespace allod::thread {

// All functions are about the calling thread, and safe in signal handlers.
template <class Heap>
class OwnFront {
 public:
  using Domain = typename Heap::Domain;
  using Cache = typename Heap::Cache;
  using AtHand = typename Domain::AtHand;
  using Front = typename AtHand::FrontOfSizes;

  // Its domain, or null.
  [[nodiscard]] static ALLOD_INLINE Domain* domain() noexcept {
    Front* const front = AtHand::now;
    return front->kind == heap::FrontKind::domain ? static_cast<Domain*>(front) : nullptr;
  }
  // Its cache, or null.
  [[nodiscard]] static ALLOD_INLINE Cache* cache() noexcept {
    Front* const front = AtHand::now;
    return front->kind == heap::FrontKind::cache ? static_cast<Cache*>(front) : nullptr;
  }
  // Its domain, at hand or not; or null.
  [[nodiscard]] static Domain* bound_domain() noexcept {
    Front* const front = bound_;
    return front->kind == heap::FrontKind::domain ? static_cast<Domain*>(front) : nullptr;
  }
  // Whether the caller is a signal handler that interrupted its thread in a slow path of its
  // domain.
  [[nodiscard]] static bool is_away() noexcept { return AtHand::now != bound_; }
  // Whether the thread can get no front: it seems to have ended, or may be a guest.
  [[nodiscard]] static bool is_gone_or_guest() noexcept {
    return AtHand::now == &AtHand::gone || AtHand::now == &AtHand::guest;
  }

  static void bind(Front* front) noexcept { AtHand::now = bound_ = front; }
  static void leave() noexcept { bind(&AtHand::gone); }

  // The thread, which has no front, may become a guest; see ProcessHeap::expect_guest.
  static void mark_as_guest() noexcept {
    AtHand::guest.kind = heap::FrontKind::guest;
    Front* const before = AtHand::now;
    host_front_ = before;
    if (bound_ == before) bound_ = &AtHand::guest;
    AtHand::now = &AtHand::guest;
  }
  [[nodiscard]] static ALLOD_INLINE bool is_marked() noexcept {
    return __builtin_expect(AtHand::now == &AtHand::guest, 0);
  }
  // For a marked thread: removes the mark if it runs in its own process and not as a guest.
  static ALLOD_COLD void look_who_is_here() noexcept {
    using Guest = typename Heap::Platform::Guest;
    if (Guest::own_id() != Guest::host()) return;
    if (bound_ == &AtHand::guest) bound_ = host_front_;
    AtHand::now = host_front_;
  }

 private:
  // Its front, at hand or not.
  ALLOD_THREAD_LOCAL(Front*, bound_, &AtHand::nobody);
  // For a marked thread: its front at hand before the mark.
  ALLOD_THREAD_LOCAL(Front*, host_front_, nullptr);
};

// Marks a thread that may hold the lock of a shared domain. A signal handler that interrupts it
// must not wait for the lock, nor use the thread's cache.
template <class Turn>
class InsideOf {
 public:
  // Whether the calling thread is marked.
  [[nodiscard]] static bool is_anybody() noexcept { return inside_; }

  InsideOf() noexcept : is_first_{!inside_} {
    inside_ = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~InsideOf() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (is_first_) inside_ = false;
  }
  InsideOf(const InsideOf&) = delete;
  InsideOf& operator=(const InsideOf&) = delete;

  [[nodiscard]] bool is_first() const noexcept { return is_first_; }
  [[nodiscard]] typename Turn::Wait may_wait() const noexcept {
    return is_first_ ? Turn::Wait::yes : Turn::Wait::no;
  }

 private:
  bool is_first_;
  ALLOD_THREAD_LOCAL(bool, inside_, false);
};

}  // namespace allod::thread

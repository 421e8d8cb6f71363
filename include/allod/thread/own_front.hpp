// What the calling thread has of its own, and whether it has that at hand.
#pragma once

#include "allod/heap/domain.hpp"
#include "allod/os/linux/guest.hpp"

namespace allod::thread {

// All functions are of the calling thread, and safe in signal handlers.
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
  // Its domain, also when it does not have it at hand; or null.
  [[nodiscard]] static Domain* bound_domain() noexcept {
    return bound_->kind == heap::FrontKind::domain ? static_cast<Domain*>(bound_) : nullptr;
  }
  // Is the caller a signal handler that has interrupted its thread in a slow path of its domain?
  [[nodiscard]] static bool is_away() noexcept { return AtHand::now != bound_; }
  // Can it come to something? Not when it has ended as far as we know, nor where it is a guest.
  [[nodiscard]] static bool is_gone_or_guest() noexcept {
    return AtHand::now == &AtHand::gone || AtHand::now == &AtHand::guest;
  }

  static void bind(Front* front) noexcept { AtHand::now = bound_ = front; }
  static void leave() noexcept { bind(&AtHand::gone); }

  // The thread, which has nothing of its own, may become a guest; see ProcessHeap::expect_guest.
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
  // Of a thread that is marked: is it in the process that it has made? If not, the mark goes.
  static ALLOD_COLD void look_who_is_here() noexcept {
    if (os::LinuxGuest::own_id() != os::LinuxGuest::host()) return;
    if (bound_ == &AtHand::guest) bound_ = host_front_;
    AtHand::now = host_front_;
  }

 private:
  // Its own, also when it does not have it at hand; that of nobody.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Front* bound_ =
      &AtHand::nobody;
  // Of a thread that is marked: what it has had at hand.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Front* host_front_ =
      nullptr;
};

// Marks a thread that may hold the lock of a shared domain. A signal handler that
// interrupts it there must not wait for it, and leaves its cache alone.
template <class Turn>
class InsideOf {
 public:
  // Is the calling thread marked?
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
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local bool inside_ = false;
};

}  // namespace allod::thread

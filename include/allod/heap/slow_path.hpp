// Slow paths, and a gate by which a fork keeps threads out of them.
//
// A fork copies the pages of a process one after the other while other threads write, so the child
// sees no single instant. All state that slow paths change, slabs and lists, must therefore be at
// rest: the forking thread closes a gate, and waits until every domain has left its slow path. Fast
// paths go on. They change only magazines, which the child does not trust.
#pragma once

#include "allod/os/platform.hpp"

namespace allod::heap {

template <os::Platform P>
class ForkGate {
 public:
  constexpr ForkGate() noexcept = default;

  // If the system can make all threads pass a barrier, slow paths need none.
  void start(P& platform) noexcept {
    platform_ = &platform;
    fence_needed_ = !platform.start_barriers();
  }
  [[nodiscard]] bool has_barrier() const noexcept { return !fence_needed_; }
  // Every thread passes a memory barrier. Only with has_barrier().
  void barrier() noexcept { platform_->barrier(); }
  void yield() noexcept { platform_->yield(); }
  static void sleep_us(std::uint64_t microseconds) noexcept {
    std::atomic<std::uint32_t> never{0};
    P::futex_wait_us(&never, 0, microseconds);
  }

  // A thread that finds the gate open sees all writes made while it was closed.
  [[nodiscard]] ALLOD_INLINE bool is_closed() const noexcept {
    return !holds<std::memory_order_acquire>(closed_, 0U);
  }
  // Identifies the calling thread.
  [[nodiscard]] static void* self() noexcept { return P::self(); }
  // A word of the calling thread, null at first.
  [[nodiscard]] static ALLOD_INLINE void*& own_word() noexcept { return P::own_word(); }
  // Whether the caller is the thread that closed the gate, and so runs alone.
  [[nodiscard]] ALLOD_INLINE bool lets_pass() const noexcept {
    return __builtin_expect(is_closed(), 0) && forker_.load(std::memory_order_relaxed) == P::self();
  }
  ALLOD_INLINE void order() const noexcept {
    if (__builtin_expect(fence_needed_, 0)) std::atomic_thread_fence(std::memory_order_seq_cst);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  // Waits for the gate to open, and returns true. Returns false at once in the thread that closed
  // it.
  [[nodiscard]] ALLOD_COLD bool holds_back() noexcept {
    if (forker_.load(std::memory_order_relaxed) == P::self()) return false;
    somebody_waits_.store(true, std::memory_order_relaxed);
    P::futex_wait(&closed_, 1);
    return true;
  }

  // One thread at a time: the caller holds a lock for this.
  void close(P& platform) noexcept {
    forker_.store(P::self(), std::memory_order_relaxed);
    closed_.store(1);
    if (fence_needed_) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    } else {
      platform.barrier();
    }
  }
  // Returns whether a thread was kept waiting.
  bool open() noexcept {
    forker_.store(nullptr, std::memory_order_relaxed);
    closed_.store(0);
    P::futex_wake(&closed_, 0x7fffffff);
    return somebody_waits_.exchange(false, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint32_t> closed_{0};
  std::atomic<bool> somebody_waits_{false};
  std::atomic<void*> forker_{nullptr};
  P* platform_ = nullptr;
  bool fence_needed_ = true;
};

// Marks the time in which a thread changes its domain. Meanwhile the domain is not at hand for fast
// paths. A nested slow path does nothing.
template <class D, class Gate>
class SlowPath {
 public:
  ALLOD_INLINE SlowPath(D& domain, Gate& gate) noexcept : domain_{domain} {
    if (__builtin_expect(D::AtHand::now == &domain, 1)) {
      begin(gate);
      D::AtHand::now = &D::AtHand::nobody;
      kind_ = Kind::at_hand;
    } else if (!domain_.in_slow_path.load(std::memory_order_relaxed)) {
      begin(gate);
      kind_ = Kind::elsewhere;
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ALLOD_INLINE ~SlowPath() {
    if (kind_ == Kind::inner) return;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (__builtin_expect(kind_ == Kind::at_hand, 1)) D::AtHand::now = &domain_;
    domain_.in_slow_path.store(false, std::memory_order_release);
  }
  SlowPath(const SlowPath&) = delete;
  SlowPath& operator=(const SlowPath&) = delete;

 private:
  enum class Kind : std::uint8_t { inner, elsewhere, at_hand };

  ALLOD_INLINE void begin(Gate& gate) noexcept {
    for (;;) {
      domain_.in_slow_path.store(true, std::memory_order_relaxed);
      gate.order();
      if (__builtin_expect(!gate.is_closed(), 1)) return;
      domain_.in_slow_path.store(false, std::memory_order_release);
      if (gate.holds_back()) continue;
      domain_.in_slow_path.store(true, std::memory_order_relaxed);
      return;
    }
  }

  D& domain_;
  Kind kind_ = Kind::inner;
};

}  // namespace allod::heap

// The state of a heap's helper thread: whether it runs, is woken, or is kept away.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace allod::heap {

// Each start has a number. A starter calls began() later, when its helper may have ended and
// another may be starting. Thread-safe.
class HelperState {
 public:
  constexpr HelperState() noexcept = default;

  [[nodiscard]] bool is_running() const noexcept { return (word_.load() & kMask) == kRunning; }
  [[nodiscard]] bool is_none() const noexcept {
    return (word_.load(std::memory_order_relaxed) & kMask) == kNone;
  }
  // The number of a start, for one caller if there is no helper; 0 for all others.
  [[nodiscard]] std::uint32_t begin() noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    if ((word & kMask) != kNone) return 0;
    const std::uint32_t start = ((word & ~kMask) + kMask + 1) | kStarting;
    return word_.compare_exchange_strong(word, start) ? start : 0;
  }
  // The helper of this start runs, unless it has ended already.
  void began(std::uint32_t start) noexcept {
    word_.compare_exchange_strong(start, (start & ~kMask) | kRunning);
  }
  // A start failed, or the helper ends.
  void end() noexcept { set(kNone); }
  // Called by the helper: it is about to end, and no other may start yet.
  void leave() noexcept { set(kLeaving); }
  void go_on() noexcept { set(kRunning); }

  // Prevents starts, and asks the running helper to end soon, until each caller has called
  // let_come().
  template <class Platform>
  void keep_away() noexcept {
    away_.fetch_add(1);
    if (is_none()) return;
    wake<Platform>();
    Platform::futex_wake(&away_, 1);
  }
  void let_come() noexcept { away_.fetch_sub(1); }
  [[nodiscard]] bool is_kept_away() const noexcept { return away_.load() != 0; }
  void reset_in_child() noexcept {
    away_.store(0);
    end();
  }

  template <class Platform>
  void wake() noexcept {
    if (sleep_.exchange(1) == 0) Platform::futex_wake(&sleep_, 1);
  }
  // Sleeps until the timeout or wake(). Returns at once if wake() was called since the last sleep.
  template <class Platform>
  void sleep_ms(std::uint32_t milliseconds) noexcept {
    Platform::futex_wait_ms(&sleep_, 0, milliseconds);
    sleep_.store(0);
  }
  // Until it is kept away. Other threads that wake it are not forgotten: the next sleep is short.
  template <class Platform>
  void doze_us(std::uint64_t microseconds) noexcept {
    Platform::futex_wait_us(&away_, 0, microseconds);
  }

 private:
  static constexpr std::uint32_t kNone = 0;
  static constexpr std::uint32_t kStarting = 1;
  static constexpr std::uint32_t kRunning = 2;
  static constexpr std::uint32_t kLeaving = 3;
  static constexpr std::uint32_t kMask = 3;

  void set(std::uint32_t state) noexcept {
    word_.store((word_.load(std::memory_order_relaxed) & ~kMask) | state);
  }

  std::atomic<std::uint32_t> word_{kNone};
  std::atomic<std::uint32_t> sleep_{0};
  std::atomic<std::uint32_t> away_{0};
};

// Delays the next helper after a fork, which ends it. Programs count their threads right after a
// fork, and frequent forks should not pay for a helper each time. Thread-safe.
class ForkPause {
 public:
  constexpr ForkPause() noexcept = default;

  // Before a fork. Returns whether forks are frequent.
  bool begin(std::uint64_t now_ms) noexcept {
    const std::uint64_t before = began_ms_.exchange(now_ms, std::memory_order_relaxed);
    const std::uint64_t forgotten = (now_ms - before) / kForgetMs;
    const std::uint32_t forks = forks_.load(std::memory_order_relaxed);
    const std::uint64_t left = forks > forgotten ? forks - forgotten : 0;
    forks_.store(static_cast<std::uint32_t>(left < kMostForks ? left + 1 : left),
                 std::memory_order_relaxed);
    is_over_.store(false, std::memory_order_relaxed);
    return are_many();
  }
  // With the dirty bytes at the start of the fork.
  void leave(std::size_t dirty_bytes) noexcept {
    dirty_bytes_.store(dirty_bytes, std::memory_order_relaxed);
  }
  // Whether no helper may start yet. Does not delay if much was freed since, as the program may
  // make no more calls, unless forks are frequent.
  [[nodiscard]] bool holds_back(std::uint64_t now_ms, std::size_t dirty_bytes) noexcept {
    if (now_ms - began_ms_.load(std::memory_order_relaxed) >= kPauseMs) {
      is_over_.store(true, std::memory_order_relaxed);
      return false;
    }
    const bool is_much = dirty_bytes >= dirty_bytes_.load(std::memory_order_relaxed) + kMuch;
    return !is_much || are_many();
  }
  // If true, the caller need not read the clock.
  [[nodiscard]] bool is_over() const noexcept { return is_over_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kPauseMs = 20;
  static constexpr std::size_t kMuch = std::size_t{8} << 20;
  // One of the recent forks is forgotten after each such time.
  static constexpr std::uint64_t kForgetMs = 500;
  static constexpr std::uint32_t kManyForks = 8;
  static constexpr std::uint32_t kMostForks = 2 * kManyForks;

  [[nodiscard]] bool are_many() const noexcept {
    return forks_.load(std::memory_order_relaxed) > kManyForks;
  }

  std::atomic<std::uint64_t> began_ms_{0};
  std::atomic<std::size_t> dirty_bytes_{0};
  std::atomic<std::uint32_t> forks_{0};
  std::atomic<bool> is_over_{true};
};

}  // namespace allod::heap

// Whether a heap's helper thread is there, how it is woken, and when it is kept away.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace allod::heap {

// Whoever starts a helper says later that it runs, and may be so late that this one has ended and
// another is being started: a number for each start tells them apart. Thread-safe.
class HelperState {
 public:
  constexpr HelperState() noexcept = default;

  [[nodiscard]] bool is_running() const noexcept { return (word_.load() & kMask) == kRunning; }
  [[nodiscard]] bool is_none() const noexcept {
    return (word_.load(std::memory_order_relaxed) & kMask) == kNone;
  }
  // Not null for one of those who try, as long as there is none.
  [[nodiscard]] std::uint32_t begin() noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    if ((word & kMask) != kNone) return 0;
    const std::uint32_t start = ((word & ~kMask) + kMask + 1) | kStarting;
    return word_.compare_exchange_strong(word, start) ? start : 0;
  }
  // Unless that has ended already.
  void began(std::uint32_t start) noexcept {
    word_.compare_exchange_strong(start, (start & ~kMask) | kRunning);
  }
  // No helper came of a start; or it ends.
  void end() noexcept { set(kNone); }
  // The helper's: nobody may count on it any more, but nor is there another.
  void leave() noexcept { set(kLeaving); }
  void go_on() noexcept { set(kRunning); }

  // From now on none is to begin, and the one that runs ends as soon as it can, until everybody who
  // has called this has called let_come().
  template <class Platform>
  void keep_away() noexcept {
    away_.fetch_add(1);
    if (!is_none()) wake<Platform>();
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
  // Until somebody wakes it, or did since it slept last.
  template <class Platform>
  void sleep_ms(std::uint32_t milliseconds) noexcept {
    Platform::futex_wait_ms(&sleep_, 0, milliseconds);
    sleep_.store(0);
  }
  // The same, and who woke it is not forgotten: the next sleep is as short.
  template <class Platform>
  void doze_ms(std::uint32_t milliseconds) noexcept {
    Platform::futex_wait_ms(&sleep_, 0, milliseconds);
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

// What a fork, which ends the helper, is followed by. A program that looks how many threads it has
// does so right after the fork; and one that forks again and again is not to pay each time.
// Thread-safe.
class ForkPause {
 public:
  constexpr ForkPause() noexcept = default;

  // Before a fork: are there many of them?
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
  // So much is dirty as the fork begins.
  void leave(std::size_t dirty_bytes) noexcept {
    dirty_bytes_.store(dirty_bytes, std::memory_order_relaxed);
  }
  // May no helper begin yet? Much that was freed since does not wait, as the program may not call
  // again, unless it forks all the time.
  [[nodiscard]] bool holds_back(std::uint64_t now_ms, std::size_t dirty_bytes) noexcept {
    if (now_ms - began_ms_.load(std::memory_order_relaxed) >= kPauseMs) {
      is_over_.store(true, std::memory_order_relaxed);
      return false;
    }
    const bool is_much = dirty_bytes >= dirty_bytes_.load(std::memory_order_relaxed) + kMuch;
    return !is_much || are_many();
  }
  // For sure: nobody need ask for the time.
  [[nodiscard]] bool is_over() const noexcept { return is_over_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kPauseMs = 20;
  static constexpr std::size_t kMuch = std::size_t{8} << 20;
  // Of the forks lately, one is forgotten after each such time.
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

// Whether a heap's helper thread is there, and how it is woken.
#pragma once

#include <atomic>
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
};

}  // namespace allod::heap

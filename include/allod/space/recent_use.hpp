// The recent peak of an amount in use.
#pragma once

#include <atomic>
#include <cstddef>

namespace allod::space {

// Guarded by the space's lock, except for thread-safe functions.
class RecentUse {
 public:
  // Adds to the bytes in use; may wrap around to subtract.
  void add(std::size_t bytes) noexcept {
    used_ += bytes;
    if (used_ > peak_now_) peak_now_ = used_;
    note();
  }
  // From now on, the recent peak is that since the call before.
  void forget_peak() noexcept {
    peak_before_ = peak_now_;
    peak_now_ = used_;
    note();
  }
  // The difference between the recent peak and the present use. Thread-safe, approximate.
  [[nodiscard]] std::size_t below_peak() const noexcept {
    return below_peak_.load(std::memory_order_relaxed);
  }

 private:
  void note() noexcept {
    const std::size_t peak = peak_now_ > peak_before_ ? peak_now_ : peak_before_;
    below_peak_.store(peak - used_, std::memory_order_relaxed);
  }

  std::size_t used_ = 0;
  std::size_t peak_now_ = 0;     // since the last forget_peak()
  std::size_t peak_before_ = 0;  // between the two calls before
  std::atomic<std::size_t> below_peak_{0};
};

}  // namespace allod::space

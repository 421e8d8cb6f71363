// How much of an amount was in use lately, beyond what is.
#pragma once

#include <atomic>
#include <cstddef>

namespace allod::space {

// Guarded by the space's lock, but for what is thread-safe.
class RecentUse {
 public:
  // So many bytes more are in use.
  void add(std::size_t bytes) noexcept {
    used_ += bytes;
    if (used_ > peak_now_) peak_now_ = used_;
    note();
  }
  // From now on, lately is since the call before.
  void forget_peak() noexcept {
    peak_before_ = peak_now_;
    peak_now_ = used_;
    note();
  }
  // How much less is used than lately. Thread-safe, approximate.
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
  std::size_t peak_before_ = 0;  // and before it, since the one before
  std::atomic<std::size_t> below_peak_{0};
};

}  // namespace allod::space

// The bytes in use, and those ever allocated, over the time of a profile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace allod::profile {

// Periods of one length, which doubles when there are too many: then two become one.
class Timeline {
 public:
  static constexpr std::size_t kMost = 256;  // even
  struct Period {
    std::uint64_t live;   // the most within it
    std::uint64_t total;  // at its end
  };

  // Requires a lock of its user's. `ms`: since the profile began.
  void note(std::uint64_t ms, std::uint64_t live, std::uint64_t total) noexcept {
    while (ms / period_ms() >= kMost) halve();
    const auto period = static_cast<std::size_t>(ms / period_ms());
    // Threads may come late.
    const std::size_t index = std::max<std::size_t>(period, count_ == 0 ? 0 : count_ - 1);
    for (; count_ <= index; ++count_) periods_[count_] = last_;
    periods_[index].live = std::max(periods_[index].live, live);
    periods_[index].total = total;
    last_ = {live, total};
  }
  void clear() noexcept { *this = {}; }

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] const Period& operator[](std::size_t index) const noexcept {
    return periods_[index];
  }
  [[nodiscard]] std::uint64_t period_ms() const noexcept { return kFirstMs << doubled_; }

 private:
  static constexpr std::uint64_t kFirstMs = 8;

  void halve() noexcept {
    if (count_ % 2 != 0) periods_[count_++] = last_;
    count_ /= 2;
    for (std::size_t i = 0; i < count_; ++i) {
      const Period& first = periods_[2 * i];
      const Period& second = periods_[2 * i + 1];
      periods_[i] = {std::max(first.live, second.live), second.total};
    }
    ++doubled_;
  }

  unsigned doubled_ = 0;
  std::size_t count_ = 0;
  Period last_{};
  Period periods_[kMost] = {};
};

}  // namespace allod::profile

// One stop at a time.
#pragma once

#include "allod/os/linux/linux.hpp"

namespace allod {

class StopTurn {
 public:
  // The waiting thread may itself be stopped meanwhile.
  static void take() noexcept {
    while (taken_.exchange(1) != 0) os::Linux::futex_wait_ms(&taken_, 1, 1);
  }
  static void give() noexcept { taken_.store(0); }
  // Waits until the current stop ends, at most 300 ms: the caller may be a handler that interrupted
  // the stopping thread. Others are stopped themselves meanwhile.
  static void wait_for_end() noexcept {
    constexpr int kPatience = 300;
    for (int waited = 0; waited < kPatience && taken_.load() != 0; ++waited) {
      os::Linux::futex_wait_ms(&taken_, 1, 1);
    }
  }

 private:
  static constinit inline std::atomic<std::uint32_t> taken_{0};
};

}  // namespace allod

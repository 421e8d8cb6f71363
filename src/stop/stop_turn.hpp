// Who stops threads: one at a time.
#pragma once

#include "allod/os/linux/linux.hpp"

namespace allod {

class StopTurn {
 public:
  // Whoever waits is stopped itself perhaps, until the other one is done.
  static void take() noexcept {
    while (taken_.exchange(1) != 0) os::Linux::futex_wait_ms(&taken_, 1, 1);
  }
  static void give() noexcept { taken_.store(0); }
  // Until threads that are being stopped go on. Who waits is stopped itself meanwhile, or it is a
  // handler that has interrupted whoever stops: then for 300 ms.
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

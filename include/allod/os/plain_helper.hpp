// The thread of our own that gives memory back, where an ordinary thread serves.
#pragma once

#include "allod/base/base.hpp"

namespace allod::os {

// Threads: static bool start(void (*run)() noexcept), which starts a thread without calling malloc
// and does not wait for a lock of the program; static void yield(), nap(), for a millisecond.
// Thread-safe.
template <class Threads>
class PlainHelper {
 public:
  using Function = void (*)(void*);

  // Starts `function(argument)`. False if the helper runs already. A helper whose function is about
  // to return is waited for, for some turns of other threads.
  static bool start(Function function, void* argument) noexcept {
    constexpr int kMostYields = 256;
    for (int yields = 0; runs_.exchange(true, std::memory_order_acquire); ++yields) {
      if (yields == kMostYields) return false;
      Threads::yield();
    }
    function_ = function;
    argument_ = argument;
    if (Threads::start(&run)) return true;
    runs_.store(false, std::memory_order_release);
    return false;
  }
  [[nodiscard]] static bool is_running() noexcept { return runs_.load(std::memory_order_acquire); }
  // False if that takes too long.
  [[nodiscard]] static bool wait_until_gone() noexcept {
    constexpr int kMostNaps = 100;
    for (int naps = 0; is_running(); ++naps) {
      if (naps == kMostNaps) return false;
      Threads::nap();
    }
    return true;
  }
  // There is none in a child.
  static void reset_after_fork() noexcept { runs_.store(false, std::memory_order_relaxed); }

 private:
  static void run() noexcept {
    function_(argument_);
    runs_.store(false, std::memory_order_release);
  }

  static inline constinit std::atomic<bool> runs_{false};
  static inline constinit Function function_ = nullptr;
  static inline constinit void* argument_ = nullptr;
};

}  // namespace allod::os

// The thread of our own that gives memory back.
#pragma once

#include "allod/base/base.hpp"
#include "allod/os/windows/calls.hpp"

namespace allod::os {

// CreateThread does not call malloc, and does not wait for the loader, whose lock the new thread
// takes before it runs. Thread-safe.
class WindowsHelper {
 public:
  using Function = void (*)(void*);

  // Starts `function(argument)`. False if the helper runs already. A helper whose function is about
  // to return is waited for, for some turns of other threads.
  static bool start(Function function, void* argument) noexcept {
    constexpr int kMostYields = 256;
    for (int yields = 0; runs_.exchange(true, std::memory_order_acquire); ++yields) {
      if (yields == kMostYields) return false;
      allod_win_yield();
    }
    function_ = function;
    argument_ = argument;
    const LastError kept;
    void* const thread = allod_win_thread(nullptr, kStackBytes, &run, nullptr, kReserved, nullptr);
    if (thread == nullptr) {
      runs_.store(false, std::memory_order_release);
      return false;
    }
    allod_win_close(thread);
    return true;
  }
  [[nodiscard]] static bool is_running() noexcept { return runs_.load(std::memory_order_acquire); }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{64} << 10;
  static constexpr std::uint32_t kReserved = 0x10000;  // STACK_SIZE_PARAM_IS_A_RESERVATION

  static std::uint32_t run(void*) noexcept {
    function_(argument_);
    runs_.store(false, std::memory_order_release);
    return 0;
  }

  static inline constinit std::atomic<bool> runs_{false};
  static inline constinit Function function_ = nullptr;
  static inline constinit void* argument_ = nullptr;
};

}  // namespace allod::os

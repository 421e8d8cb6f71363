// The thread of our own that gives memory back.
#pragma once

#include "allod/os/plain_helper.hpp"
#include "allod/os/windows/calls.hpp"

namespace allod::os {

// CreateThread does not call malloc, and does not wait for the loader, whose lock the new thread
// takes before it runs.
struct WindowsThreads {
  [[nodiscard]] static bool start(void (*run)() noexcept) noexcept {
    const LastError kept;
    void* const thread = allod_win_thread(nullptr, kStackBytes, &enter,
                                          reinterpret_cast<void*>(run), kReserved, nullptr);
    if (thread == nullptr) return false;
    allod_win_close(thread);
    return true;
  }
  static void yield() noexcept { allod_win_yield(); }
  static void nap() noexcept { allod_win_sleep(1); }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{64} << 10;
  static constexpr std::uint32_t kReserved = 0x10000;  // STACK_SIZE_PARAM_IS_A_RESERVATION

  static std::uint32_t enter(void* run) noexcept {
    reinterpret_cast<void (*)() noexcept>(run)();
    return 0;
  }
};

using WindowsHelper = PlainHelper<WindowsThreads>;

}  // namespace allod::os

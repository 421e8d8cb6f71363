// Signal actions by raw system calls. sigaction() may be interposed by code that allocates, or that
// keeps a list of handlers.
#pragma once

#include <signal.h>
#include <sys/syscall.h>

#include "allod/base/cpu.hpp"
#include "allod/os/linux/signal_return.hpp"

namespace allod {

// The kernel's struct sigaction.
struct SignalAction {
  using Handler = void (*)(int, siginfo_t*, void*);

  Handler handler = nullptr;  // or with one argument, kDefault or kIgnored
  os::SignalActionRest rest = {};

  [[nodiscard]] bool has_handler() const noexcept {
    const auto number = reinterpret_cast<std::uintptr_t>(handler);
    return number != kDefault && number != kIgnored;
  }

  [[nodiscard]] bool is_default() const noexcept {
    return reinterpret_cast<std::uintptr_t>(handler) == kDefault;
  }

  [[nodiscard]] static SignalAction of(int signal) noexcept {
    SignalAction action;
    raw_syscall(SYS_rt_sigaction, signal, 0, as_long(&action), kMaskBytes);
    return action;
  }
  // Returns the previous action.
  SignalAction set_for(int signal) const noexcept {
    SignalAction before;
    raw_syscall(SYS_rt_sigaction, signal, as_long(this), as_long(&before), kMaskBytes);
    return before;
  }
  // Blocks all signals while the handler runs.
  [[nodiscard]] static SignalAction calling(Handler handler, unsigned long flags) noexcept;

 private:
  static constexpr long kMaskBytes = sizeof rest.mask;
  static constexpr std::uintptr_t kDefault = 0;
  static constexpr std::uintptr_t kIgnored = 1;
  static long as_long(const void* pointer) noexcept {
    return static_cast<long>(reinterpret_cast<std::uintptr_t>(pointer));
  }
};

inline SignalAction SignalAction::calling(Handler handler, unsigned long flags) noexcept {
  SignalAction action{handler};
  action.rest.flags = flags | SA_SIGINFO | os::kSignalReturnFlag;
  for (unsigned long& word : action.rest.mask) word = ~0UL;
  return action;
}

}  // namespace allod

// Signal actions by raw system calls. sigaction() may be interposed by code that allocates, or that
// keeps a list of handlers.
#pragma once

#include <signal.h>
#include <sys/syscall.h>

#include "allod/base/cpu.hpp"

namespace allod {

// The kernel's struct sigaction.
struct SignalAction {
  using Handler = void (*)(int, siginfo_t*, void*);

  Handler handler = nullptr;  // or with one argument, kDefault or kIgnored
  unsigned long flags = 0;
  void (*restorer)() = nullptr;
  std::uint64_t mask = 0;

  [[nodiscard]] bool has_handler() const noexcept {
    const auto number = reinterpret_cast<std::uintptr_t>(handler);
    return number != kDefault && number != kIgnored;
  }

  [[nodiscard]] bool is_default() const noexcept {
    return reinterpret_cast<std::uintptr_t>(handler) == kDefault;
  }

  [[nodiscard]] static SignalAction of(int signal) noexcept {
    SignalAction action;
    raw_syscall(SYS_rt_sigaction, signal, 0, as_long(&action), sizeof action.mask);
    return action;
  }
  // Returns the previous action.
  SignalAction set_for(int signal) const noexcept {
    SignalAction before;
    raw_syscall(SYS_rt_sigaction, signal, as_long(this), as_long(&before), sizeof mask);
    return before;
  }
  // Blocks all signals while the handler runs.
  [[nodiscard]] static SignalAction calling(Handler handler, unsigned long flags) noexcept;

 private:
  static constexpr std::uintptr_t kDefault = 0;
  static constexpr std::uintptr_t kIgnored = 1;
  static long as_long(const void* pointer) noexcept {
    return static_cast<long>(reinterpret_cast<std::uintptr_t>(pointer));
  }
};

#if defined(__x86_64__)

// The handler's return trampoline. Debuggers and unwinders recognise it by exactly these
// instructions.
extern "C" [[gnu::visibility("hidden")]] void allod_return_from_signal();
__asm__(
    ".pushsection .text\n"
    ".balign 16\n"
    "nop\n"  // so that the byte before belongs to no other function
    ".hidden allod_return_from_signal\n"
    ".weak allod_return_from_signal\n"
    ".type allod_return_from_signal, @function\n"
    "allod_return_from_signal:\n\t"
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05\n"
    ".size allod_return_from_signal, . - allod_return_from_signal\n"
    ".popsection");

inline SignalAction SignalAction::calling(Handler handler, unsigned long flags) noexcept {
  constexpr unsigned long kRestorer = 0x04000000;  // SA_RESTORER
  return {handler, flags | SA_SIGINFO | kRestorer, &allod_return_from_signal, ~std::uint64_t{0}};
}

#else

inline SignalAction SignalAction::calling(Handler handler, unsigned long flags) noexcept {
  return {handler, flags | SA_SIGINFO, nullptr, ~std::uint64_t{0}};
}

#endif

}  // namespace allod

// Whether a signal handler may start a thread.
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "allod/base/units.hpp"

namespace allod::attach {

// An instruction that the signal interrupted, and the registers of a system call there.
class Interrupted {
 public:
  explicit Interrupted(const ucontext_t& context) noexcept : context_{context} {
#if defined(__x86_64__)
    const auto& registers = context.uc_mcontext.gregs;
    at_ = static_cast<Address>(registers[REG_RIP]);
    result_ = number_ = registers[REG_RAX];
    second_ = registers[REG_RSI];
#else
    const auto& registers = context.uc_mcontext;
    at_ = registers.pc;
    result_ = static_cast<long>(registers.regs[0]);
    number_ = static_cast<long>(registers.regs[8]);
    second_ = static_cast<long>(registers.regs[1]);
#endif
  }
  [[nodiscard]] Address at() const noexcept { return at_; }

  // Whether a signal handler of the program may be what was interrupted.
  [[nodiscard]] bool has_signals_blocked() const noexcept {
    std::uint64_t blocked = 0;
    __builtin_memcpy(&blocked, &context_.uc_sigmask, sizeof blocked);
    return blocked != 0;
  }

  // Whether the C library's code here waits for something outside of the process, or for another
  // thread, and holds none of its own locks meanwhile. Its locks are waited for without a timeout,
  // by FUTEX_WAIT; what programs wait for, by FUTEX_WAIT_BITSET. `at()` must be in its code.
  [[nodiscard]] bool waits() const noexcept {
    // A call with a timeout, or one that signals always end.
    if (is_call(at_ - kCallBytes) && result_ == -EINTR) return true;
    if (!is_call(at_)) return false;
    // The kernel makes these anew.
    switch (number_) {
      case SYS_read:
      case SYS_readv:
      case SYS_accept:
      case SYS_accept4:
      case SYS_recvfrom:
      case SYS_recvmsg:
      case SYS_recvmmsg:
      case SYS_wait4:
      case SYS_waitid:
        return true;
      case SYS_futex:
        return (second_ & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
      default:
        return false;
    }
  }

 private:
#if defined(__x86_64__)
  static constexpr Address kCallBytes = 2;
  static bool is_call(Address at) noexcept {
    const auto* const code = reinterpret_cast<const unsigned char*>(at);
    return code[0] == 0x0f && code[1] == 0x05;  // syscall
  }
#else
  static constexpr Address kCallBytes = 4;
  static bool is_call(Address at) noexcept {
    return *reinterpret_cast<const std::uint32_t*>(at) == 0xd4000001;  // svc #0
  }
#endif

  const ucontext_t& context_;
  Address at_;
  long result_;
  long number_;
  long second_;  // argument
};

}  // namespace allod::attach

// Whether a signal handler may start a thread.
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "allod/base/units.hpp"
#include "allod/os/linux/context.hpp"

namespace allod::attach {

// An instruction that the signal interrupted, and the registers of a system call there.
class Interrupted {
 public:
  explicit Interrupted(const ucontext_t& context) noexcept : context_{context}, code_{context} {}
  [[nodiscard]] Address at() const noexcept { return code_.at; }

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
    if (code_.is_call(code_.at - os::InterruptedCode::kCallBytes) && code_.result == -EINTR) {
      return true;
    }
    if (!code_.is_call(code_.at)) return false;
    // The kernel makes these anew.
    switch (code_.number) {
      case SYS_read:
      case SYS_readv:
#if defined(SYS_accept)
      case SYS_accept:
#endif
      case SYS_accept4:
      case SYS_recvfrom:
      case SYS_recvmsg:
      case SYS_recvmmsg:
      case SYS_wait4:
      case SYS_waitid:
        return true;
      case SYS_futex:
        return (code_.second & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
      default:
        return false;
    }
  }

 private:
  const ucontext_t& context_;
  os::InterruptedCode code_;
};

}  // namespace allod::attach

// The stacks that threads have set up for their signals by libc's sigaltstack().
#pragma once

#include <signal.h>
#include <ucontext.h>

#include "allod/base/base.hpp"

namespace allod {

#if defined(__x86_64__)
inline constexpr Address kRedZone = 128;
#else
inline constexpr Address kRedZone = 0;
#endif

// Where what is in use of the stack begins that a signal has interrupted.
[[nodiscard]] inline Address used_stack(const ucontext_t& context) noexcept {
#if defined(__x86_64__)
  return static_cast<Address>(context.uc_mcontext.gregs[REG_RSP]) - kRedZone;
#else
  return static_cast<Address>(context.uc_mcontext.sp);
#endif
}

// Threads may share one, where it is for a signal that ends the program anyhow. Where all of them
// are stopped at once, their registers would be overwritten there.
class SignalStacks {
 public:
  // The system call, with its result. Takes no lock, and is safe in signal handlers.
  static long set(const stack_t* stack, stack_t* old) noexcept;

  // Is the calling thread on one, in a handler?
  [[nodiscard]] static bool is_on_one() noexcept;

  // Where what is in use of the usual stack begins, of the calling thread while it is on one: the
  // system has written that there. 0: it is on none, or that is not found.
  [[nodiscard]] static Address interrupted() noexcept;

  // Have two threads set up the same memory, as far as is known? True for ever then.
  [[nodiscard]] static bool are_shared() noexcept;
};

}  // namespace allod

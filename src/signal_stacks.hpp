// The stacks that threads have set up for their signals by libc's sigaltstack().
#pragma once

#include <signal.h>

namespace allod {

// Threads may share one, where it is for a signal that ends the program anyhow. Where all of them
// are stopped at once, their registers would be overwritten there.
class SignalStacks {
 public:
  // The system call, with its result. Takes no lock, and is safe in signal handlers.
  static long set(const stack_t* stack, stack_t* old) noexcept;

  // Is the calling thread on one, in a handler?
  [[nodiscard]] static bool is_on_one() noexcept;

  // Have two threads set up the same memory, as far as is known? True for ever then.
  [[nodiscard]] static bool are_shared() noexcept;
};

}  // namespace allod

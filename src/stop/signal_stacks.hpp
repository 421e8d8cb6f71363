// Alternate signal stacks that threads set by libc's sigaltstack().
#pragma once

#include <signal.h>
#include <ucontext.h>

#include "allod/base/base.hpp"
#include "allod/os/linux/context.hpp"

namespace allod {

using os::kRedZone;

// Start of the used part of the stack that a signal interrupted.
[[nodiscard]] inline Address used_stack(const ucontext_t& context) noexcept {
  return os::InterruptedCode{context}.stack - kRedZone;
}

// Threads may share an alternate stack for a signal that ends the program. When all of them are
// stopped at once, they would overwrite each other's registers on it.
class SignalStacks {
 public:
  // Makes the system call and returns its result. Lock-free and async-signal-safe.
  static long set(const stack_t* stack, stack_t* old) noexcept;

  // Whether the calling thread runs a handler on its alternate stack.
  [[nodiscard]] static bool is_on_one() noexcept;

  // Start of the used part of the calling thread's usual stack, while it runs on an alternate one,
  // from the kernel's signal frame. 0 if it does not, or if no frame is found.
  [[nodiscard]] static Address interrupted() noexcept;

  // Whether two threads have set the same memory. Stays true.
  [[nodiscard]] static bool are_shared() noexcept;
};

}  // namespace allod

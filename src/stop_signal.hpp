// The signal that stops threads for a moment, see stop_threads.hpp. Threads of our own tools that
// block all others leave it open: they would be waited for in vain.
#pragma once

#include <signal.h>

namespace allod {

// glibc uses the first real-time signals itself, programs those that follow.
[[nodiscard]] inline int stop_signal() noexcept { return SIGRTMAX - 1; }

}  // namespace allod

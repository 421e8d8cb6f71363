// The signals that stop threads for a moment, see stop_threads.hpp. Threads of our own tools that
// block all others leave these open: they would be waited for in vain.
#pragma once

#include <signal.h>

namespace allod {

// Ignored where there is no handler, so that it does no harm where it comes too late: after the
// thread that it was sent to has executed another program, for one. Go's runtime took it for that
// reason as well.
inline constexpr int kStopSignal = SIGURG;

// The last signal that the kernel has. SIGRTMAX is a call of the C library.
inline constexpr int kLastSignal = 64;

// The first that is not the C library's own, as SIGRTMIN tells by another call.
#ifdef __GLIBC__
inline constexpr int kFirstFreeSignal = 34;
#else
inline constexpr int kFirstFreeSignal = 35;
#endif

// Where the program has a handler for that. glibc uses the first real-time signals itself, programs
// those that follow.
inline constexpr int kSecondStopSignal = kLastSignal - 1;

}  // namespace allod

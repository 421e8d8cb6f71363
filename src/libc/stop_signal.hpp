// The signals that stop threads, see stop_threads.hpp. Threads of our own tools that block all
// other signals must leave these unblocked, or a stop waits for them in vain.
#pragma once

#include <signal.h>

namespace allod {

// Its default action is to ignore it, so a late signal does no harm, for example after the target
// thread has called exec. Go's runtime chose SIGURG for the same reason.
inline constexpr int kStopSignal = SIGURG;

// The kernel's last signal. SIGRTMAX is a call of the C library.
inline constexpr int kLastSignal = 64;

// The first signal that the C library does not use, as SIGRTMIN would say by a call.
#ifdef __GLIBC__
inline constexpr int kFirstFreeSignal = 34;
#else
inline constexpr int kFirstFreeSignal = 35;
#endif

// Used if the program handles the first one. glibc uses the first real-time signals itself, and
// programs use those that follow.
inline constexpr int kSecondStopSignal = kLastSignal - 1;

}  // namespace allod

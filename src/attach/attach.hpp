// Opens the live page of a running process, when its user or root asks for it.
#pragma once

#include "allod/base/cpu.hpp"

namespace allod::attach {

// The number that a request carries: sigqueue(process, kStopSignal, kRequest). The kernel delivers
// a signal only from the same user, or from one that may signal every process.
inline constexpr int kRequest = 0x616c6c64;

// Takes requests from now on, unless the options, the program's rights or libc forbid it. For a
// constructor. Nothing is loaded or opened before a request comes.
ALLOD_HOT void watch() noexcept;

}  // namespace allod::attach

// Reports about first-class heaps.
#pragma once

#include "instance/heaps.hpp"

namespace allod::heaps {

// Reports a use of a destroyed or deleted heap, and aborts.
[[noreturn]] void report_gone(const Domain& heap) noexcept;
// Reports the blocks in use; returns their number.
std::size_t report_leaks(Domain& heap) noexcept;
// Reports leaks of each heap that asks for it, at the end of the process.
ALLOD_HOT void report_leaks_at_exit() noexcept;

}  // namespace allod::heaps

// What is said of first-class heaps.
#pragma once

#include "instance/heaps.hpp"

namespace allod::heaps {

// Ends the process with a report, in the debug library.
[[noreturn]] void report_gone(const Domain& heap) noexcept;
// Tells of the blocks in use; returns how many there are.
std::size_t report_leaks(Domain& heap) noexcept;
// The same for every heap that wants it, at the end of the process.
ALLOD_HOT void report_leaks_at_exit() noexcept;

}  // namespace allod::heaps

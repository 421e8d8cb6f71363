// Accesses to memory that is closed on purpose, told from other faults.
#pragma once

#include "allod/base/cpu.hpp"

namespace allod::faults {

// From now on a fault on a guard is reported before it goes where it would have gone: to the
// program's handler, as it is now, or to the system, which ends the process by the same signal. A
// handler that the program sets up later takes the place of this one. Thread-safe; once is enough.
ALLOD_HOT void watch() noexcept;

}  // namespace allod::faults

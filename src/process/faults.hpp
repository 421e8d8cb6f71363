// Tells accesses to guards from other faults.
#pragma once

#include "allod/base/cpu.hpp"

namespace allod::faults {

// Handles SIGSEGV from now on. A fault on a guard is reported, and then passed on to the program's
// handler, or to the default action, which ends the process. A handler that the program installs
// later replaces this one. Thread-safe, idempotent.
ALLOD_HOT void watch() noexcept;

}  // namespace allod::faults

// Search for blocks without pointers to them.
#pragma once

#include "allod/base/cpu.hpp"

namespace allod::leaks {

// See allod.h.
void begin() noexcept;
long check() noexcept;

// For a destructor: checks if the options ask for it.
ALLOD_HOT void check_at_end() noexcept;

}  // namespace allod::leaks

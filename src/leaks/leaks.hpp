// Blocks that nothing leads to.
#pragma once

#include "allod/base/cpu.hpp"

namespace allod::leaks {

// As the functions of allod.h.
void begin() noexcept;
long check() noexcept;

// For a destructor: what the options ask for.
ALLOD_HOT void check_at_end() noexcept;

}  // namespace allod::leaks

// What the options choose, put into force.
#pragma once

#include <cstddef>

#include "allod/base/cpu.hpp"

namespace allod {

// Before the heap has started: what is sampled from the first allocation on.
ALLOD_HOT void start_samples() noexcept;
// Once, when the heap has started: of the memory that a container may have (bytes; 0: no limit),
// free memory is to keep a small part, unless an option says how much.
ALLOD_HOT void respect_memory_limit(std::size_t limit) noexcept;
// As change_setting(), for a heap that runs.
int set_option(const char* name, const char* value) noexcept;
// Says which library this is and, if wanted, how it is set up.
void announce_start() noexcept;

}  // namespace allod

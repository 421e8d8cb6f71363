// Applies the options.
#pragma once

#include <cstddef>

#include "allod/base/cpu.hpp"

namespace allod {

// Starts the samplers. Must run before the heap starts.
ALLOD_HOT void start_samples() noexcept;
// Limits the free memory that is kept to a share of the container's limit (bytes; 0: no limit),
// unless an option sets it. Once, after the heap has started.
ALLOD_HOT void respect_memory_limit(std::size_t limit) noexcept;
// Like change_setting(), and applies it to the running heap.
int set_option(const char* name, const char* value) noexcept;
// Prints version and variant and, at verbosity 2, the settings.
void announce_start() noexcept;

}  // namespace allod

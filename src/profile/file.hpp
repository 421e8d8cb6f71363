// Files with the heap profile: when the process ends, when it is told to, when it needs more memory
// than ever. What the options say about them is in options.hpp.
#pragma once

#include "allod/base/cpu.hpp"

namespace allod::profile {

// For a constructor: waits for the signal that the options name.
ALLOD_HOT void watch_signal() noexcept;

// What a signal asked for meanwhile; and, unless 0, a peak of so many bytes. Called without a lock.
void write_due_files(unsigned long long peak) noexcept;

// For a destructor.
ALLOD_HOT void write_file_at_end() noexcept;

}  // namespace allod::profile

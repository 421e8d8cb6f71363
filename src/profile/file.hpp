// Profile files: at exit, on a signal, and at new peaks. See options.cpp for the options.
#pragma once

#include "allod/base/cpu.hpp"

namespace allod::profile {

// For a constructor: handles the signal that the options name.
ALLOD_HOT void watch_signal() noexcept;

// Writes the files that signals have requested, and one for a peak of so many bytes unless it is 0.
// Must be called without a lock.
void write_due_files(unsigned long long peak) noexcept;

// For a destructor.
ALLOD_HOT void write_file_at_end() noexcept;

}  // namespace allod::profile

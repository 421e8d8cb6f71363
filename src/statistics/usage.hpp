// Memory figures of the process from the kernel.
#pragma once

#include <cstdint>

#include "allod/base/cpu.hpp"

namespace allod {

// Page faults are counted from this call. To be called once, as early as possible.
ALLOD_HOT void note_start() noexcept;

struct Faults {
  std::uint64_t minor, major;
};
[[nodiscard]] Faults page_faults() noexcept;

// Resident set in bytes; 0 if unknown. Not from getrusage, whose peak survives exec.
struct Resident {
  std::uint64_t now = 0, peak = 0;
};
[[nodiscard]] Resident resident() noexcept;

}  // namespace allod

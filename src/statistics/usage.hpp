// What the system says of the memory of the process.
#pragma once

#include <cstdint>

#include "allod/base/cpu.hpp"

namespace allod {

// As early as can be: page faults of the process are counted from here. Once.
ALLOD_HOT void note_start() noexcept;

struct Faults {
  std::uint64_t minor, major;
};
[[nodiscard]] Faults page_faults() noexcept;

// Of the whole process, in bytes; 0 where the system does not tell. The peak of getrusage would be
// that of the program before this one.
struct Resident {
  std::uint64_t now = 0, peak = 0;
};
[[nodiscard]] Resident resident() noexcept;

}  // namespace allod

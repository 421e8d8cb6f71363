// What the resident memory consists of that is not Allod's.
#pragma once

#include <cstdint>

namespace allod::live {

// Resident bytes. What is left of all that is not Allod's are other mappings.
struct Foreign {
  std::uint64_t code = 0;  // programs and libraries with their data, and code made at run time
  std::uint64_t stacks = 0;
  std::uint64_t files = 0;       // mapped files, and shared memory
  const char* pool = nullptr;    // the likely owner of the other mappings; null: not known
  const char* remedy = nullptr;  // what to set
};

// Reads /proc/self/smaps, for which the system visits all page tables.
[[nodiscard]] Foreign read_foreign() noexcept;

}  // namespace allod::live

// Checks at graded cost. A failed check is a defect of Allod. Misuse by the program is reported
// instead, see heap/misuse.hpp.
#pragma once

#include "allod/base/cpu.hpp"

namespace allod {

enum class CheckLevel : int {
  always = 0,     // in all builds: cheap, and prevents loss of data
  debug = 1,      // in debug builds: local and cheap
  expensive = 2,  // in tests: walks whole structures
};

// Reports a failed check before the process ends. Set by the process layer. Must not allocate.
using CheckFailureHandler = void (*)(const char* what) noexcept;
inline constinit CheckFailureHandler check_failure_handler = nullptr;

[[noreturn]] ALLOD_COLD inline void check_failed(const char* what) noexcept {
  if (check_failure_handler != nullptr) check_failure_handler(what);
  __builtin_trap();
}

ALLOD_INLINE void always_check(bool condition, const char* what) noexcept {
  if (__builtin_expect(!condition, 0)) check_failed(what);
}

template <CheckLevel kBuild, CheckLevel kLevel = CheckLevel::debug>
ALLOD_INLINE void check(bool condition, const char* what) noexcept {
  if constexpr (static_cast<int>(kBuild) >= static_cast<int>(kLevel)) always_check(condition, what);
}

}  // namespace allod

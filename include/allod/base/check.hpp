// Checks at graded cost. A failed check is a defect of Allod itself, never of
// the program that uses it; misuse by the program is reported, see heap/misuse.hpp.
#pragma once

#include "allod/base/cpu.hpp"

namespace allod {

enum class CheckLevel : int {
  always = 0,     // in every build: cheap, and what follows would destroy data
  debug = 1,      // local and cheap, in debug builds
  expensive = 2,  // walks whole structures; in tests
};

// Where a failed check is told before the process ends; set by the process
// layer. Must not allocate.
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

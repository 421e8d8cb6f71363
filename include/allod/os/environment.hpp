// The name of the system, and the environment, where it is an array of texts.
#pragma once

#include <string_view>

#if defined(__APPLE__)
#include <crt_externs.h>
#elif defined(__FreeBSD__)
extern "C" [[gnu::weak]] char** environ;  // NOLINT
#endif

namespace allod::os {

#if defined(__APPLE__)

inline constexpr std::string_view kSystemName = "macOS";
// Libraries have no `environ` there. Null before the process has one.
[[nodiscard]] inline char** environment() noexcept {
  char*** const place = _NSGetEnviron();
  return place != nullptr ? *place : nullptr;
}

#elif defined(__FreeBSD__)

inline constexpr std::string_view kSystemName = "FreeBSD";
// The program defines it.
[[nodiscard]] inline char** environment() noexcept {
  return &environ != nullptr ? environ : nullptr;
}

#endif

}  // namespace allod::os

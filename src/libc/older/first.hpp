// Functions of glibc by their first versions. What newer versions do, these do as well: the
// functions only moved into libc.so, from libdl and libpthread. They are null if the process was
// started with a glibc before 2.34 and without these libraries.
#pragma once

#include "allod/os/linux/first_version.hpp"

// Declares first_NAME.
#define ALLOD_FIRST(name)                                 \
  extern "C" [[gnu::weak]] decltype(::name) first_##name; \
  __asm__(".symver first_" #name ", " #name "@" ALLOD_FIRST_VERSION)

namespace allod::older {

// A function of a library that glibc before 2.34 has beside libc.so. Loads it if need be. Null with
// later ones. May allocate.
[[nodiscard]] void* function_of(const char* library, const char* name) noexcept;

}  // namespace allod::older

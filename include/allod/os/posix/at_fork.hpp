// Fork handlers.
#pragma once

#include <pthread.h>

#include "allod/base/cpu.hpp"

#ifdef __GLIBC__
// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier)
extern "C" {
extern void* __dso_handle __attribute__((visibility("hidden")));
int __register_atfork(void (*before)(), void (*in_parent)(), void (*in_child)(), void*) noexcept;
}
// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier)
#endif

namespace allod::os {

// Like pthread_atfork, which in glibc only makes this call. But it comes from an archive, so it
// would lie behind all other code, and make another window of the library resident. May allocate.
inline ALLOD_HOT int at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept {
#ifdef __GLIBC__
  return __register_atfork(before, in_parent, in_child, &__dso_handle);
#else
  return pthread_atfork(before, in_parent, in_child);
#endif
}

}  // namespace allod::os

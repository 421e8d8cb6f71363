// Handlers around fork.
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

// As pthread_atfork, which in glibc is no more than this call. It is linked from an archive there,
// so that it would lie behind all other code, and make a window of the library more resident in
// each process. May allocate.
inline ALLOD_HOT int at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept {
#ifdef __GLIBC__
  return __register_atfork(before, in_parent, in_child, &__dso_handle);
#else
  return pthread_atfork(before, in_parent, in_child);
#endif
}

}  // namespace allod::os

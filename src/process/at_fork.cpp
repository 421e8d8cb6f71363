// Before a fork, the handler that was registered last runs first. Ours closes the heap, and those
// of others may wait for threads that allocate: so ours has to be the first that is registered.
// With glibc the library is marked to be initialised before all others. musl has no such mark:
// there it stands in front of the function that registers handlers, in case that the constructor of
// a library which is initialised before this one calls it.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include "instance/process.hpp"

#ifndef __GLIBC__
using Handler = void (*)();
extern "C" [[gnu::visibility("default")]] int pthread_atfork(Handler before, Handler in_parent,
                                                             Handler in_child) noexcept {
  allod::start_process();
  auto* const next =
      reinterpret_cast<decltype(&pthread_atfork)>(dlsym(RTLD_NEXT, "pthread_atfork"));
  return next != nullptr ? next(before, in_parent, in_child) : ENOMEM;
}
#endif

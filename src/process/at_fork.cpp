// Fork handlers that were registered last run first. Ours closes the heap, and other handlers may
// wait for threads that allocate, so ours must be registered first. With glibc, this library is
// marked to be initialised before all others. musl has no such mark, so there we interpose
// pthread_atfork, in case an earlier library's constructor calls it.
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

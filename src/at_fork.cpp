// What registers handlers around fork, in front of libc's. Before a fork, the handler that was
// registered last runs first. Ours closes the heap, and those of others may wait for threads that
// allocate: so ours has to be the first that is registered, also when the constructor of a library
// that is initialised before this one registers some.
#include "allod/os/at_fork.hpp"

#include <dlfcn.h>
#include <errno.h>

#include "process.hpp"

namespace {

template <class Register, class... Arguments>
[[nodiscard]] int go_on(const char* name, Arguments... arguments) noexcept {
  allod::start_process();
  auto* const next = reinterpret_cast<Register>(dlsym(RTLD_NEXT, name));
  return next != nullptr ? next(arguments...) : ENOMEM;
}

using Handler = void (*)();

}  // namespace

#ifdef __GLIBC__
// What pthread_atfork calls, which in glibc is a part of each program and library.
[[gnu::visibility("default")]] int __register_atfork(Handler before, Handler in_parent,
                                                     Handler in_child, void* library) noexcept {
  using Register = decltype(&__register_atfork);
  return go_on<Register>("__register_atfork", before, in_parent, in_child, library);
}
#else
extern "C" [[gnu::visibility("default")]] int pthread_atfork(Handler before, Handler in_parent,
                                                             Handler in_child) noexcept {
  return go_on<decltype(&pthread_atfork)>("pthread_atfork", before, in_parent, in_child);
}
#endif

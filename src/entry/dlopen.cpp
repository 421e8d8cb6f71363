// dlopen and dlclose in front of libc's. A library that is opened with RTLD_DEEPBIND looks for what
// it needs in itself and in what it is linked with, libc among that, before it looks at the program
// and what is preloaded: it would call libc's malloc and free, with blocks of ours among what it
// frees and blocks of libc's among what it gives. PHP opens its extensions like that. And what is
// closed is noted for the profile.
#include <dlfcn.h>

#include "libc/next_function.hpp"
#include "profile/closed_files.hpp"
#include "settings/options.hpp"

#if defined(RTLD_DEEPBIND)

namespace {

using Opener = void* (*)(const char*, int);
using Closer = int (*)(void*);
constinit std::atomic<Opener> opener{nullptr};
constinit std::atomic<Closer> closer{nullptr};

}  // namespace

// libc looks at who has called it: that tells where to search for the file, and in which namespace.
// The last call is a jump, so that this is our caller.
extern "C" [[gnu::visibility("default")]] void* dlopen(const char* file, int mode) noexcept {
  const Opener next = allod::next_function(opener, "dlopen");
  if (next == nullptr) return nullptr;
  if (!allod::settings().keeps_deepbind) mode &= ~RTLD_DEEPBIND;
  return next(file, mode);
}

extern "C" [[gnu::visibility("default")]] int dlclose(void* handle) noexcept {
  const Closer next = allod::next_function(closer, "dlclose");
  if (next == nullptr) return -1;
  const allod::profile::Closing closing;
  return next(handle);
}

#endif

// Interposes dlopen and dlclose. With RTLD_DEEPBIND, a library resolves symbols in itself and its
// dependencies, libc among them, before the program and preloaded libraries. It would mix libc's
// malloc and free with ours. PHP opens its extensions so. dlclose notes closed files for the
// profile.
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

// libc derives search path and namespace from the caller's address, so the last call must be a tail
// call.
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

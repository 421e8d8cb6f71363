// dlopen in front of libc's. A library that is opened with RTLD_DEEPBIND looks for what it needs in
// itself and in what it is linked with, libc among that, before it looks at the program and what is
// preloaded: it would call libc's malloc and free, with blocks of ours among what it frees and
// blocks of libc's among what it gives. PHP opens its extensions like that.
#include <dlfcn.h>

#include <atomic>

#include "options.hpp"

#if defined(RTLD_DEEPBIND)

namespace {

using Opener = void* (*)(const char*, int);

[[nodiscard]] Opener next_opener() noexcept {
  static constinit std::atomic<Opener> known{nullptr};
  Opener next = known.load(std::memory_order_relaxed);
  if (next == nullptr) {
    next = reinterpret_cast<Opener>(dlsym(RTLD_NEXT, "dlopen"));
    known.store(next, std::memory_order_relaxed);
  }
  return next;
}

}  // namespace

// libc looks at who has called it: that tells where to search for the file, and in which namespace.
// The last call is a jump, so that this is our caller.
extern "C" [[gnu::visibility("default")]] void* dlopen(const char* file, int mode) noexcept {
  const Opener next = next_opener();
  if (next == nullptr) return nullptr;
  if (!allod::settings().keeps_deepbind) mode &= ~RTLD_DEEPBIND;
  return next(file, mode);
}

#endif

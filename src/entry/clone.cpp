// Interposes clone, for children that share their parent's memory, like vfork.
#include <sched.h>

#include "entry/surface.hpp"
#include "instance/process.hpp"
#include "libc/next_function.hpp"

namespace {

using Cloner = int (*)(int (*)(void*), void*, int, void*, void*, void*, void*);

constinit std::atomic<Cloner> cloner{nullptr};

}  // namespace

// libc's clone reads as many arguments as the flags demand, so passing more is harmless.
extern "C" {
[[gnu::visibility("default")]] int allod_clone(int (*function)(void*), void* stack, int flags,
                                               void* argument, void* parent, void* tls,
                                               void* child) noexcept __asm__("clone");
int allod_clone(int (*function)(void*), void* stack, int flags, void* argument, void* parent,
                void* tls, void* child) noexcept {
  const Cloner next = allod::next_function(cloner, "clone");
  if (next == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  constexpr int kKind = CLONE_VM | CLONE_THREAD | CLONE_SETTLS;
  if ((flags & kKind) == CLONE_VM) allod::Process::expect_guest();
  return next(function, stack, flags, argument, parent, tls, child);
}
}

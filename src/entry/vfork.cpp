// Interposes vfork. Its child shares the parent's memory and thread-local variables, but the kernel
// does not restart restartable sequences in it, so allocation must know. See
// ProcessHeap::expect_guest.
#include "allod/os/linux/vfork.hpp"
#include "entry/surface.hpp"
#include "instance/process.hpp"

extern "C" {
[[gnu::visibility("hidden"), gnu::used]] void allod_before_vfork() noexcept {
  allod::Process::expect_guest();
}
[[gnu::visibility("hidden"), gnu::used]] int allod_vfork_failed(int error) noexcept {
  errno = error;
  return -1;
}
}

#ifdef ALLOD_HAS_SEQUENCES
__asm__(ALLOD_VFORK_CODE);
#endif

// mlockall in front of libc's. With MCL_CURRENT the system reads every page that can be read, and
// the page map has six million that are never used: they would cost the program four seconds.
#include <sys/mman.h>
#include <sys/syscall.h>

#include "surface.hpp"

extern "C" [[gnu::visibility("default")]] int mlockall(int flags) noexcept {
  using allod::Process;
  if ((flags & MCL_CURRENT) != 0) {
    Process::ensure_started();
    auto& space = Process::heap().space();
    space.map().expect_reads(space.platform());
  }
  const long result = allod::raw_syscall(SYS_mlockall, flags);
  if (result == 0) return 0;
  errno = static_cast<int>(-result);
  return -1;
}

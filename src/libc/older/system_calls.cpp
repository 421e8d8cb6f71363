// System calls that glibc has functions for only since some release after 2.17, or that are newer
// there than their first version: as the kernel has them, hidden from the program.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "allod/base/cpu.hpp"

namespace {

template <class T>
long as_long(T* pointer) noexcept {
  return reinterpret_cast<long>(pointer);
}
long to_errno(long result) noexcept {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}
int status_of(int folder, const char* path, struct stat* status, int flags) noexcept {
  const long result =
      allod::raw_syscall(SYS_newfstatat, folder, as_long(path), as_long(status), flags);
  return static_cast<int>(to_errno(result));
}

}  // namespace

extern "C" {

int stat(const char* path, struct stat* status) noexcept {
  return status_of(AT_FDCWD, path, status, 0);
}
int lstat(const char* path, struct stat* status) noexcept {
  return status_of(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
int fstat(int file, struct stat* status) noexcept {
  return static_cast<int>(to_errno(allod::raw_syscall(SYS_fstat, file, as_long(status))));
}
int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  constexpr long kBytes = 8;
  const long result =
      allod::raw_syscall(SYS_rt_sigprocmask, how, as_long(set), as_long(before), kBytes);
  return static_cast<int>(-result);
}
ssize_t getrandom(void* bytes, size_t count, unsigned flags) {
  const long wanted = static_cast<long>(count);
  return to_errno(allod::raw_syscall(SYS_getrandom, as_long(bytes), wanted, flags));
}
int memfd_create(const char* name, unsigned flags) noexcept {
  return static_cast<int>(to_errno(allod::raw_syscall(SYS_memfd_create, as_long(name), flags)));
}
}

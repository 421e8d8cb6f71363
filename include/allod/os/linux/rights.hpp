// Makes a thread of our own drop the rights that the program drops.
//
// In Linux, every thread has its own credentials, inherited from its creator. libc's setuid and
// relatives change all threads known to libc, but not ours: in a program started by root, it would
// stay root.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>

#include "allod/base/auxiliary.hpp"
#include "allod/base/base.hpp"
#include "allod/os/linux/calls.hpp"

namespace allod::os {

// Used by one thread, which must share its open files with no other.
class LinuxRights {
 public:
  // Opens the main thread's status in a descriptor table of this thread's own, since the program
  // must not see the file, and may hide /proc by chroot. Does nothing without rights to drop. A
  // program that drops them before this thread starts has left it none; then nothing is asked that
  // its seccomp filter may forbid.
  void start() noexcept {
    file_ = -1;
    constexpr long kUnshare = 2;  // CLOSE_RANGE_UNSHARE, Linux 5.9
    if (Auxiliary::value(AT_EUID) != 0) return;
    if (Auxiliary::value(AT_UID) == 0 && raw_syscall(calls::kUser) != 0) return;
    if (raw_syscall(SYS_close_range, 0, ~0U, kUnshare) != 0) return;
    file_ = raw_syscall(SYS_openat, AT_FDCWD, as_long("/proc/self/status"), O_RDONLY | O_CLOEXEC);
  }
  // Takes on the main thread's user and group, and drops supplementary groups.
  ALLOD_HOT void follow() noexcept {
    if (file_ < 0) return;
    char text[2048];
    const long length = raw_syscall(SYS_pread64, file_, as_long(text), sizeof text - 1, 0);
    if (length <= 0) return;
    text[length] = '\0';
    Ids user;
    Ids group;
    if (!find(text, "\nUid:", &user) || !find(text, "\nGid:", &group)) return;
    if (user == own_ids(calls::kUsers) && group == own_ids(calls::kGroups)) return;
    // A change of user makes the process undumpable; restore what the program has set.
    const long dumpable = raw_syscall(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0);
    raw_syscall(calls::kSetFurtherGroups, 0, 0);
    raw_syscall(calls::kSetGroups, group.real, group.effective, group.saved);
    raw_syscall(calls::kSetUsers, user.real, user.effective, user.saved);
    if (dumpable == 1) raw_syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
  }

 private:
  struct Ids {
    std::uint32_t real = 0;
    std::uint32_t effective = 0;
    std::uint32_t saved = 0;
    bool operator==(const Ids&) const = default;
  };

  template <class T>
  static long as_long(T* pointer) noexcept {
    return static_cast<long>(reinterpret_cast<std::uintptr_t>(pointer));
  }
  static Ids own_ids(long call) noexcept {
    Ids ids;
    raw_syscall(call, as_long(&ids.real), as_long(&ids.effective), as_long(&ids.saved));
    return ids;
  }
  // Parses the three numbers behind a name at the start of a line. Without libc, like all on this
  // thread.
  ALLOD_HOT static bool find(const char* text, const char* name, Ids* ids) noexcept {
    for (; *text != '\0'; ++text) {
      std::size_t same = 0;
      while (name[same] != '\0' && text[same] == name[same]) ++same;
      if (name[same] != '\0') continue;
      text += same;
      return read(&text, &ids->real) && read(&text, &ids->effective) && read(&text, &ids->saved);
    }
    return false;
  }
  static bool read(const char** text, std::uint32_t* number) noexcept {
    while (**text == '\t' || **text == ' ') ++*text;
    const char* const first = *text;
    std::uint64_t value = 0;
    for (; **text >= '0' && **text <= '9' && value <= UINT32_MAX; ++*text) {
      value = value * 10 + static_cast<std::uint64_t>(**text - '0');
    }
    *number = static_cast<std::uint32_t>(value);
    return *text != first && value <= UINT32_MAX;
  }

  long file_ = -1;
};

}  // namespace allod::os

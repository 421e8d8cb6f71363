// What a thread of our own may do, once the program has given rights up.
//
// In Linux every thread has rights of its own, those of the thread that made it. setuid and its kin
// are libc's work, on all threads that libc knows, and ours is none of them: in a program that was
// started by root it would go on as root.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>

#include "allod/base/auxiliary.hpp"
#include "allod/base/base.hpp"

namespace allod::os {

// Used by one thread, which no other may share open files with.
class LinuxRights {
 public:
  // What the first thread of the process is told to be is looked at by a file of this thread's own:
  // the program sees nothing of it, and may close the way to it by chroot. Where there are no
  // rights to give up, nothing is done, and nothing asked that a filter of the program's may not
  // let pass: who drops them first and then starts this thread has left it none.
  void start() noexcept {
    file_ = -1;
    constexpr long kUnshare = 2;  // CLOSE_RANGE_UNSHARE, since Linux 5.9
    if (Auxiliary::value(AT_EUID) != 0) return;
    if (Auxiliary::value(AT_UID) == 0 && raw_syscall(SYS_getuid) != 0) return;
    if (raw_syscall(SYS_close_range, 0, ~0U, kUnshare) != 0) return;
    file_ = raw_syscall(SYS_openat, AT_FDCWD, as_long("/proc/self/status"), O_RDONLY | O_CLOEXEC);
  }
  // Becomes the user and the group that the first thread is. Its other groups are of no use here.
  ALLOD_HOT void follow() noexcept {
    if (file_ < 0) return;
    char text[2048];
    const long length = raw_syscall(SYS_pread64, file_, as_long(text), sizeof text - 1, 0);
    if (length <= 0) return;
    text[length] = '\0';
    Ids user;
    Ids group;
    if (!find(text, "\nUid:", &user) || !find(text, "\nGid:", &group)) return;
    if (user == own_ids(SYS_getresuid) && group == own_ids(SYS_getresgid)) return;
    // The kernel takes who becomes another for a program that others may not look at. What this one
    // has said about that stays.
    const long dumpable = raw_syscall(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0);
    raw_syscall(SYS_setgroups, 0, 0);
    raw_syscall(SYS_setresgid, group.real, group.effective, group.saved);
    raw_syscall(SYS_setresuid, user.real, user.effective, user.saved);
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
  // The three numbers behind a name at the start of a line. Without libc, like all on this thread.
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

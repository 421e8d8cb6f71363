// Whose memory it is that a process runs in. A child of vfork has that of its parent, which waits:
// what it changes there stays when it has gone, but its threads go with it.
#pragma once

#include <linux/kcmp.h>
#include <sys/syscall.h>

#include <atomic>

#include "allod/base/base.hpp"

namespace allod::os {

class LinuxGuest {
 public:
  // Of the calling process, whatever the C library remembers.
  [[nodiscard]] static long own_id() noexcept { return raw_syscall(SYS_getpid); }
  // The calling process is the one that the memory belongs to.
  static void note_owner() noexcept { owner_.store(own_id(), std::memory_order_relaxed); }

  // Is it a guest in the memory of another process? A child that was made by a bare system call,
  // and of which no handler knows, is none if the memory is a copy. Thread-safe.
  [[nodiscard]] static bool is_here() noexcept {
    const long owner = owner_.load(std::memory_order_relaxed);
    const long own = own_id();
    if (owner == 0 || owner == own) return false;
    // Not zero either where the system does not tell.
    if (raw_syscall(SYS_kcmp, own, owner, KCMP_VM, 0, 0) == 0) return true;
    owner_.store(own, std::memory_order_relaxed);
    return false;
  }

 private:
  static inline constinit std::atomic<long> owner_{0};
};

}  // namespace allod::os

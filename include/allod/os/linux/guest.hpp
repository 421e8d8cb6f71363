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

  // The calling thread is about to make a guest, which will run on its thread-local variables.
  static void expect() noexcept { host_ = own_id(); }
  // The process that the thread was in then; 0: it has made none.
  [[nodiscard]] static long host() noexcept { return host_; }
  // Is it a guest in the memory of another process? A child that was made by a bare system call,
  // and of which no handler knows, is none if the memory is a copy. Thread-safe.
  [[nodiscard]] ALLOD_HOT static bool is_here() noexcept {
    const long owner = owner_.load(std::memory_order_relaxed);
    const long own = own_id();
    if (owner == 0 || owner == own) return false;
    const long order = raw_syscall(SYS_kcmp, own, owner, KCMP_VM, 0, 0);
    if (order == 0) return true;
    // Where the system does not tell, it is one if it was expected.
    if (order < 0 && host_ != 0 && host_ != own) return true;
    owner_.store(own, std::memory_order_relaxed);
    return false;
  }

 private:
  static inline constinit std::atomic<long> owner_{0};
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local long host_ = 0;
};

}  // namespace allod::os

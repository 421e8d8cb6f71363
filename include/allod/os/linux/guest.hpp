// Detects processes that run in the memory of another: a child of vfork. Its parent waits. Its
// changes to memory persist, but its threads end with it.
#pragma once

#include <linux/kcmp.h>
#include <sys/syscall.h>

#include <atomic>

#include "allod/base/base.hpp"

namespace allod::os {

class LinuxGuest {
 public:
  // The real process id, whatever the C library caches.
  [[nodiscard]] static long own_id() noexcept { return raw_syscall(SYS_getpid); }
  // Notes that the memory belongs to the calling process.
  static void note_owner() noexcept { owner_.store(own_id(), std::memory_order_relaxed); }

  // To be called before the calling thread makes a guest, which shares its thread-local variables.
  static void expect() noexcept { host_ = own_id(); }
  // The process in which the thread last called expect(); 0: none.
  [[nodiscard]] static long host() noexcept { return host_; }
  // Whether the calling process is a guest. Also tells a guest from a child with a copy of the
  // memory that was made by a raw system call, without fork handlers. Thread-safe.
  [[nodiscard]] ALLOD_HOT static bool is_here() noexcept {
    const long owner = owner_.load(std::memory_order_relaxed);
    const long own = own_id();
    if (owner == 0 || owner == own) return false;
    const long order = raw_syscall(SYS_kcmp, own, owner, KCMP_VM, 0, 0);
    if (order == 0) return true;
    // If the kernel does not answer, assume a guest if one was expected.
    if (order < 0 && host_ != 0 && host_ != own) return true;
    owner_.store(own, std::memory_order_relaxed);
    return false;
  }

 private:
  static inline constinit std::atomic<long> owner_{0};
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local long host_ = 0;
};

}  // namespace allod::os

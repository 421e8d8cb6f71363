// Threads of our own, outside of any thread library.
//
// pthread_create allocates, takes the loader's locks and runs the program's hooks, so malloc must
// not call it. A helper is made by the clone system call, on a static stack, with signals blocked
// and its own thread pointer, so it shares neither errno nor thread-local variables with its
// creator. It may run only code that needs neither, except locks, whose counter is thread-local.
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allod/base/base.hpp"
#include "allod/base/lock.hpp"
#include "allod/os/linux/calls.hpp"
#include "allod/os/linux/clone.hpp"

namespace allod::os {

// Each `Use` has its own helper.
template <class Use>
class LinuxHelper {
 public:
  // Starts `function(argument)`. False if the helper already runs, or under ThreadSanitizer, which
  // cannot see it. A helper whose function has returned is waited for, some milliseconds at most.
  // Thread-safe.
  static bool start(void (*function)(void*), void* argument) noexcept {
    if constexpr (kThreadSanitizer) return false;
    std::uint32_t free = 0;
    if (!alive_.compare_exchange_strong(free, kStarting, std::memory_order_acquire) && !take()) {
      return false;
    }
    unsigned char* const pointer = thread_pointer();
    if (pointer == nullptr) {
      alive_.store(0, std::memory_order_release);
      return false;
    }
    std::uint64_t before = 0;
    raw_syscall(SYS_rt_sigprocmask, kBlock, as_long(&kBlocked), as_long(&before), sizeof kBlocked);
    const long thread = clone_onto(stack_ + kStackBytes, pointer, function, argument);
    if (thread > 0) thread_.store(static_cast<std::uint32_t>(thread), std::memory_order_relaxed);
    raw_syscall(SYS_rt_sigprocmask, kSetMask, as_long(&before), 0, sizeof before);
    if (thread < 0) alive_.store(0, std::memory_order_release);
    return thread > 0;
  }
  // Whether the helper runs this code. It must not call libc, whose functions may be interposed.
  [[nodiscard]] static bool is_here() noexcept {
    return address_of(__builtin_frame_address(0)) - address_of(stack_) < kStackBytes;
  }
  // Whether `thread` is this helper.
  [[nodiscard]] static bool is(std::uint32_t thread) noexcept {
    return alive_.load(std::memory_order_relaxed) == thread;
  }
  [[nodiscard]] static bool is_running() noexcept {
    return alive_.load(std::memory_order_relaxed) != 0;
  }
  // A child of fork has no helper.
  static void reset_after_fork() noexcept {
    alive_.store(0, std::memory_order_relaxed);
    thread_.store(0, std::memory_order_relaxed);
  }
  // True if none was started, or wait_until_gone() has seen its end.
  [[nodiscard]] static bool is_gone() noexcept {
    return thread_.load(std::memory_order_relaxed) == 0;
  }
  // Waits until the ending helper is no thread of the process any more; the kernel clears `alive_`
  // slightly earlier. False after about `milliseconds`. Returns true in a process that was cloned
  // with a copy of the memory, without fork handlers. Not for a guest, whose threads are others.
  // Thread-safe.
  [[nodiscard]] static bool wait_until_gone(std::uint32_t milliseconds) noexcept {
    std::uint32_t thread = thread_.load(std::memory_order_relaxed);
    if (thread == 0) return true;
    const long process = raw_syscall(SYS_getpid);
    std::uint32_t yields = 0;
    std::uint32_t naps = 0;
    for (;;) {
      const long error = raw_syscall(SYS_tgkill, process, thread, 0);
      // A seccomp filter may refuse this question.
      const bool may_ask = error == 0 || error == -ESRCH;
      if (error == -ESRCH || (!may_ask && !is(thread))) break;
      if (!is(thread) && ++yields < kMostYields) {
        raw_syscall(SYS_sched_yield);
      } else if (naps++ < milliseconds) {
        nap(thread);
      } else {
        return false;
      }
    }
    std::uint32_t alive = thread;
    alive_.compare_exchange_strong(alive, 0, std::memory_order_acquire);
    thread_.compare_exchange_strong(thread, 0, std::memory_order_relaxed);
    return true;
  }

 private:
  static constexpr std::uint32_t kStarting = 1;
  static constexpr std::uint32_t kMostYields = 256;
  static constexpr std::uint32_t kMostNaps = 4;
  static constexpr std::size_t kStackBytes = 16 * 1024;
  static constexpr std::size_t kThreadBlockBytes = 4096;
  // Room for other thread-local variables of this library around the known one.
  static constexpr std::size_t kAround = 512;
  // On the side of the thread pointer without variables of libraries.
  static constexpr std::size_t kBehind = kTlsIsAbove ? 2048 : 512;
  // All signals but SIGSYS: a sandbox may have a SIGSYS handler that emulates system calls, and a
  // blocked SIGSYS ends the process.
  static constexpr std::uint64_t kBlocked = ~(std::uint64_t{1} << (SIGSYS - 1));
  static constexpr long kBlock = 0;
  static constexpr long kSetMask = 2;
  // The kernel writes the thread's id to `alive_` before the thread runs, and clears it once the
  // thread has left its stack.
  static constexpr unsigned long kFlags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
                                          CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                                          CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;

  template <class T>
  static long as_long(T* pointer) noexcept {
    return static_cast<long>(reinterpret_cast<std::uintptr_t>(pointer));
  }

  // The stack belongs to the last helper until its thread is gone. Apart from the first try, since
  // every program runs that.
  static ALLOD_COLD bool take() noexcept {
    for (std::uint32_t turn = 0;; ++turn) {
      std::uint32_t before = 0;
      if (alive_.compare_exchange_strong(before, kStarting, std::memory_order_acquire)) return true;
      if (turn < kMostYields) {
        raw_syscall(SYS_sched_yield);
      } else if (turn < kMostYields + kMostNaps) {
        nap(before);
      } else {
        return false;
      }
    }
  }

  // Waits for 1 ms, or until the kernel has cleared `alive_`. Not FUTEX_PRIVATE: the kernel's wake
  // is shared.
  static void nap(std::uint32_t thread) noexcept {
    const timespec timeout{0, 1'000'000};
    raw_syscall(calls::kWait, as_long(&alive_), FUTEX_WAIT, thread, as_long(&timeout));
  }

  // Thread-local variables have the same distance from the thread pointer in every thread. It may
  // be large, since the program's variables lie in between. Null if memory is exhausted.
  static unsigned char* thread_pointer() noexcept {
    const Address here = address_of(allod::thread_pointer()) - kThreadPointerBias;
    const Address variable = HeldLocks::place();
    const std::size_t distance = (kTlsIsAbove ? variable - here : here - variable) + kAround;
    unsigned char* block = thread_block_;
    std::size_t bytes = kThreadBlockBytes;
    if (distance + kBehind > bytes) {
      bytes = align_up(distance + kBehind, kThreadBlockBytes);
      if (large_block_ == nullptr) {
        const long mapped =
            raw_syscall(calls::kMap, 0, static_cast<long>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped < 0 && mapped > -4096) return nullptr;
        large_block_ = reinterpret_cast<unsigned char*>(mapped);
      }
      block = large_block_;
    }
    return (kTlsIsAbove ? block + kBehind : block + bytes - kBehind) + kThreadPointerBias;
  }

#if defined(__x86_64__)
  static long clone_onto(unsigned char* top, unsigned char* pointer, void (*function)(void*),
                         void* argument) noexcept {
    auto* const block = reinterpret_cast<void**>(pointer);
    block[0] = block;  // the ABI reads the thread pointer through itself
    auto** const frame = reinterpret_cast<void**>(top) - 2;
    frame[0] = reinterpret_cast<void*>(function);
    frame[1] = argument;
    long result;
    register long r10 __asm__("r10") = as_long(&alive_);
    register long r8 __asm__("r8") = as_long(block);
    __asm__ volatile(
        "syscall\n\t"
        "test %%rax, %%rax\n\t"
        "jnz 1f\n\t"
        "xor %%ebp, %%ebp\n\t"
        "pop %%rax\n\t"
        "pop %%rdi\n\t"
        "call *%%rax\n\t"
        "xor %%edi, %%edi\n\t"
        "mov %[exit], %%eax\n\t"
        "syscall\n\t"
        "ud2\n"
        "1:"
        : "=a"(result)
        : "0"(static_cast<long>(SYS_clone)), "D"(kFlags), "S"(frame), "d"(&alive_), "r"(r10),
          "r"(r8), [exit] "i"(SYS_exit)
        : "rcx", "r11", "memory");
    return result;
  }
#elif defined(__aarch64__)
  static long clone_onto(unsigned char* top, unsigned char* pointer, void (*function)(void*),
                         void* argument) noexcept {
    auto** const frame = reinterpret_cast<void**>(top) - 2;
    frame[0] = reinterpret_cast<void*>(function);
    frame[1] = argument;
    register long x8 __asm__("x8") = SYS_clone;
    register long x0 __asm__("x0") = static_cast<long>(kFlags);
    register long x1 __asm__("x1") = as_long(frame);
    register long x2 __asm__("x2") = as_long(&alive_);
    register long x3 __asm__("x3") = as_long(pointer);
    register long x4 __asm__("x4") = as_long(&alive_);
    __asm__ volatile(
        "svc #0\n\t"
        "cbnz x0, 1f\n\t"
        "mov x29, xzr\n\t"
        "ldp x9, x0, [sp], #16\n\t"
        "blr x9\n\t"
        "mov x0, xzr\n\t"
        "mov x8, %[exit]\n\t"
        "svc #0\n\t"
        "brk #1\n"
        "1:"
        : "+r"(x0)
        : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), [exit] "i"(SYS_exit)
        : "memory");
    return x0;
  }
#else
  static long clone_onto(unsigned char* top, unsigned char* pointer, void (*function)(void*),
                         void* argument) noexcept {
    auto** const frame = reinterpret_cast<void**>(top) - 2;
    frame[0] = reinterpret_cast<void*>(function);
    frame[1] = argument;
    ThreadPointerArgument area{pointer};
    const int error = errno;
    const int thread =
        __clone(&run, frame, static_cast<int>(kFlags), frame, &alive_, area.value(), &alive_);
    const long result = thread > 0 ? thread : -errno;
    errno = error;
    return result;
  }
  // Does not return into libc, which may read what a thread of libc's has.
  static int run(void* what) noexcept {
    auto* const frame = static_cast<void**>(what);
    reinterpret_cast<void (*)(void*)>(frame[0])(frame[1]);
    raw_syscall(SYS_exit, 0);
    __builtin_trap();
  }
#endif

  static inline constinit std::atomic<std::uint32_t> alive_{0};
  static inline constinit std::atomic<std::uint32_t> thread_{0};  // the last one; 0: gone
  alignas(16) static inline unsigned char stack_[kStackBytes];
  alignas(64) static inline unsigned char thread_block_[kThreadBlockBytes];
  static inline constinit unsigned char* large_block_ = nullptr;
};

}  // namespace allod::os

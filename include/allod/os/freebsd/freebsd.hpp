// FreeBSD by calls of its C library, which keep errno.
#pragma once

#include <pthread_np.h>
#include <sched.h>
#include <signal.h>
#include <sys/cpuset.h>
#include <sys/param.h>
#include <sys/umtx.h>
#include <time.h>

#include "allod/os/bsd/bsd.hpp"

namespace allod::os {

class FreeBsd : public Bsd<-1> {
 public:
  [[nodiscard]] static void* reserve(std::size_t bytes, std::size_t alignment) noexcept {
    const auto power = static_cast<unsigned>(__builtin_ctzll(alignment));
    const KeptErrno kept;
    void* const memory = mmap(nullptr, bytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANON | static_cast<int>(MAP_ALIGNED(power)), -1, 0);
    return memory != MAP_FAILED ? memory : nullptr;
  }
  [[nodiscard]] static bool reserve_at(void* address, std::size_t bytes) noexcept {
    const KeptErrno kept;
    return mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANON | MAP_FIXED | MAP_EXCL, -1, 0) ==
           address;
  }
  static void dump(void* address, std::size_t bytes, bool wanted) noexcept {
    const KeptErrno kept;
    madvise(address, bytes, wanted ? MADV_CORE : MADV_NOCORE);
  }
  // There is no call that copies from memory that may be gone.
  [[nodiscard]] static int peek(void*, Address, std::size_t) noexcept { return ENOSYS; }

  [[nodiscard]] static std::uint64_t now_ms() noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC_FAST, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
           static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
  }
  [[nodiscard]] static std::uint32_t thread_id() noexcept {
    return static_cast<std::uint32_t>(pthread_getthreadid_np());
  }
  [[nodiscard]] static std::uint32_t processors() noexcept {
    const KeptErrno kept;
    cpuset_t own;
    CPU_ZERO(&own);
    if (cpuset_getaffinity(CPU_LEVEL_WHICH, CPU_WHICH_PID, -1, sizeof own, &own) != 0) {
      return Bsd::processors();
    }
    const auto count = static_cast<std::uint32_t>(CPU_COUNT(&own));
    return count > 0 ? count : 1;
  }
  [[nodiscard]] static std::uint32_t processor() noexcept {
    const KeptErrno kept;
    const int number = sched_getcpu();
    return number >= 0 ? static_cast<std::uint32_t>(number) : 0;
  }

  // Signals from 65 on do not fit into the mask that callers keep.
  [[nodiscard]] static std::uint64_t block_signals() noexcept {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    sigemptyset(&before);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const std::uint64_t lower = joined(before.__bits[0], before.__bits[1]);
    // Within another block_signals(), the outer one has kept them.
    if (lower != kAllButThose) upper_ = joined(before.__bits[2], before.__bits[3]);
    return lower;
  }
  static void restore_signals(std::uint64_t mask) noexcept {
    sigset_t before;
    if (mask == kAllButThose) {
      sigfillset(&before);
    } else {
      before.__bits[0] = static_cast<std::uint32_t>(mask);
      before.__bits[1] = static_cast<std::uint32_t>(mask >> 32);
      before.__bits[2] = static_cast<std::uint32_t>(upper_);
      before.__bits[3] = static_cast<std::uint32_t>(upper_ >> 32);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  static void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected) noexcept {
    const KeptErrno kept;
    _umtx_op(word, UMTX_OP_WAIT_UINT_PRIVATE, expected, nullptr, nullptr);
  }
  static void futex_wait_ms(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                            std::uint32_t milliseconds) noexcept {
    futex_wait_us(word, expected, std::uint64_t{milliseconds} * 1000);
  }
  static void futex_wait_us(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                            std::uint64_t microseconds) noexcept {
    const KeptErrno kept;
    timespec timeout{static_cast<time_t>(microseconds / 1'000'000),
                     static_cast<long>(microseconds % 1'000'000) * 1000};
    // The size tells that it is relative.
    _umtx_op(word, UMTX_OP_WAIT_UINT_PRIVATE, expected, reinterpret_cast<void*>(sizeof timeout),
             &timeout);
  }
  static void futex_wake(std::atomic<std::uint32_t>* word, int count) noexcept {
    const KeptErrno kept;
    _umtx_op(word, UMTX_OP_WAKE_PRIVATE, static_cast<unsigned long>(count), nullptr, nullptr);
  }

 private:
  [[nodiscard]] static std::uint64_t joined(std::uint32_t low, std::uint32_t high) noexcept {
    return low | std::uint64_t{high} << 32;
  }
  // SIGKILL and SIGSTOP are never in a mask that the system tells.
  static constexpr std::uint64_t kAllButThose =
      ~(std::uint64_t{1} << (SIGKILL - 1) | std::uint64_t{1} << (SIGSTOP - 1));

  ALLOD_THREAD_LOCAL(std::uint64_t, upper_, 0);
};

static_assert(Hosting<FreeBsd>);

}  // namespace allod::os

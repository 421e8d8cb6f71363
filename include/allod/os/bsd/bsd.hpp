// What macOS and FreeBSD have in common: the calls of BSD, and threads of POSIX.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "allod/base/thread_local.hpp"
#include "allod/os/absent.hpp"
#include "allod/os/bsd/helper.hpp"
#include "allod/os/platform.hpp"
#include "allod/os/posix/at_fork.hpp"
#include "allod/os/posix/thread_end.hpp"
#include "allod/os/present_pages.hpp"

namespace allod::os {

// Restores errno, which calls that fail change.
class KeptErrno {
 public:
  KeptErrno() noexcept : error_{errno} {}
  ~KeptErrno() { errno = error_; }
  KeptErrno(const KeptErrno&) = delete;
  KeptErrno& operator=(const KeptErrno&) = delete;

 private:
  int error_;
};

// What is the same on both, of os::Platform. `kNoFile`: what mmap takes for the file of anonymous
// memory.
//
// A reservation is not extended, so gathers() is false.
template <int kNoFile>
class Bsd : public PlainPages {
 public:
  void start() noexcept {
    const KeptErrno kept;
    const int page = getpagesize();
    if (page > 0) page_size_ = static_cast<std::size_t>(page);
  }
  [[nodiscard]] std::size_t page_size() const noexcept { return page_size_; }
  [[nodiscard]] static std::size_t address_space_limit() noexcept {
    const KeptErrno kept;
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur >= RLIM_INFINITY) return 0;
    return static_cast<std::size_t>(limit.rlim_cur);
  }
  // Containers are not seen.
  [[nodiscard]] static std::size_t memory_limit() noexcept { return 0; }
  [[nodiscard]] static std::uint32_t processor_quota() noexcept { return 0; }

  [[nodiscard]] static bool gathers() noexcept { return false; }
  [[nodiscard]] static void* reserve_zeros(std::size_t bytes) noexcept {
    return map_anonymous(bytes, PROT_READ);
  }
  [[nodiscard]] static bool commit(void* address, std::size_t bytes) noexcept {
    const KeptErrno kept;
    return mprotect(address, bytes, PROT_READ | PROT_WRITE) == 0;
  }
  [[nodiscard]] static void* map(std::size_t bytes) noexcept {
    return map_anonymous(bytes, PROT_READ | PROT_WRITE);
  }
  static void unmap(void* address, std::size_t bytes) noexcept {
    const KeptErrno kept;
    munmap(address, bytes);
  }
  // Maps the pages anew. MADV_FREE and MADV_FREE_REUSABLE would leave it open what they hold, and
  // MADV_FREE_REUSE would have to follow before their next use. But blocks on them may be promised
  // as zeros.
  [[nodiscard]] static bool purge(void* address, std::size_t bytes) noexcept {
    const KeptErrno kept;
    return mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_FIXED, kNoFile,
                0) == address;
  }
  [[nodiscard]] static bool purge_each(const Piece* pieces, std::size_t count) noexcept {
    bool is_any = false;
    for (; count > 0; --count, ++pieces) is_any |= purge(pieces->address, pieces->bytes);
    return is_any;
  }
  [[nodiscard]] static bool move(void*, std::size_t, void* target, std::size_t to) noexcept {
    unmap(target, to);
    return false;
  }
  [[nodiscard]] static void* map_huge(std::size_t, unsigned, int* error) noexcept {
    *error = ENOMEM;
    return nullptr;
  }
  [[nodiscard]] static bool look(void* address, std::size_t bytes, unsigned char* pages) noexcept {
    const KeptErrno kept;
    return mincore(address, bytes, reinterpret_cast<char*>(pages)) == 0;
  }
  [[nodiscard]] std::size_t present_bytes(void* address, std::size_t bytes,
                                          bool exact = false) const noexcept {
    return PresentPages::estimate(*this, address, bytes, exact);
  }
  [[nodiscard]] static int lock(void* address, std::size_t bytes) noexcept {
    const KeptErrno kept;
    return mlock(address, bytes) == 0 ? 0 : errno;
  }

  static void after_fork_in_child() noexcept { BsdHelper::reset_after_fork(); }
  [[nodiscard]] static std::uint32_t processors() noexcept {
    const KeptErrno kept;
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? static_cast<std::uint32_t>(count) : 1;
  }

  using Restartable = NoSequences;
  using Guest = NoGuests;
  using ThreadEnd = os::ThreadEnd;
  static void watch_forks(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept {
    at_fork(before, in_parent, in_child);
  }
  [[nodiscard]] static bool start_helper(void (*function)(void*), void* argument) noexcept {
    const KeptErrno kept;
    return BsdHelper::start(function, argument);
  }
  [[nodiscard]] static bool wait_for_helper() noexcept {
    const KeptErrno kept;
    return BsdHelper::wait_until_gone();
  }

  // Without it, slow paths have fences of their own, and nobody calls barrier().
  [[nodiscard]] static bool start_barriers() noexcept { return false; }
  static void barrier() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }
  static void yield() noexcept {
    const KeptErrno kept;
    sched_yield();
  }
  [[nodiscard]] static void* self() noexcept { return pthread_self(); }
  static ALLOD_INLINE void*& own_word() noexcept { return own_word_; }

 private:
  [[nodiscard]] static void* map_anonymous(std::size_t bytes, int protection) noexcept {
    const KeptErrno kept;
    void* const memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANON, kNoFile, 0);
    return memory != MAP_FAILED ? memory : nullptr;
  }

  std::size_t page_size_ = 4096;
  ALLOD_THREAD_LOCAL_ZEROS(void*, own_word_);
};

}  // namespace allod::os

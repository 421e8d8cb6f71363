// The calling thread's area for restartable sequences (rseq), which the kernel reads and writes. A
// thread has one at most: the C library's (glibc 2.35 and later), one of the allocator's own, or
// another library's, which the allocator does not use.
#pragma once

#include <errno.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allod/base/base.hpp"
#include "allod/os/linux/guest.hpp"

extern "C" {
// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier)
// glibc 2.35 and later: offset and size of the area that it registers for each thread; size 0 if
// that failed or is not wanted.
[[gnu::weak]] extern const std::ptrdiff_t __rseq_offset;
[[gnu::weak]] extern const unsigned __rseq_size;
// Of librseq. Never called: a process that has it registers threads itself, and ends if it cannot.
[[gnu::weak]] int rseq_register_current_thread();
// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier)
}

namespace allod::os {

// All functions but start() are about the calling thread.
class SequenceArea {
 public:
  // What the kernel demands before the code at which an interrupted sequence goes on: an
  // instruction that ends the program. One for all libraries of a process.
#if defined(__x86_64__)
  static constexpr long kSignature = 0x53053053;
#else
  static constexpr long kSignature = 0xd428bc00;
#endif

  // To be called once, first: whether threads have an area, or may get one by enter().
  [[nodiscard]] static bool start() noexcept {
    if (is_libcs()) {
      offset_ = __rseq_offset;
      return true;
    }
    // The kernel refuses the address 0 with this error, if it has the call.
    if (&rseq_register_current_thread != nullptr || rseq(0, 0, 0) != -EINVAL) return false;
    offset_ = reinterpret_cast<const char*>(&own_) - static_cast<const char*>(thread_pointer());
    is_own_ = true;
    return true;
  }
  // After start(): the area's distance from the thread pointer, the same for all threads.
  [[nodiscard]] static ALLOD_INLINE std::ptrdiff_t offset() noexcept { return offset_; }

  // Whether enter() has to be called.
  [[nodiscard]] static ALLOD_INLINE bool is_missing() noexcept {
    return is_own_ && own_.processor == kNone;
  }
  // Whether the thread will never have an area.
  [[nodiscard]] static bool is_refused() noexcept { return is_own_ && own_.processor == kRefused; }
  // Registers the thread's own area, which then tells its processor. leave() must follow before the
  // memory of its thread-local variables goes. If another library has registered the thread, or the
  // kernel refuses for another reason, no thread is registered from now on. Safe in signal
  // handlers.
  static ALLOD_HOT void enter() noexcept {
    // A guest would register the area of its host, which the kernel would not know of.
    if (LinuxGuest::is_here()) return;
    if (!is_given_up_.load(std::memory_order_relaxed)) {
      const long result = rseq(address_of(&own_), sizeof own_, 0);
      // A signal handler may have done it since is_missing().
      if (result == 0 || result == -EBUSY) return;
      is_given_up_.store(true, std::memory_order_relaxed);
    }
    own_.processor = kRefused;
  }
  // Undoes enter(), if that was called.
  static void leave() noexcept {
    if (is_own_ && own_.processor >= 0) rseq(address_of(&own_), sizeof own_, kUnregister);
  }

  // The thread's current processor; negative without an area. A hint.
  [[nodiscard]] static std::int32_t processor() noexcept {
    if (!is_libcs()) return own_.processor;
    const auto* const area = static_cast<const char*>(thread_pointer()) + __rseq_offset;
    return *reinterpret_cast<const volatile std::int32_t*>(area + kProcessor);
  }

 private:
  // As the kernel lays it out (struct rseq of <linux/rseq.h>). It writes `processor` whenever the
  // thread may have moved.
  struct alignas(32) Area {
    std::uint32_t processor_at_start;
    volatile std::int32_t processor;
    std::uint64_t sequence;
    std::uint32_t unused[4];
  };
  static_assert(sizeof(Area) == 32);
  static constexpr std::ptrdiff_t kProcessor = 4;
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int32_t kRefused = -2;
  static constexpr long kUnregister = 1;

  [[nodiscard]] static bool is_libcs() noexcept {
    return &__rseq_offset != nullptr && &__rseq_size != nullptr && __rseq_size != 0;
  }
  static long rseq(Address area, std::size_t bytes, long flags) noexcept {
    return raw_syscall(SYS_rseq, static_cast<long>(area), static_cast<long>(bytes), flags,
                       kSignature);
  }

  static inline std::ptrdiff_t offset_ = 0;
  static inline bool is_own_ = false;
  static inline constinit std::atomic<bool> is_given_up_{false};
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Area own_{
      0, kNone, 0, {}};
};

}  // namespace allod::os

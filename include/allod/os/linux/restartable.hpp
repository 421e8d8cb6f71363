// Per-processor stacks without atomic instructions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allod/base/base.hpp"

#if defined(__linux__)

// glibc 2.35 and later: offset and size of the rseq area that it registers for each thread; size 0
// if that failed.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier)
[[gnu::weak]] extern const std::ptrdiff_t __rseq_offset;
[[gnu::weak]] extern const unsigned __rseq_size;
// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier)
}

#endif

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>

#include <atomic>
#endif

namespace allod::os {

#if defined(__linux__)
// The calling thread's current processor, from its rseq area; negative without one. A hint.
[[nodiscard]] inline std::int32_t own_processor() noexcept {
  if (&__rseq_offset == nullptr || &__rseq_size == nullptr || __rseq_size == 0) return -1;
  const auto* const area = static_cast<const char*>(__builtin_thread_pointer()) + __rseq_offset;
  return *reinterpret_cast<const volatile std::int32_t*>(area + 4);
}
#endif

// The outcome of a sequence. `moved`: the thread was interrupted or migrated. Unless `done`,
// nothing has happened.
enum class Sequence : std::uint8_t { done, refused, moved };

// Linux restartable sequences (rseq): a sequence ends with a single store. If the kernel interrupts
// a thread in it, to run another thread or a signal handler, the thread restarts at an abort
// handler. So only one thread of a processor is within a sequence, without a lock. Per-processor
// magazines by this means are Paul Turner's and Andrew Hunter's idea, who brought it to Google's
// tcmalloc.
//
// A stack grows upwards from *bottom to *limit, and holds no null; *top is one cell above the
// newest. Only threads of one processor use it.
#if defined(__x86_64__) && defined(__linux__)

// The start of a sequence: its descriptor for the kernel (start, length, abort handler), and the
// store that activates it, through a register that is still free. Then it checks that the thread is
// on the expected processor and that sequences are not closed. Glibc's signature must precede the
// abort handler. A sequence that gives up jumps to `refused`.
#define ALLOD_SEQUENCE(spare)                             \
  ".pushsection .data.rel.ro.allod_sequence, \"aw?\"\n\t" \
  ".balign 32\n"                                          \
  "7:\n\t"                                                \
  ".long 0, 0\n\t"                                        \
  ".quad 1f, 2f - 1f, 3f\n\t"                             \
  ".popsection\n\t"                                       \
  ".pushsection .text.hot.allod_sequence, \"ax?\"\n\t"    \
  ".byte 0x0f, 0xb9, 0x3d\n\t"                            \
  ".long 0x53053053\n"                                    \
  "3:\n\t"                                                \
  "jmp %l[moved]\n\t"                                     \
  ".popsection\n\t"                                       \
  "leaq 7b(%%rip), %[" #spare                             \
  "]\n\t"                                                 \
  "movq %[" #spare                                        \
  "], %%fs:8(%[area])\n"                                  \
  "1:\n\t"                                                \
  "cmpl %k[processor], %%fs:4(%[area])\n\t"               \
  "jne %l[moved]\n\t"                                     \
  "cmpl $0, %[closed]\n\t"                                \
  "jne %l[refused]\n\t"
#define ALLOD_SEQUENCE_INPUTS \
  [area] "r"(place.area), [processor] "r"(place.processor), [closed] "m"(closed_)

class Restartable {
 public:
  // To be called once, first: whether sequences are available.
  [[nodiscard]] static bool start() noexcept {
    // ThreadSanitizer cannot see their stores.
    if (kThreadSanitizer || &__rseq_offset == nullptr || &__rseq_size == nullptr) return false;
    area_ = __rseq_offset;
    return __rseq_size != 0 && expect_closings();
  }
  // Refuses all sequences from now on, on all threads, and waits until none is running. False if
  // the kernel refuses; the stacks are not at rest then. In either case open() must follow. Calls
  // may nest across threads. Takes some microseconds on each processor that runs a thread of the
  // process. Linux 5.10 and later.
  [[nodiscard]] static bool close() noexcept {
    closed_.fetch_add(1);
    return raw_syscall(SYS_membarrier, kInterruptSequences) == 0;
  }
  // In a child forked by a signal handler, reset_in_child() may have opened what the interrupted
  // code closed.
  static void open() noexcept {
    int times = closed_.load(std::memory_order_relaxed);
    while (times > 0 && !closed_.compare_exchange_weak(times, times - 1)) {
    }
  }
  // In the child of a fork: opens all.
  static void reset_in_child() noexcept {
    closed_.store(0, std::memory_order_relaxed);
    static_cast<void>(expect_closings());
  }
  // The calling thread's area and processor; the processor has a high number without an area.
  struct Place {
    std::ptrdiff_t area;
    std::size_t processor;
  };
  [[nodiscard]] static ALLOD_INLINE Place place() noexcept {
    Place here{area_, 0};
    __asm__ volatile("movl %%fs:4(%1), %k0" : "=r"(here.processor) : "r"(here.area));
    return here;
  }
  [[nodiscard]] static ALLOD_INLINE Sequence push(Place place, void*** top, void** const* limit,
                                                  void* block) noexcept {
    void** free;
    __asm__ volatile goto(ALLOD_SEQUENCE(free)
                 "movq (%[top]), %[free]\n\t"
                 "cmpq %[limit], %[free]\n\t"
                 "je %l[refused]\n\t"
                 "movq %[block], (%[free])\n\t"
                 "addq $8, %[free]\n\t"
                 "movq %[free], (%[top])\n"
                 "2:\n\t"
                 : [free] "=&r"(free)
                 : [top] "r"(top), [limit] "m"(*limit), [block] "r"(block), ALLOD_SEQUENCE_INPUTS
                 : "memory", "cc"
                 : moved, refused);
    return Sequence::done;
  moved:
    return Sequence::moved;
  refused:
    return Sequence::refused;
  }
  [[nodiscard]] static ALLOD_INLINE Sequence pop(Place place, void*** top, void** const* bottom,
                                                 void** block) noexcept {
    void** newest;
    void* found;
    __asm__ volatile goto(ALLOD_SEQUENCE(newest)
                 "movq (%[top]), %[newest]\n\t"
                 "cmpq %[bottom], %[newest]\n\t"
                 "je %l[refused]\n\t"
                 "movq -8(%[newest]), %[found]\n\t"
                 "subq $8, %[newest]\n\t"
                 "movq %[newest], (%[top])\n"
                 "2:\n\t"
                 : [newest] "=&r"(newest), [found] "=&r"(found)
                 : [top] "r"(top), [bottom] "m"(*bottom), ALLOD_SEQUENCE_INPUTS
                 : "memory", "cc"
                 : moved, refused);
    if (found == nullptr) __builtin_unreachable();
    *block = found;
    return Sequence::done;
  moved:
    return Sequence::moved;
  refused:
    return Sequence::refused;
  }

 private:
  // MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ and its registration, which older headers lack.
  static constexpr long kInterruptSequences = 1 << 7;
  static constexpr long kExpectInterrupts = 1 << 8;

  [[nodiscard]] static bool expect_closings() noexcept {
    return raw_syscall(SYS_membarrier, kExpectInterrupts) == 0;
  }

  static inline std::ptrdiff_t area_ = 0;
  static inline std::atomic<int> closed_{0};
};

#undef ALLOD_SEQUENCE
#undef ALLOD_SEQUENCE_INPUTS

#else

class Restartable {
 public:
  [[nodiscard]] static bool start() noexcept { return false; }
  [[nodiscard]] static bool close() noexcept { return false; }
  static void open() noexcept {}
  static void reset_in_child() noexcept {}
  struct Place {
    std::size_t processor;
  };
  [[nodiscard]] static Place place() noexcept { return {~std::size_t{0}}; }
  [[nodiscard]] static Sequence push(Place, void***, void** const*, void*) noexcept {
    return Sequence::moved;
  }
  [[nodiscard]] static Sequence pop(Place, void***, void** const*, void**) noexcept {
    return Sequence::moved;
  }
};

#endif

}  // namespace allod::os

// Per-processor stacks without atomic instructions.
#pragma once

#include <sys/syscall.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allod/base/base.hpp"
#include "allod/os/linux/sequence_area.hpp"
#include "allod/os/platform.hpp"

#if defined(__aarch64__)
#include <sys/utsname.h>
#endif

namespace allod::os {

#ifdef ALLOD_HAS_SEQUENCES

// Linux restartable sequences (rseq): a sequence ends with a single store. If the kernel interrupts
// a thread in it, to run another thread or a signal handler, the thread restarts at an abort
// handler. So only one thread of a processor is within a sequence, without a lock. Per-processor
// magazines by this means are Paul Turner's and Andrew Hunter's idea, who brought it to Google's
// tcmalloc.
//
// A stack grows upwards from *bottom to *limit, and holds no null; *top is one cell above the
// newest. Only threads of one processor use it.

// The start of a sequence: its descriptor for the kernel (start, length, abort handler), and the
// store that activates it, through a register that is still free. Then it checks that the thread is
// on the expected processor and that sequences are not closed. SequenceArea::kSignature must
// precede the abort handler. A sequence that gives up jumps to `refused`.
#if defined(__x86_64__)

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

#elif defined(__aarch64__)

#define ALLOD_SEQUENCE(spare)                             \
  ".pushsection .data.rel.ro.allod_sequence, \"aw?\"\n\t" \
  ".balign 32\n"                                          \
  "7:\n\t"                                                \
  ".long 0, 0\n\t"                                        \
  ".quad 1f, 2f - 1f, 3f\n\t"                             \
  ".popsection\n\t"                                       \
  ".pushsection .text.hot.allod_sequence, \"ax?\"\n\t"    \
  ".inst 0xd428bc00\n"                                    \
  "3:\n\t"                                                \
  "b %l[moved]\n\t"                                       \
  ".popsection\n\t"                                       \
  "adrp %[" #spare                                        \
  "], 7b\n\t"                                             \
  "add %[" #spare "], %[" #spare                          \
  "], :lo12:7b\n\t"                                       \
  "str %[" #spare                                         \
  "], [%[area], #8]\n"                                    \
  "1:\n\t"                                                \
  "ldr %w[" #spare                                        \
  "], [%[area], #4]\n\t"                                  \
  "cmp %w[" #spare                                        \
  "], %w[processor]\n\t"                                  \
  "b.ne %l[moved]\n\t"                                    \
  "ldr %w[" #spare                                        \
  "], %[closed]\n\t"                                      \
  "cbnz %w[" #spare "], %l[refused]\n\t"

#endif

#define ALLOD_SEQUENCE_INPUTS \
  [area] "r"(place.area), [processor] "r"(place.processor), [closed] "m"(closed_)

class Restartable {
 public:
  using Area = SequenceArea;

  // To be called once, first: whether sequences are available to threads that have an area.
  [[nodiscard]] static bool start() noexcept {
    // ThreadSanitizer cannot see their stores.
    return !kThreadSanitizer && restarts() && Area::start() && expect_closings();
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
#if defined(__x86_64__)
  struct Place {
    std::ptrdiff_t area;  // from the thread pointer
    std::size_t processor;
  };
  [[nodiscard]] static ALLOD_INLINE Place place() noexcept {
    Place here{Area::offset(), 0};
    __asm__ volatile("movl %%fs:4(%1), %k0" : "=r"(here.processor) : "r"(here.area));
    return here;
  }
#elif defined(__aarch64__)
  struct Place {
    char* area;
    std::size_t processor;
  };
  [[nodiscard]] static ALLOD_INLINE Place place() noexcept {
    Place here{static_cast<char*>(__builtin_thread_pointer()) + Area::offset(), 0};
    __asm__ volatile("ldr %w0, [%1, #4]" : "=r"(here.processor) : "r"(here.area));
    return here;
  }
#endif
  [[nodiscard]] static ALLOD_INLINE Sequence push(Place place, void*** top, void** const* limit,
                                                  void* block) noexcept {
    void** free;
#if defined(__x86_64__)
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
#elif defined(__aarch64__)
    void** end;
    __asm__ volatile goto(ALLOD_SEQUENCE(free)
                 "ldr %[free], [%[top]]\n\t"
                 "ldr %[end], %[limit]\n\t"
                 "cmp %[free], %[end]\n\t"
                 "b.eq %l[refused]\n\t"
                 "str %[block], [%[free]], #8\n\t"
                 "str %[free], [%[top]]\n"
                 "2:\n\t"
                 : [free] "=&r"(free), [end] "=&r"(end)
                 : [top] "r"(top), [limit] "m"(*limit), [block] "r"(block), ALLOD_SEQUENCE_INPUTS
                 : "memory", "cc"
                 : moved, refused);
#endif
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
#if defined(__x86_64__)
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
#elif defined(__aarch64__)
    __asm__ volatile goto(ALLOD_SEQUENCE(newest)
                 "ldr %[newest], [%[top]]\n\t"
                 "ldr %[found], %[bottom]\n\t"
                 "cmp %[newest], %[found]\n\t"
                 "b.eq %l[refused]\n\t"
                 "ldr %[found], [%[newest], #-8]!\n\t"
                 "str %[newest], [%[top]]\n"
                 "2:\n\t"
                 : [newest] "=&r"(newest), [found] "=&r"(found)
                 : [top] "r"(top), [bottom] "m"(*bottom), ALLOD_SEQUENCE_INPUTS
                 : "memory", "cc"
                 : moved, refused);
#endif
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

  // Linux 6.19 for arm64 restarts no sequence of a thread that comes back to the processor on which
  // it was interrupted. Nothing tells whether a later release before 7.1 has been mended.
  [[nodiscard]] static bool restarts() noexcept {
#if defined(__aarch64__)
    utsname system{};
    const auto here = reinterpret_cast<std::uintptr_t>(&system);
    if (raw_syscall(SYS_uname, static_cast<long>(here)) != 0) return false;
    const char* rest = system.release;
    const unsigned major = number(&rest);
    if (*rest == '.') ++rest;
    const unsigned release = major * 1000 + number(&rest);
    return release < 6019 || release >= 7001;
#else
    return true;
#endif
  }
  [[nodiscard]] static unsigned number(const char** text) noexcept {
    unsigned value = 0;
    for (; **text >= '0' && **text <= '9'; ++*text) {
      value = value * 10 + static_cast<unsigned>(**text - '0');
    }
    return value;
  }

  static inline constinit std::atomic<int> closed_{0};
};

#undef ALLOD_SEQUENCE
#undef ALLOD_SEQUENCE_INPUTS

#else

// A processor for which they are not written. No thread has a place on a processor.
class Restartable {
 public:
  using Area = SequenceArea;
  struct Place {
    std::size_t processor;
  };

  [[nodiscard]] static bool start() noexcept { return false; }
  [[nodiscard]] static bool close() noexcept { return true; }
  static void open() noexcept {}
  static void reset_in_child() noexcept {}
  [[nodiscard]] static Place place() noexcept { return {~std::size_t{0}}; }
  [[nodiscard]] static Sequence push(Place, void***, void** const*, void*) noexcept {
    return Sequence::refused;
  }
  [[nodiscard]] static Sequence pop(Place, void***, void** const*, void**) noexcept {
    return Sequence::refused;
  }
};

#endif

}  // namespace allod::os

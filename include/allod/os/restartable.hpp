// Stacks that the threads of one processor share without an atomic instruction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allod/base/base.hpp"

#if defined(__x86_64__) && defined(__linux__)

// Of the C library, since glibc 2.35: where the area of each thread lies that it has registered
// with the kernel, and how large it is, 0 if that failed.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier)
[[gnu::weak]] extern const std::ptrdiff_t __rseq_offset;
[[gnu::weak]] extern const unsigned __rseq_size;
// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier)
}

#endif

namespace allod::os {

// How a sequence came out: `moved` when the thread was interrupted, or is on another processor;
// nothing has then happened.
enum class Sequence : std::uint8_t { done, refused, moved };

// Restartable sequences of Linux (rseq, since 4.18): a run of instructions that ends with one
// store. The kernel makes a thread begin anew that it has interrupted there, to run another thread
// on the processor or a signal handler. Of the threads of one processor, so, one at a time is
// within such a run, without a lock. The idea of magazines for each processor by such means is
// Paul Turner's and Andrew Hunter's, who brought it to Google's tcmalloc.
//
// A stack grows upwards from `bottom`; *top is one cell behind the newest. It is used by the
// threads of one processor alone.
#if defined(__x86_64__) && defined(__linux__)

// What stands before a sequence: its description for the kernel (where it begins, how long it is,
// where a thread goes on that was interrupted), and the order to watch over it, by way of a
// register that the sequence does not need yet. It begins with the question whether the thread is
// where its caller believes. Code to go on at must have glibc's signature before it.
#define ALLOD_SEQUENCE(spare)                             \
  ".pushsection .data.rel.ro.allod_sequence, \"aw?\"\n\t" \
  ".balign 32\n"                                          \
  "7:\n\t"                                                \
  ".long 0, 0\n\t"                                        \
  ".quad 1f, 2f - 1f, 3f\n\t"                             \
  ".popsection\n\t"                                       \
  "movl %[moved], %[outcome]\n\t"                         \
  "leaq 7b(%%rip), %[" #spare                             \
  "]\n\t"                                                 \
  "movq %[" #spare                                        \
  "], %%fs:8(%[area])\n"                                  \
  "1:\n\t"                                                \
  "cmpl %[processor], %%fs:4(%[area])\n\t"                \
  "jne 4f\n\t"
// What stands behind its last store. Where it gives up it jumps to 5.
#define ALLOD_SEQUENCE_END                         \
  "2:\n\t"                                         \
  "movl %[done], %[outcome]\n"                     \
  "4:\n\t"                                         \
  ".pushsection .text.allod_sequence, \"ax?\"\n\t" \
  ".byte 0x0f, 0xb9, 0x3d\n\t"                     \
  ".long 0x53053053\n"                             \
  "3:\n\t"                                         \
  "jmp 4b\n"                                       \
  "5:\n\t"                                         \
  "movl %[refused], %[outcome]\n\t"                \
  "jmp 4b\n\t"                                     \
  ".popsection\n\t"
#define ALLOD_SEQUENCE_OUTCOMES                                                                 \
  [moved] "i"(static_cast<int>(Sequence::moved)), [done] "i"(static_cast<int>(Sequence::done)), \
      [refused] "i"(static_cast<int>(Sequence::refused))

class Restartable {
 public:
  // Once, before the others are called: can there be sequences at all?
  [[nodiscard]] static bool start() noexcept {
    // ThreadSanitizer does not see what they do.
    if (kThreadSanitizer || &__rseq_offset == nullptr || &__rseq_size == nullptr) return false;
    area_ = __rseq_offset;
    return __rseq_size != 0;
  }
  // The one that the thread is on, or a negative number for a thread that has no area.
  [[nodiscard]] static ALLOD_INLINE std::int32_t processor() noexcept {
    std::int32_t number;
    __asm__ volatile("movl %%fs:4(%1), %0" : "=r"(number) : "r"(area_));
    return number;
  }
  [[nodiscard]] static ALLOD_INLINE Sequence push(std::int32_t processor, void*** top, void** limit,
                                                  void* block) noexcept {
    void** free;
    int outcome;
    __asm__ volatile(ALLOD_SEQUENCE(free)
                     "movq (%[top]), %[free]\n\t"
                     "cmpq %[limit], %[free]\n\t"
                     "je 5f\n\t"
                     "movq %[block], (%[free])\n\t"
                     "addq $8, %[free]\n\t"
                     "movq %[free], (%[top])\n" ALLOD_SEQUENCE_END
                     : [free] "=&r"(free), [outcome] "=&r"(outcome)
                     : [area] "r"(area_), [processor] "r"(processor), [top] "r"(top),
                       [limit] "r"(limit), [block] "r"(block), ALLOD_SEQUENCE_OUTCOMES
                     : "memory", "cc");
    return static_cast<Sequence>(outcome);
  }
  [[nodiscard]] static ALLOD_INLINE Sequence pop(std::int32_t processor, void*** top, void** bottom,
                                                 void** block) noexcept {
    void** newest;
    int outcome;
    __asm__ volatile(ALLOD_SEQUENCE(newest)
                     "movq (%[top]), %[newest]\n\t"
                     "cmpq %[bottom], %[newest]\n\t"
                     "je 5f\n\t"
                     "movq -8(%[newest]), %[found]\n\t"
                     "subq $8, %[newest]\n\t"
                     "movq %[newest], (%[top])\n" ALLOD_SEQUENCE_END
                     : [newest] "=&r"(newest), [found] "=&r"(*block), [outcome] "=&r"(outcome)
                     : [area] "r"(area_), [processor] "r"(processor), [top] "r"(top),
                       [bottom] "r"(bottom), ALLOD_SEQUENCE_OUTCOMES
                     : "memory", "cc");
    return static_cast<Sequence>(outcome);
  }

 private:
  static inline std::ptrdiff_t area_ = 0;
};

#undef ALLOD_SEQUENCE
#undef ALLOD_SEQUENCE_END
#undef ALLOD_SEQUENCE_OUTCOMES

#else

class Restartable {
 public:
  [[nodiscard]] static bool start() noexcept { return false; }
  [[nodiscard]] static std::int32_t processor() noexcept { return -1; }
  [[nodiscard]] static Sequence push(std::int32_t, void***, void**, void*) noexcept {
    return Sequence::moved;
  }
  [[nodiscard]] static Sequence pop(std::int32_t, void***, void**, void**) noexcept {
    return Sequence::moved;
  }
};

#endif

}  // namespace allod::os

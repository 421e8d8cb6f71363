// IBM Z, 64 bits, big-endian.
#pragma once

#include <sys/syscall.h>

namespace allod {

// More than the 42 of mappings that are placed without a wish, unless these are used up.
inline constexpr unsigned kAddressBits = 47;
inline constexpr bool kTlsIsAbove = false;
inline constexpr std::size_t kThreadPointerBias = 0;

ALLOD_INLINE void cpu_relax() noexcept { __asm__ volatile("" ::: "memory"); }

// The kernel takes the arguments of mmap in memory.
ALLOD_INLINE long raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                              long e = 0, long f = 0) noexcept {
  const long in_memory[] = {a, b, c, d, e, f};
  if (number == SYS_mmap) a = reinterpret_cast<long>(&in_memory);
  register long r1 __asm__("r1") = number;
  register long r2 __asm__("r2") = a;
  register long r3 __asm__("r3") = b;
  register long r4 __asm__("r4") = c;
  register long r5 __asm__("r5") = d;
  register long r6 __asm__("r6") = e;
  register long r7 __asm__("r7") = f;
  __asm__ volatile("svc 0"
                   : "+r"(r2)
                   : "r"(r1), "r"(r3), "r"(r4), "r"(r5), "r"(r6), "r"(r7)
                   : "memory");
  return r2;
}

}  // namespace allod

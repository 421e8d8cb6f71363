// 32-bit ARM, ARMv7 and later.
#pragma once

namespace allod {

inline constexpr unsigned kAddressBits = 32;
inline constexpr bool kTlsIsAbove = true;
inline constexpr std::size_t kThreadPointerBias = 0;

ALLOD_INLINE void cpu_relax() noexcept { __asm__ volatile("yield" ::: "memory"); }

// r7 may be the frame pointer of Thumb code and cannot be named: the number takes its place in
// between.
ALLOD_INLINE long raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                              long e = 0, long f = 0) noexcept {
  register long r0 __asm__("r0") = a;
  register long r1 __asm__("r1") = b;
  register long r2 __asm__("r2") = c;
  register long r3 __asm__("r3") = d;
  register long r4 __asm__("r4") = e;
  register long r5 __asm__("r5") = f;
  long saved;
  __asm__ volatile(
      "mov %[saved], r7\n\t"
      "mov r7, %[number]\n\t"
      "svc #0\n\t"
      "mov r7, %[saved]"
      : "+r"(r0), [saved] "=&r"(saved)
      : [number] "r"(number), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5)
      : "memory");
  return r0;
}

}  // namespace allod

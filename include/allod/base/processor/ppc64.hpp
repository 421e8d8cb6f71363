// 64-bit POWER, little-endian.
#pragma once

namespace allod {

// Those of mappings that are placed without a wish, on kernels with larger address spaces too.
inline constexpr unsigned kAddressBits = 47;
inline constexpr bool kTlsIsAbove = true;
inline constexpr std::size_t kThreadPointerBias = 0x7000;

// Lowers the thread's priority on its core, and raises it again.
ALLOD_INLINE void cpu_relax() noexcept { __asm__ volatile("or 1,1,1\n\tor 2,2,2" ::: "memory"); }

// The kernel sets a bit of the condition register where it fails, and returns a positive number.
ALLOD_INLINE long raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                              long e = 0, long f = 0) noexcept {
  register long r0 __asm__("r0") = number;
  register long r3 __asm__("r3") = a;
  register long r4 __asm__("r4") = b;
  register long r5 __asm__("r5") = c;
  register long r6 __asm__("r6") = d;
  register long r7 __asm__("r7") = e;
  register long r8 __asm__("r8") = f;
  __asm__ volatile(
      "sc\n\t"
      "bns+ 1f\n\t"
      "neg 3, 3\n"
      "1:"
      : "+r"(r0), "+r"(r3), "+r"(r4), "+r"(r5), "+r"(r6), "+r"(r7), "+r"(r8)
      :
      : "memory", "cr0", "ctr", "r9", "r10", "r11", "r12");
  return r3;
}

}  // namespace allod

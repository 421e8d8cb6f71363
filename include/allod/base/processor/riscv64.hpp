// 64-bit RISC-V.
#pragma once

namespace allod {

// Those of mappings that are placed without a wish, on kernels with larger address spaces too.
inline constexpr unsigned kAddressBits = 47;
inline constexpr bool kTlsIsAbove = true;
inline constexpr std::size_t kThreadPointerBias = 0;

// `pause` of the extension Zihintpause, which is a hint: older processors ignore it.
ALLOD_INLINE void cpu_relax() noexcept { __asm__ volatile(".word 0x0100000f" ::: "memory"); }

ALLOD_INLINE long raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                              long e = 0, long f = 0) noexcept {
  register long a7 __asm__("a7") = number;
  register long a0 __asm__("a0") = a;
  register long a1 __asm__("a1") = b;
  register long a2 __asm__("a2") = c;
  register long a3 __asm__("a3") = d;
  register long a4 __asm__("a4") = e;
  register long a5 __asm__("a5") = f;
  __asm__ volatile("ecall"
                   : "+r"(a0)
                   : "r"(a7), "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5)
                   : "memory");
  return a0;
}

}  // namespace allod

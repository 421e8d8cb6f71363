// 32-bit x86.
#pragma once

namespace allod {

// All addresses that pointers can hold.
inline constexpr unsigned kAddressBits = 32;
inline constexpr bool kTlsIsAbove = false;
inline constexpr std::size_t kThreadPointerBias = 0;

ALLOD_INLINE void cpu_relax() noexcept { __builtin_ia32_pause(); }

// ebp may be the frame pointer and cannot be named: the sixth argument takes its place in between.
ALLOD_INLINE long raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                              long e = 0, long f = 0) noexcept {
  long result;
  __asm__ volatile(
      "pushl %[f]\n\t"
      "pushl %%ebp\n\t"
      "movl 4(%%esp), %%ebp\n\t"
      "int $0x80\n\t"
      "popl %%ebp\n\t"
      "addl $4, %%esp"
      : "=a"(result)
      : "0"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e), [f] "m"(f)
      : "memory", "cc");
  return result;
}

}  // namespace allod

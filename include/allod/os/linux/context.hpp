// Registers of code that a signal has interrupted.
#pragma once

#include <ucontext.h>

#include "allod/base/base.hpp"

namespace allod::os {

// Bytes below the stack pointer that code may use.
#if defined(__x86_64__)
inline constexpr Address kRedZone = 128;
#elif defined(__powerpc64__)
inline constexpr Address kRedZone = 288;
#else
inline constexpr Address kRedZone = 0;
#endif

struct InterruptedCode {
  Address at;  // the next instruction
  Address stack;
  // If a system call was interrupted: its result, or its number if the kernel makes it anew, and
  // its second argument.
  long result;
  long number;
  long second;

  explicit InterruptedCode(const ucontext_t& context) noexcept {
    const auto& machine = context.uc_mcontext;
#if defined(__x86_64__)
    set(machine.gregs[REG_RIP], machine.gregs[REG_RSP], machine.gregs[REG_RAX],
        machine.gregs[REG_RAX], machine.gregs[REG_RSI]);
#elif defined(__i386__)
    set(machine.gregs[REG_EIP], machine.gregs[REG_ESP], machine.gregs[REG_EAX],
        machine.gregs[REG_EAX], machine.gregs[REG_ECX]);
#elif defined(__aarch64__)
    set(machine.pc, machine.sp, machine.regs[0], machine.regs[8], machine.regs[1]);
#elif defined(__arm__)
    set(machine.arm_pc, machine.arm_sp, machine.arm_r0, machine.arm_r7, machine.arm_r1);
#elif defined(__riscv)
    set(machine.__gregs[REG_PC], machine.__gregs[REG_SP], machine.__gregs[REG_A0],
        machine.__gregs[REG_A0 + 7], machine.__gregs[REG_A0 + 1]);
#elif defined(__powerpc64__)
    constexpr int kNext = 32;
    set(machine.gp_regs[kNext], machine.gp_regs[1], machine.gp_regs[3], machine.gp_regs[0],
        machine.gp_regs[4]);
#elif defined(__s390x__)
    set(machine.psw.addr, machine.gregs[15], machine.gregs[2], machine.gregs[1], machine.gregs[3]);
#endif
  }

  // Whether the instruction there is a system call. False where that is not known.
  [[nodiscard]] static bool is_call(Address place) noexcept {
    const auto* const code = reinterpret_cast<const unsigned char*>(place);
#if defined(__x86_64__)
    return code[0] == 0x0f && code[1] == 0x05;  // syscall
#elif defined(__aarch64__)
    return *reinterpret_cast<const std::uint32_t*>(code) == 0xd4000001;  // svc #0
#else
    static_cast<void>(code);
    return false;
#endif
  }
#if defined(__x86_64__)
  static constexpr Address kCallBytes = 2;
#else
  static constexpr Address kCallBytes = 4;
#endif

 private:
  template <class... Values>
  void set(Values... values) noexcept {
    const long all[] = {static_cast<long>(values)...};
    at = static_cast<Address>(all[0]);
    stack = static_cast<Address>(all[1]);
    result = all[2];
    number = all[3];
    second = all[4];
  }
};

}  // namespace allod::os

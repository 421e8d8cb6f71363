// How the kernel's struct sigaction says where handlers return to.
#pragma once

#include <cstdint>

#if defined(__x86_64__)

// The handler's return trampoline. Debuggers and unwinders recognise it by exactly these
// instructions.
extern "C" [[gnu::visibility("hidden")]] void allod_return_from_signal();
__asm__(
    ".pushsection .text\n"
    ".balign 16\n"
    "nop\n"  // so that the byte before belongs to no other function
    ".hidden allod_return_from_signal\n"
    ".weak allod_return_from_signal\n"
    ".type allod_return_from_signal, @function\n"
    "allod_return_from_signal:\n\t"
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05\n"
    ".size allod_return_from_signal, . - allod_return_from_signal\n"
    ".popsection");

#endif

namespace allod::os {

using SignalReturn = void (*)();

#if defined(__x86_64__)
inline constexpr SignalReturn kSignalReturn = &allod_return_from_signal;
inline constexpr unsigned long kSignalReturnFlag = 0x04000000;  // SA_RESTORER
#else
// To the code that the kernel has for it.
inline constexpr SignalReturn kSignalReturn = nullptr;
inline constexpr unsigned long kSignalReturnFlag = 0;
#endif

// The kernel's struct sigaction behind the handler. The mask is in words of the processor.
struct SignalActionRest {
  unsigned long flags = 0;
#if !defined(__riscv)
  SignalReturn restorer = kSignalReturn;
#endif
  unsigned long mask[sizeof(std::uint64_t) / sizeof(long)] = {};
};

}  // namespace allod::os

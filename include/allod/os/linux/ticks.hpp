// The clock of traces: a counter that all processors of a machine share, with ticks of a few
// nanoseconds.
#pragma once

#include <cstdint>

#include "allod/base/base.hpp"
#include "allod/os/linux/vdso.hpp"

namespace allod::os {

#if defined(__x86_64__)

inline constexpr unsigned kTickShift = 4;

// About a microsecond.
inline constexpr std::uint64_t kBriefTicks = 128;

// rdtscp waits for all earlier loads, so a release is timed after the block was handed over. Later
// stores become visible after the read, so a release is timed before its memory can be allocated
// again.
ALLOD_INLINE std::uint64_t read_ticks() noexcept {
  unsigned processor;
  return __builtin_ia32_rdtscp(&processor) >> kTickShift;
}

#elif defined(__aarch64__)

// At 24 to 62 MHz a few microseconds; at 1 GHz 128 ns.
inline constexpr std::uint64_t kBriefTicks = 128;

// The same order: the first isb waits for earlier instructions, the second holds back later ones.
ALLOD_INLINE std::uint64_t read_ticks() noexcept {
  std::uint64_t value;
  __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(value)::"memory");
  return value;
}

#else

// Nanoseconds of the system's clock: about a microsecond.
inline constexpr std::uint64_t kBriefTicks = 1024;

inline std::uint64_t read_ticks() noexcept {
  timespec now{};
  Vdso::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

#endif

}  // namespace allod::os

// The clock of a trace: a counter of the processor that all its cores share, a few nanoseconds to a
// tick.
#pragma once

#include <cstdint>

#include "allod/base/base.hpp"

namespace allod::record {

#if defined(__x86_64__)

inline constexpr unsigned kTickShift = 4;

// About a microsecond.
inline constexpr std::uint64_t kBriefTicks = 128;

// Not later than any store that follows: stores are seen in order, and after the read.
ALLOD_INLINE std::uint64_t ticks_before() noexcept { return __builtin_ia32_rdtsc() >> kTickShift; }

// Not earlier than any load that came before: rdtscp waits for them.
ALLOD_INLINE std::uint64_t ticks_after() noexcept {
  unsigned processor;
  return __builtin_ia32_rdtscp(&processor) >> kTickShift;
}

#elif defined(__aarch64__)

// A few microseconds where the counter has the usual 24 to 62 MHz, less where it has 1 GHz.
inline constexpr std::uint64_t kBriefTicks = 128;

ALLOD_INLINE std::uint64_t ticks_after() noexcept {
  std::uint64_t value;
  __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(value)::"memory");
  return value;
}

// A store that follows can be seen before the counter is read, unless something waits for it.
ALLOD_INLINE std::uint64_t ticks_before() noexcept {
  const std::uint64_t value = ticks_after();
  __asm__ volatile("isb" ::: "memory");
  return value;
}

#endif

}  // namespace allod::record

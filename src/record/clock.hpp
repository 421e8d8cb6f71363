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

// Not earlier than any load that came before: rdtscp waits for them. And not later than any store
// that follows: stores are seen in order, and after the read. The first orders a block's release
// after what handed the block over, the second before its memory can be allocated again.
ALLOD_INLINE std::uint64_t read_ticks() noexcept {
  unsigned processor;
  return __builtin_ia32_rdtscp(&processor) >> kTickShift;
}

#elif defined(__aarch64__)

// A few microseconds where the counter has the usual 24 to 62 MHz, less where it has 1 GHz.
inline constexpr std::uint64_t kBriefTicks = 128;

// The same two: nothing before is still under way, and nothing that follows begins before the read.
ALLOD_INLINE std::uint64_t read_ticks() noexcept {
  std::uint64_t value;
  __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(value)::"memory");
  return value;
}

#endif

}  // namespace allod::record

// System calls that have other numbers on processors with 32 bits.
#pragma once

#include <sys/syscall.h>
#include <time.h>

#include "allod/base/cpu.hpp"

namespace allod::os::calls {

// The offset of a mapping is in pages there; ours is 0.
#if defined(SYS_mmap2)
inline constexpr long kMap = SYS_mmap2;
#else
inline constexpr long kMap = SYS_mmap;
#endif

// Those with the same name know 16 bits of an id there.
#if defined(SYS_getuid32)
inline constexpr long kUser = SYS_getuid32;
inline constexpr long kUsers = SYS_getresuid32;
inline constexpr long kGroups = SYS_getresgid32;
inline constexpr long kSetUsers = SYS_setresuid32;
inline constexpr long kSetGroups = SYS_setresgid32;
inline constexpr long kSetFurtherGroups = SYS_setgroups32;
#else
inline constexpr long kUser = SYS_getuid;
inline constexpr long kUsers = SYS_getresuid;
inline constexpr long kGroups = SYS_getresgid;
inline constexpr long kSetUsers = SYS_setresuid;
inline constexpr long kSetGroups = SYS_setresgid;
inline constexpr long kSetFurtherGroups = SYS_setgroups;
#endif

// pread64, whose offset is a pair of words there, on some at an even place.
inline long read_at(long file, void* to, std::size_t bytes, std::uint64_t offset) noexcept {
  const auto at = reinterpret_cast<long>(to);
  const auto count = static_cast<long>(bytes);
  const auto low = static_cast<long>(offset);
  [[maybe_unused]] const auto high = static_cast<long>(offset >> 32);
#if defined(__arm__)
  return raw_syscall(SYS_pread64, file, at, count, 0, low, high);
#elif defined(__i386__)
  return raw_syscall(SYS_pread64, file, at, count, low, high);
#else
  return raw_syscall(SYS_pread64, file, at, count, low);
#endif
}

// Of `struct stat64`, which is `struct stat` with 64 bits.
#if defined(SYS_fstat64)
inline constexpr long kStatusOfFile = SYS_fstat64;
#else
inline constexpr long kStatusOfFile = SYS_fstat;
#endif
#if defined(SYS_fstatat64)
inline constexpr long kStatusOfPath = SYS_fstatat64;
#else
inline constexpr long kStatusOfPath = SYS_newfstatat;
#endif

// Whether times have 64 bits and words 32: a choice of the program that compiles this.
inline constexpr bool kHasWideTimes = sizeof(time_t) > sizeof(long);
#if defined(SYS_futex_time64) && defined(SYS_clock_gettime64)
inline constexpr long kWait = kHasWideTimes ? SYS_futex_time64 : SYS_futex;
inline constexpr long kClock = kHasWideTimes ? SYS_clock_gettime64 : SYS_clock_gettime;
#else
inline constexpr long kWait = SYS_futex;
inline constexpr long kClock = SYS_clock_gettime;
#endif

}  // namespace allod::os::calls

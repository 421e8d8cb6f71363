// Secrets from the system.
#pragma once

#include "allod/base/cpu.hpp"
#include "allod/base/units.hpp"

#if defined(__APPLE__)
#include <sys/random.h>
#elif defined(__FreeBSD__)
#include <unistd.h>
#elif !defined(_WIN32)
#include <fcntl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>

#include "allod/base/auxiliary.hpp"
#endif

namespace allod::random {

[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  // The finaliser of splitmix64, after S. Vigna.
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

#if defined(_WIN32)

extern "C" unsigned char allod_random_bytes(void* bytes, std::uint32_t count) noexcept
    __asm__("SystemFunction036");  // RtlGenRandom, of advapi32

// A secret from the system. It answers always.
[[nodiscard]] inline std::uint64_t secret() noexcept {
  std::uint64_t word = 0;
  allod_random_bytes(&word, sizeof word);
  return word;
}

#elif defined(__APPLE__) || defined(__FreeBSD__)

// A secret from the system. It answers always.
[[nodiscard]] inline std::uint64_t secret() noexcept {
  std::uint64_t word = 0;
  static_cast<void>(getentropy(&word, sizeof word));
  return word;
}

#else

// A secret from getrandom. In early boot, when that has no entropy, from AT_RANDOM and the clock.
[[nodiscard]] ALLOD_HOT inline std::uint64_t secret() noexcept {
  std::uint64_t word = 0;
  const long got =
      raw_syscall(SYS_getrandom, reinterpret_cast<long>(&word), sizeof word, GRND_NONBLOCK);
  if (got == sizeof word) return word;
  if (const unsigned long bytes = Auxiliary::value(AT_RANDOM); bytes != 0) {
    __builtin_memcpy(&word, reinterpret_cast<const void*>(bytes), sizeof word);
  }
  timespec now{};
  raw_syscall(SYS_clock_gettime, CLOCK_MONOTONIC, reinterpret_cast<long>(&now));
  return mixed(word ^ static_cast<std::uint64_t>(now.tv_nsec) ^ reinterpret_cast<Address>(&now));
}

#endif

}  // namespace allod::random

// Random numbers: secrets from the system, and quick ones for each thread.
#pragma once

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>

#include "allod/base/base.hpp"

namespace allod::random {

[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  // The finaliser of splitmix64, after S. Vigna.
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// From the system. Where it has none yet, in early boot, from what it gave the process at start.
[[nodiscard]] inline std::uint64_t secret() noexcept {
  std::uint64_t word = 0;
  const long got =
      raw_syscall(SYS_getrandom, reinterpret_cast<long>(&word), sizeof word, GRND_NONBLOCK);
  if (got == sizeof word) return word;
  if (const unsigned long bytes = getauxval(AT_RANDOM); bytes != 0) {
    __builtin_memcpy(&word, reinterpret_cast<const void*>(bytes), sizeof word);
  }
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return mixed(word ^ static_cast<std::uint64_t>(now.tv_nsec) ^ reinterpret_cast<Address>(&now));
}

[[gnu::tls_model("initial-exec")]] inline constinit thread_local std::uint64_t thread_state = 0;

// Of the calling thread's sequence: xorshift64*, after S. Vigna. Not a secret.
[[nodiscard]] inline std::uint64_t word() noexcept {
  std::uint64_t x = thread_state;
  while (__builtin_expect(x == 0, 0)) x = secret();
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  thread_state = x;
  return x * 0x2545f4914f6cdd1d;
}
// 0 to bound - 1.
[[nodiscard]] inline std::uint32_t below(std::uint32_t bound) noexcept {
  return static_cast<std::uint32_t>((word() >> 32) * bound >> 32);
}
// The calling thread's sequence starts anew, from the system.
inline void reseed() noexcept { thread_state = 0; }

inline void shuffle(void** items, std::uint32_t count) noexcept {
  for (std::uint32_t left = count; left > 1; --left) {
    const std::uint32_t chosen = below(left);
    void* const item = items[chosen];
    items[chosen] = items[left - 1];
    items[left - 1] = item;
  }
}

}  // namespace allod::random

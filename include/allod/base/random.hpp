// Random numbers: secrets from the system, and quick ones.
#pragma once

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>

#include "allod/base/cpu.hpp"
#include "allod/base/units.hpp"

namespace allod::random {

[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  // The finaliser of splitmix64, after S. Vigna.
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Both halves of the product, one upon the other, after Wang Yi's wyhash. Unlike what the lower
// half alone tells, one factor does not follow from some results and the other factors bit by bit.
[[nodiscard]] constexpr ALLOD_INLINE std::uint64_t folded_product(std::uint64_t a,
                                                                  std::uint64_t b) noexcept {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// From the system. Where it has none yet, in early boot, from what it gave the process at start.
[[nodiscard]] ALLOD_HOT inline std::uint64_t secret() noexcept {
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

// xorshift64*, after S. Vigna, from a secret on. Not itself a secret. Used by one thread at a time.
class Sequence {
 public:
  constexpr Sequence() noexcept = default;

  [[nodiscard]] std::uint64_t word() noexcept {
    std::uint64_t x = state_;
    while (__builtin_expect(x == 0, 0)) x = secret();
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    state_ = x;
    return x * 0x2545f4914f6cdd1d;
  }
  // 0 to bound - 1.
  [[nodiscard]] std::uint32_t below(std::uint32_t bound) noexcept {
    return static_cast<std::uint32_t>((word() >> 32) * bound >> 32);
  }
  // Of at most 65,536 items. Four of them share a word: what 16 bits cannot divide evenly makes a
  // difference of one in a thousand where there are 64.
  void shuffle(void** items, std::uint32_t count) noexcept {
    std::uint64_t rest = 0;
    for (std::uint32_t left = count; left > 1; --left, rest <<= 16) {
      if (left % 4 == 0 || left == count) rest = word();
      const auto chosen = static_cast<std::uint32_t>((rest >> 48) * left >> 16);
      void* const item = items[chosen];
      items[chosen] = items[left - 1];
      items[left - 1] = item;
    }
  }
  // Starts anew, from the system.
  void reseed() noexcept { state_ = 0; }

 private:
  std::uint64_t state_ = 0;
};

// Of the calling thread.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local Sequence own;

[[nodiscard]] inline std::uint64_t word() noexcept { return own.word(); }
inline void reseed() noexcept { own.reseed(); }
inline void shuffle(void** items, std::uint32_t count) noexcept { own.shuffle(items, count); }

}  // namespace allod::random

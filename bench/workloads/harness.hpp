// What every workload shares: parameters, random numbers, memory that does not come from the
// allocator under test, the measured part, and the one JSON object that a workload prints.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace bench {

// Ends the process with status 1 after one line on stderr.
[[noreturn, gnu::cold, gnu::format(printf, 1, 2)]] void die(const char* format, ...);

// A whole number that the command line sets as `--name VALUE`; *value holds the default before.
struct Parameter {
  const char* name;
  std::uint64_t* value;
  std::uint64_t least;
  std::uint64_t most;
  const char* meaning;
};

class Workload {
 public:
  template <std::size_t N>
  constexpr Workload(const char* name, const char* meaning, const Parameter (&parameters)[N])
      : name_(name), meaning_(meaning), parameters_(parameters), count_(N) {}

  // Sets the parameters from the command line. A mistake there ends the process with status 2,
  // `--help` with status 0.
  void parse(int argc, char** argv) const;

  // The measured part begins and ends; each is called once, by the main thread.
  void start();
  void stop();

  // Adds a member to the printed object; the text is JSON and starts with its key.
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...);

  // Prints the object. The checksum depends on the parameters alone, never on an address, so that
  // it is the same under every correct allocator.
  void report(std::uint64_t ops, std::uint64_t checksum);

 private:
  struct Usage {
    double wall;
    double user;
    double system;
    long minor_faults;
    long major_faults;
    long voluntary_switches;
    long involuntary_switches;
  };
  static Usage usage();

  const char* name_;
  const char* meaning_;
  const Parameter* parameters_;
  std::size_t count_;
  Usage before_{};
  Usage after_{};
};

// Nanoseconds of CLOCK_MONOTONIC.
std::uint64_t now();

// Zeroed memory straight from the system, never given back.
void* map_memory(std::size_t bytes);

template <class T>
T* map_array(std::size_t count) {
  return static_cast<T*>(map_memory(count * sizeof(T)));
}

// Calls body(context, index) on `count` new threads, and returns when all have ended. `ready` runs
// on the calling thread when every thread waits in pass_gate(), `done` when every body returned.
struct Crew {
  void (*body)(void* context, std::size_t index);
  void* context;
  void (*ready)(void* context);
  void (*done)(void* context);
};
inline constexpr std::size_t kMostThreads = 256;
void run_threads(std::size_t count, const Crew& crew);

// Each thread of a crew calls this once, between its warm-up and its measured part.
void pass_gate();

// Sizes spread evenly from least to most, inclusive, repeatable by seed.
std::uint16_t* size_table(std::size_t count, std::uint64_t least, std::uint64_t most,
                          std::uint64_t seed);

// malloc that must succeed.
[[gnu::always_inline]] inline unsigned char* allocate(std::size_t bytes) {
  void* block = std::malloc(bytes);
  if (block == nullptr) [[unlikely]] {
    die("malloc(%zu) failed", bytes);
  }
  return static_cast<unsigned char*>(block);
}

// The compiler must take it that the address is seen elsewhere.
[[gnu::always_inline]] inline void escape(void* address) { asm volatile("" : : "r"(address)); }

[[gnu::always_inline]] inline void write_byte(unsigned char* at, std::uint64_t value) {
  *static_cast<volatile unsigned char*>(at) = static_cast<unsigned char>(value);
}

[[gnu::always_inline]] inline std::uint64_t read_byte(const unsigned char* at) {
  return *static_cast<const volatile unsigned char*>(at);
}

inline std::uint64_t mix(std::uint64_t sum, std::uint64_t value) {
  return (sum ^ value) * 0x9E3779B97F4A7C15U + (sum >> 29U);
}

// xorshift64* (Marsaglia 2003, Vigna 2016): a few cycles, and good upper bits.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mix(0x2545F4914F6CDD1DU, seed + 1) | 1U) {}

  std::uint64_t next() {
    state_ ^= state_ >> 12U;
    state_ ^= state_ << 25U;
    state_ ^= state_ >> 27U;
    return state_ * 0x2545F4914F6CDD1DU;
  }

  // Below `bound`, which fits in 32 bits.
  std::uint64_t below(std::uint64_t bound) { return ((next() >> 32U) * bound) >> 32U; }

 private:
  std::uint64_t state_;
};

}  // namespace bench

// What every workload shares: parameters, random numbers, memory that does not come from the
// allocator under test, the measured part, and the one JSON object that a workload prints.
#pragma once

#include <pthread.h>
#include <sched.h>

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

// Something over time, or over another axis. More points than it holds end the process.
struct Series {
  static constexpr std::size_t kMost = 500;

  const char* name;
  const char* x;
  const char* y;
  std::size_t count = 0;
  double points[kMost][2] = {};

  void add(double at, double value);
};

// The percentiles that a workload reports of single calls, in parts of 100,000.
inline constexpr std::uint64_t kPercentiles[] = {50'000, 90'000, 99'000, 99'900,
                                                 99'990, 99'999, 100'000};
inline constexpr std::size_t kPercentileCount = sizeof kPercentiles / sizeof kPercentiles[0];

class Workload {
 public:
  template <std::size_t N>
  constexpr Workload(const char* name, const char* meaning, const Parameter (&parameters)[N])
      : name_(name), meaning_(meaning), parameters_(parameters), count_(N) {}

  // Sets the parameters from the command line. A mistake there ends the process with status 2,
  // `--help` with status 0.
  void parse(int argc, char** argv) const;

  // Ends the process with status 2: the parameters do not go together.
  [[noreturn, gnu::cold]] void refuse(const char* why) const;

  // The measured part begins and ends, by the main thread; if there are several, they add up.
  void start();
  void stop();

  // Calls body(index) for each index below `threads`, on a thread of its own; for a single one on
  // the main thread, since a program without threads is what the figures of one thread are about.
  // What comes after pass_gate() is measured.
  void run(std::size_t threads, void (*body)(std::size_t index));

  // Results beside the time. All of a kind are added in a row, and the texts need no escaping.
  // Whether less or more is better is told by these very words.
  void point(const char* name, double nanoseconds);
  void series(const Series& series);
  void percentiles(const char* name, const double (&nanoseconds)[kPercentileCount]);
  void figure(const char* name, double value, const char* unit = "", const char* better = "less");

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
  void open_list(const char* key);
  void close_list();

  const char* name_;
  const char* meaning_;
  const Parameter* parameters_;
  std::size_t count_;
  Usage before_{};
  Usage spent_{};
  const char* list_ = nullptr;
};

// Nanoseconds of CLOCK_MONOTONIC.
std::uint64_t now();

// Zeroed memory straight from the system, never given back.
void* map_memory(std::size_t bytes);
void* map_resident_memory(std::size_t bytes);

template <class T>
T* map_array(std::size_t count) {
  return static_cast<T*>(map_memory(count * sizeof(T)));
}

// As above, and in memory from the start: a table that counts as the program's own before the first
// block is allocated.
template <class T>
T* map_resident_array(std::size_t count) {
  return static_cast<T*>(map_resident_memory(count * sizeof(T)));
}

// Resident size of the process in KiB: now, now but exactly, and at its highest. The kernel counts
// in batches for each processor (since Linux 6.2), by which the first may be wrong; the second
// walks the page tables.
std::uint64_t resident_kib();
std::uint64_t exact_resident_kib();
std::uint64_t peak_resident_kib();

// How much resident memory was added since `base_kib`, for each byte of `live`.
double over_live(std::uint64_t resident_kib, std::uint64_t base_kib, std::uint64_t live);

// Starts a thread, which the caller joins.
pthread_t start_thread(void* (*body)(void*), void* argument);

// Calls body(context, index) on `count` new threads, and returns when all have ended. `ready` runs
// on the calling thread when every thread waits in pass_gate(), `done` when every body returned.
struct Crew {
  void (*body)(void* context, std::size_t index);
  void* context;
  void (*ready)(void* context);
  void (*done)(void* context);
};
inline constexpr std::size_t kMostThreads = 1024;
void run_threads(std::size_t count, const Crew& crew);

// Each thread of a crew calls this once, between its warm-up and its measured part.
void pass_gate();

// Waits for something that another thread does. It usually happens within a batch's time; if the
// other is not running, let it run.
template <class Condition>
void wait_until(Condition condition) {
  for (unsigned spins = 0; !condition(); ++spins) {
    if (spins < 256) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("isb");
#endif
    } else {
      sched_yield();
    }
  }
}

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

// A block and what was written to it: a stamp in its first and its last byte, and between them once
// in each page of 4 KiB.
struct Block {
  unsigned char* at;
  std::uint32_t size;
  std::uint32_t stamp;
};

[[gnu::always_inline]] inline void touch(const Block& block) {
  for (std::size_t at = 4096; at < block.size; at += 4096) {
    write_byte(block.at + at, block.stamp);
  }
  write_byte(block.at, block.stamp);
  write_byte(block.at + block.size - 1, block.stamp);
}

[[gnu::always_inline]] inline Block make_block(std::uint64_t size, std::uint64_t stamp) {
  const Block block{allocate(size), static_cast<std::uint32_t>(size),
                    static_cast<std::uint32_t>(stamp)};
  touch(block);
  return block;
}

// Ends the process if the first or the last byte is not as written; returns a part of a checksum.
[[gnu::always_inline]] inline std::uint64_t verify(const Block& block) {
  const std::uint64_t first = read_byte(block.at);
  if (first != (block.stamp & 0xFFU) || read_byte(block.at + block.size - 1) != first)
      [[unlikely]] {
    die("a block of %u bytes was overwritten", block.size);
  }
  return first + block.size;
}

[[gnu::always_inline]] inline std::uint64_t free_block(const Block& block) {
  const std::uint64_t sum = verify(block);
  std::free(block.at);
  return sum;
}

inline std::uint64_t mix(std::uint64_t sum, std::uint64_t value) {
  return (sum ^ value) * 0x9E3779B97F4A7C15U + (sum >> 29U);
}

// A block that says itself what was written to it, and that can be in a list: a table of blocks
// would be a good part of a process whose memory is the question. As with a block above, its last
// byte is that of the stamp, and each page is written to.
struct Item {
  static constexpr std::uint64_t kLeast = 24;

  Item* next;
  std::uint32_t size;
  std::uint32_t stamp;
};

inline Item* make_item(std::uint64_t size, std::uint64_t stamp) {
  const Block block = make_block(size, stamp);
  auto* item = reinterpret_cast<Item*>(block.at);
  *item = {nullptr, block.size, block.stamp};
  escape(item);
  return item;
}

// Of no item at all, this is 0. The sum does not depend on the order.
inline std::uint64_t free_item(Item* item) {
  if (item == nullptr) {
    return 0;
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(item);
  if (read_byte(bytes + item->size - 1) != (item->stamp & 0xFFU)) [[unlikely]] {
    die("a block of %u bytes was overwritten", item->size);
  }
  const std::uint64_t sum = mix(item->stamp, item->size);
  std::free(item);
  return sum;
}

// Items in the order in which they came.
class Queue {
 public:
  void add(Item* item) {
    *end_ = item;
    end_ = &item->next;
  }

  // The first one, which leaves the queue, or null.
  Item* take() {
    Item* item = first_;
    if (item != nullptr) {
      first_ = item->next;
      end_ = first_ == nullptr ? &first_ : end_;
    }
    return item;
  }

  const Item* first() const { return first_; }

  std::uint64_t free_all() {
    std::uint64_t sum = 0;
    while (Item* item = take()) {
      sum += free_item(item);
    }
    return sum;
  }

 private:
  Item* first_ = nullptr;
  Item** end_ = &first_;
};

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

  std::uint64_t between(std::uint64_t least, std::uint64_t most) {
    return least + below(most - least + 1);
  }

  // Pareto's distribution with exponent 1, from `least` to `most`: twice the size is half as
  // frequent, so that each doubling holds as many bytes as any other.
  std::uint64_t pareto(std::uint64_t least, std::uint64_t most) {
    constexpr std::uint64_t kOne = std::uint64_t{1} << 32U;
    const std::uint64_t lowest = (least * kOne + most - 1) / most;
    return least * kOne / (lowest + below(kOne - lowest + 1));
  }

 private:
  std::uint64_t state_;
};

}  // namespace bench

// The book of samples: what is known of them, by block and by call stack.
#pragma once

#include "allod.h"
#include "instance/process.hpp"
#include "unwind/backtrace.hpp"

namespace allod::profile {

using Sum = allod_profile_sum_t;

inline Process::Heap& engine() noexcept { return Process::heap(); }
inline std::uint64_t now_ms() noexcept { return engine().space().platform().now_ms(); }

// What the samples of one call stack add up to. Kept for good.
struct KnownStack {
  KnownStack* next_in_bucket;
  std::atomic<KnownStack*> next;  // the one that was met after it
  std::uint64_t id;
  std::uint64_t hash;
  Sum live;
  Sum total;
  Sum before_change;      // `live` at the last peak, if it has changed since
  std::uint64_t changed;  // the number of the last peak when `live` changed
  std::uint64_t live_samples;
  std::uint64_t total_samples;
  std::uint64_t freed_samples;
  std::uint64_t births_ms;  // of the live ones, summed up
  std::uint64_t lives_ms;   // of the freed ones, summed up
  Sum leaked_directly;      // when leaks were looked for last
  Sum leaked;
  bool is_complete;  // its code is no more: no sample has it any more
  std::uint32_t depth;
  std::uintptr_t frames[1];  // as many as there are
};

struct Sample {
  Sample* next;
  Address block;
  KnownStack* stack;
  std::size_t bytes;
  std::size_t requested;
  std::uint64_t count_x256;  // blocks that it stands for
  std::uint64_t birth_ms;
  std::uint64_t number;
  std::uint32_t thread;
};

// What a sample stands for, times 256 like all sums here. The same when it comes and when it goes.
inline Sum weight_of(const Sample& sample) noexcept {
  const std::uint64_t count = sample.count_x256;
  return {count, sample.bytes * count, sample.requested * count};
}
inline Sum told(const Sum& sum) noexcept {
  const auto rounded = [](std::uint64_t n) { return (n + 128) / 256; };
  return {rounded(sum.blocks), rounded(sum.bytes), rounded(sum.requested)};
}
inline void add(Sum& sum, const Sum& more) noexcept {
  sum.blocks += more.blocks;
  sum.bytes += more.bytes;
  sum.requested += more.requested;
}
inline void subtract(Sum& sum, const Sum& less) noexcept {
  sum.blocks -= less.blocks;
  sum.bytes -= less.bytes;
  sum.requested -= less.requested;
}

// A table of lists that doubles when it is full.
template <class Entry>
struct Buckets {
  Entry** lists = nullptr;
  unsigned shift = 64;
  std::size_t entries = 0;

  [[nodiscard]] Entry*& at(std::uint64_t hash) noexcept { return lists[hash >> shift]; }
  [[nodiscard]] std::size_t count() const noexcept { return std::size_t{1} << (64 - shift); }
  // False when there is no room for any entry.
  template <class NextOf, class HashOf>
  [[nodiscard]] bool make_room(NextOf next_of, HashOf hash_of) noexcept {
    if (lists != nullptr && entries < 2 * count()) return true;
    Buckets larger;
    larger.shift = lists == nullptr ? 64 - 10 : shift - 1;
    larger.entries = entries;
    const std::size_t bytes = larger.count() * sizeof(Entry*);
    larger.lists = static_cast<Entry**>(engine().space().allocate_metadata(bytes));
    if (larger.lists == nullptr) return lists != nullptr;
    for (std::size_t i = 0; lists != nullptr && i < count(); ++i) {
      for (Entry *entry = lists[i], *next = nullptr; entry != nullptr; entry = next) {
        next = next_of(*entry);
        Entry*& list = larger.at(hash_of(*entry));
        next_of(*entry) = list;
        list = entry;
      }
    }
    if (lists != nullptr) engine().space().metadata().free(lists, count() * sizeof(Entry*));
    *this = larger;
    return true;
  }
};

struct Book {
  Process::Heap::Lock lock{LockRank::samples};
  Buckets<Sample> samples;
  Buckets<KnownStack> stacks;
  Sample* spare = nullptr;  // records that are free
  std::atomic<KnownStack*> first{nullptr};
  KnownStack* last = nullptr;
  std::uint64_t stack_count = 0;
  Sum live{};
  Sum peak{};
  Sum total{};
  std::uint64_t peaks = 0;  // how often `live` was larger than ever
  std::uint64_t live_samples = 0;
  std::uint64_t total_samples = 0;
  std::uint64_t lost_samples = 0;
  std::uint64_t samples_ever = 0;
  std::uint64_t forgiven = 0;  // so many of them do not leak
  std::uint64_t since_ms = 0;
  std::uint64_t peak_ms = 0;
  Sum lifetimes[ALLOD_PROFILE_LIFETIMES] = {};
};
extern constinit Book book;

// A signal handler may have interrupted its thread here: it takes no samples.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit bool busy;

class Busy {
 public:
  Busy() noexcept {
    busy = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~Busy() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    busy = false;
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
};

// --- with the lock held ---------------------------------------------------------------

// What is known of a call stack from now on; null for want of memory.
KnownStack* remember(const Stack& stack) noexcept;
// What was live at the last peak.
Sum peak_of(const KnownStack& stack) noexcept;
// A record that can be found; null for want of memory, or without a stack.
Sample* new_sample(KnownStack* stack, Address block) noexcept;
// True if as much was never live before.
bool count_in(const Sample& sample) noexcept;
// Nothing where there is no sample of the block.
void forget_locked(void* block, std::uint64_t now) noexcept;

}  // namespace allod::profile

// Records of samples, by block and by call stack.
#pragma once

#include "allod.h"
#include "instance/process.hpp"
#include "profile/sample.hpp"
#include "profile/timeline.hpp"
#include "unwind/backtrace.hpp"

namespace allod::profile {

using Sum = allod_profile_sum_t;

inline std::uint64_t now_ms() noexcept { return engine().space().platform().now_ms(); }

// Sums over the samples of one call stack. Never freed.
struct KnownStack {
  KnownStack* next_in_bucket;
  std::atomic<KnownStack*> next;  // the stack first seen after it
  std::uint64_t id;
  std::uint64_t hash;
  Sum live;
  Sum total;
  Sum before_change;      // `live` at the last peak, if changed since
  std::uint64_t changed;  // the number of the last peak when `live` changed
  std::uint64_t live_samples;
  std::uint64_t total_samples;
  std::uint64_t freed_samples;
  std::uint64_t births_ms;  // sum over live samples
  std::uint64_t lives_ms;   // sum over freed samples
  Sum leaked_directly;      // by the last leak search
  Sum leaked;
  bool is_complete;  // its code was unloaded, so it gets no new samples
  std::uint32_t depth;
  std::uintptr_t frames[1];  // `depth` of them
};

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

// A hash table that doubles when full.
template <class Entry>
struct Buckets {
  Entry** lists = nullptr;
  unsigned shift = 64;
  std::size_t entries = 0;

  [[nodiscard]] Entry*& at(std::uint64_t hash) noexcept {
    return lists[static_cast<std::size_t>(hash >> shift)];
  }
  [[nodiscard]] std::size_t count() const noexcept { return std::size_t{1} << (64 - shift); }
  // False if memory is exhausted and the table is empty.
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
  SampleTable samples;
  Rates rates;
  Buckets<KnownStack> stacks;
  std::atomic<KnownStack*> first{nullptr};
  KnownStack* last = nullptr;
  std::uint64_t stack_count = 0;
  Sum live{};
  Sum peak{};
  Sum total{};
  std::uint64_t peaks = 0;  // number of new peaks of `live`
  std::uint64_t live_samples = 0;
  std::uint64_t total_samples = 0;
  std::uint64_t lost_samples = 0;
  std::uint64_t since_ms = 0;
  std::uint64_t peak_ms = 0;
  Sum lifetimes[ALLOD_PROFILE_LIFETIMES] = {};
};
extern constinit Book book;
// Changed under the lock of the book. Apart from it, since it takes no room in the file.
extern constinit Timeline timeline;

// Set while the thread is in the profile: a signal handler that interrupts it takes no samples.
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

// The caller is the one thread of a new process.
void forget_thread_after_fork() noexcept;

// --- these require the lock ----------------------------------------------------------

// The blocks that a sample represents, times 256.
std::uint64_t count_x256(const Sample& sample) noexcept;
// The blocks and bytes that it represents, times 256 like all sums here. Equal at allocation and at
// free.
Sum weight_of(const Sample& sample) noexcept;
// Finds or adds the record of a call stack. Null if memory is exhausted. `is_new`: added.
KnownStack* remember(const std::uintptr_t* frames, std::uint32_t depth, bool* is_new) noexcept;
Sum peak_of(const KnownStack& stack) noexcept;
// Adds a record to the table, for a mean distance of samples. Null if memory is exhausted, `stack`
// is null, or there have been too many distances.
Sample* new_sample(KnownStack* stack, const void* block, std::size_t interval) noexcept;
// Returns true at a new peak.
bool count_in(const Sample& sample) noexcept;
// Ignores blocks that are no samples.
void forget_locked(void* block, std::uint64_t now) noexcept;

}  // namespace allod::profile

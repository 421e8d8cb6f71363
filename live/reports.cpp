#include "reports.hpp"

#include <pthread.h>

#include <atomic>

#include "allod-live.h"
#include "memory.hpp"

namespace allod::live {

namespace {

// A hash table from address to size, with linear probing. Shards keep contention low.
class Shard {
 public:
  struct Known {
    bool yes;
    std::uint64_t size;
  };
  // Also returns the previous entry. False if memory is exhausted.
  bool put(std::uintptr_t address, std::size_t size, Known* before) noexcept {
    Lock lock{*this};
    if (used_ * 4 >= room() * 3 && !grow()) return false;
    Entry& entry = *find(address);
    *before = {entry.address == address, entry.size};
    if (!before->yes) ++used_;
    entry = {address, size};
    return true;
  }
  Known take(std::uintptr_t address) noexcept {
    Lock lock{*this};
    Entry* const entry = room() == 0 ? nullptr : find(address);
    if (entry == nullptr || entry->address != address) return {false, 0};
    const Known known{true, entry->size};
    remove(static_cast<std::size_t>(entry - entries_.begin()));
    return known;
  }
  // Forgets entries whose memory is gone.
  void forget() noexcept { new (this) Shard; }

 private:
  struct Entry {
    std::uintptr_t address;  // 0: none
    std::size_t size;
  };
  struct Lock {
    explicit Lock(Shard& shard) noexcept : shard_{shard} { pthread_mutex_lock(&shard_.mutex_); }
    ~Lock() { pthread_mutex_unlock(&shard_.mutex_); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    Shard& shard_;
  };
  [[nodiscard]] std::size_t room() const noexcept { return entries_.size(); }
  [[nodiscard]] std::size_t place_of(std::uintptr_t address) const noexcept {
    return (address * 0x9e3779b97f4a7c15U >> 20) & (room() - 1);
  }
  [[nodiscard]] Entry* find(std::uintptr_t address) noexcept {
    std::size_t at = place_of(address);
    while (entries_[at].address != 0 && entries_[at].address != address) {
      at = (at + 1) & (room() - 1);
    }
    return &entries_[at];
  }
  [[nodiscard]] bool grow() noexcept {
    Table<Entry> larger;
    if (!larger.set_size(room() == 0 ? 64 : room() * 2)) return false;
    larger.swap(entries_);
    for (const Entry& entry : larger) {
      if (entry.address != 0) *find(entry.address) = entry;
    }
    return true;
  }
  // Moves later entries up, so that no search ends too early.
  void remove(std::size_t hole) noexcept {
    --used_;
    for (std::size_t at = (hole + 1) & (room() - 1); entries_[at].address != 0;
         at = (at + 1) & (room() - 1)) {
      const std::size_t home = place_of(entries_[at].address);
      if (((at - home) & (room() - 1)) < ((at - hole) & (room() - 1))) continue;
      entries_[hole] = entries_[at];
      hole = at;
    }
    entries_[hole] = {};
  }

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  Table<Entry> entries_;
  std::size_t used_ = 0;
};

constexpr std::size_t kShards = 16;
constinit Lasting<Shard[kShards]> shards;
struct Reported {
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> blocks{0};
  std::atomic<std::uint64_t> peak{0};
};
constinit Reported reported;

Shard& shard_of(const void* address) noexcept {
  const auto number = reinterpret_cast<std::uintptr_t>(address) * 0x9e3779b97f4a7c15U >> 60;
  return shards.value[number % kShards];
}

}  // namespace

std::uint64_t reported_bytes() noexcept { return reported.bytes.load(std::memory_order_relaxed); }
std::uint64_t reported_blocks() noexcept { return reported.blocks.load(std::memory_order_relaxed); }
std::uint64_t reported_peak() noexcept { return reported.peak.load(std::memory_order_relaxed); }

void drop_reports() noexcept {
  for (Shard& shard : shards.value) shard.forget();
  reported.bytes = 0;
  reported.blocks = 0;
}

}  // namespace allod::live

namespace live = allod::live;

void allod_live_report_alloc(const void* block, size_t size) noexcept {
  if (block == nullptr || !live::open_memory()) return;
  live::Shard::Known before{};
  if (!live::shard_of(block).put(reinterpret_cast<uintptr_t>(block), size, &before)) return;
  const uint64_t more = size - (before.yes ? before.size : 0);
  const uint64_t now = live::reported.bytes.fetch_add(more) + more;
  if (!before.yes) live::reported.blocks.fetch_add(1);
  uint64_t peak = live::reported.peak.load();
  while (now > peak && !live::reported.peak.compare_exchange_weak(peak, now)) {
  }
}
void allod_live_report_free(const void* block) noexcept {
  if (block == nullptr) return;
  const live::Shard::Known known = live::shard_of(block).take(reinterpret_cast<uintptr_t>(block));
  if (!known.yes) return;
  live::reported.bytes.fetch_sub(known.size);
  live::reported.blocks.fetch_sub(1);
}

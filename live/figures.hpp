// The figures of one moment, gathered from the allocator and the system.
#pragma once

#include "library.hpp"
#include "memory.hpp"
#include "system.hpp"

namespace allod::live {

// What is left of the value; figures that are taken one after the other may not quite agree.
[[nodiscard]] inline std::uint64_t above(std::uint64_t value, std::uint64_t other) noexcept {
  return value > other ? value - other : 0;
}

// Of one size class; blocks unless said otherwise.
struct ClassRow {
  std::uint64_t size = 0;  // bytes of a block; 0: huge blocks
  std::uint64_t slabs = 0;
  std::uint64_t held = 0;  // bytes in slabs or huge blocks
  std::uint64_t live = 0;
  std::uint64_t free = 0;       // in slabs
  std::uint64_t cached = 0;     // in threads' hands
  std::uint64_t resident = 0;   // bytes
  std::uint64_t allocated = 0;  // while the profile was on
  std::uint64_t freed = 0;
  // Of the samples in this class: what they stand for, as rounded and as asked for.
  std::uint64_t sampled = 0;
  std::uint64_t requested = 0;
};

// One owner of slabs: a thread, or threads that share.
struct ThreadRow {
  std::uint32_t domain = 0;
  std::uint32_t thread = 0;  // 0: shared, or ended
  char name[16] = {};
  std::uint64_t live = 0;  // bytes, as for the following
  std::uint64_t blocks = 0;
  std::uint64_t held = 0;
  std::uint64_t cached = 0;
  std::uint64_t peak = 0;
  std::uint64_t allocated = 0;
  std::uint64_t allocated_blocks = 0;
  std::uint64_t freed_blocks = 0;
};

// Blocks of one size class in one thread's slabs.
struct ThreadClassRow {
  std::uint32_t domain = 0;
  std::uint32_t size = 0;
  std::uint64_t blocks = 0;
};

// Resident memory, taken apart; bytes.
struct Residency {
  std::uint64_t live = 0;
  std::uint64_t cached = 0;
  std::uint64_t free_in_slabs = 0;
  std::uint64_t dirty = 0;
  std::uint64_t metadata = 0;
  std::uint64_t page = 0;  // this server's
  std::uint64_t not_ours = 0;
  std::uint64_t untouched = 0;  // live, and never written to
};

struct Figures {
  ProcessFigures process{};
  allod_stats_t stats{};
  allod_profile_summary_t profile{};
  std::uint64_t own = 0;  // held by the server's heap
  Residency residency;
  Table<allod_span_t> spans;
  Table<std::size_t> resident;  // of each span
  Table<ClassRow> classes;      // by size
  Table<ThreadRow> threads;
  Table<ThreadClassRow> thread_classes;
  Table<allod_heap_row_t> heaps;

  // What changes all the time, and costs little.
  void gather_sums() noexcept;
  // Everything. False when there was no memory for it.
  [[nodiscard]] bool gather_all() noexcept;
  // Spans and how much of them is resident only.
  [[nodiscard]] bool gather_spans() noexcept;

 private:
  [[nodiscard]] bool gather_classes() noexcept;
  [[nodiscard]] bool gather_threads() noexcept;
  [[nodiscard]] bool gather_samples() noexcept;
  [[nodiscard]] bool gather_heaps() noexcept;
  [[nodiscard]] ThreadRow* thread_row(std::uint32_t domain, std::uint32_t thread) noexcept;
  [[nodiscard]] ClassRow* class_of(std::uint64_t size) noexcept;
  void take_apart() noexcept;
};

[[nodiscard]] inline bool has_profile() noexcept { return &allod_profile_summary_get != nullptr; }

}  // namespace allod::live

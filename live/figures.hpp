// A snapshot of figures from the allocator and the system.
#pragma once

#include "library.hpp"
#include "memory.hpp"
#include "system.hpp"

namespace allod::live {

// value - other, or 0 if negative: figures taken one after another may disagree slightly.
[[nodiscard]] inline std::uint64_t above(std::uint64_t value, std::uint64_t other) noexcept {
  return value > other ? value - other : 0;
}

// One size class; blocks unless stated otherwise.
struct ClassRow {
  std::uint64_t size = 0;  // bytes of a block; 0: huge blocks
  std::uint64_t slabs = 0;
  std::uint64_t held = 0;  // bytes in slabs or huge blocks
  std::uint64_t live = 0;
  std::uint64_t free = 0;       // in slabs
  std::uint64_t cached = 0;     // in magazines
  std::uint64_t resident = 0;   // bytes
  std::uint64_t allocated = 0;  // while the profile was on
  std::uint64_t freed = 0;
  // Bytes that the samples of this class represent, with rounding and as requested.
  std::uint64_t sampled = 0;
  std::uint64_t requested = 0;
};

// An owner of slabs: a thread, or threads that share.
struct ThreadRow {
  std::uint32_t domain = 0;
  std::uint32_t thread = 0;  // 0: shared, or ended
  char name[16] = {};
  std::uint64_t live = 0;  // bytes, like the following
  std::uint64_t blocks = 0;
  std::uint64_t held = 0;
  std::uint64_t cached = 0;
  std::uint64_t peak = 0;
  std::uint64_t allocated = 0;
  std::uint64_t allocated_blocks = 0;
  std::uint64_t freed_blocks = 0;
};

struct ThreadClassRow {
  std::uint32_t domain = 0;
  std::uint32_t size = 0;
  std::uint64_t blocks = 0;
};

// Breakdown of resident memory, in bytes.
struct Residency {
  std::uint64_t live = 0;
  std::uint64_t cached = 0;
  std::uint64_t free_in_slabs = 0;
  std::uint64_t dirty = 0;
  std::uint64_t metadata = 0;
  std::uint64_t page = 0;  // the server's own
  std::uint64_t not_ours = 0;
  std::uint64_t untouched = 0;  // live, but never written
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
  Table<allod_node_t> nodes;

  // Gathers what changes often and is cheap.
  void gather_sums() noexcept;
  // Gathers everything. False if memory is exhausted.
  [[nodiscard]] bool gather_all() noexcept;
  // Gathers only spans and their resident bytes.
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

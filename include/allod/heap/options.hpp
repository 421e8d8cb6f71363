// The options of a heap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allod/base/units.hpp"

namespace allod::heap {

// Fresh memory that is made present before its first use.
enum class Populate : std::uint8_t {
  off,
  adaptive,  // slabs of small classes with many full slabs
  all,
};

// The kind of magazines of a thread; see thread/process_heap.hpp.
enum class Caches : std::uint8_t { mixed, thread, processor };

struct HeapOptions {
  std::size_t region_bytes = std::size_t{kAddressesAbound ? 64 : 8} << 20;
  std::size_t magazine_bytes = std::size_t{256} << 10;  // of one class, at most
  std::size_t burst_bytes = std::size_t{1} << 20;       // of all classes, beyond the usual
  std::size_t large_cache_bytes = std::size_t{1} << 20;
  std::size_t purge_budget = std::size_t{64} << 20;
  // The most above that, for memory in use lately; see Engine::purge_budget().
  std::size_t most_below_peak = ~std::size_t{0};
  std::size_t huge_pages_from = std::size_t{16} << 20;  // all ones: never
  std::int32_t purge_delay_ms = 500;                    // 0: at once; negative: never automatically
  Populate populate = Populate::adaptive;
  bool purge_thread = true;
  bool move_pages = true;  // from free memory to new huge blocks
  bool report_foreign = false;
  Caches caches = Caches::mixed;
  // To prepare for; 0: those on which the process may run.
  std::uint32_t processors = 0;
  // Memory nodes to tell apart; 0: those of the system.
  std::uint32_t nodes = 0;
};

}  // namespace allod::heap

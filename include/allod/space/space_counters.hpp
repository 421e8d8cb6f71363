// What a space counts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace allod::space {

// Counters and figures, in bytes unless stated otherwise.
struct SpaceCounters {
  std::size_t reserved = 0;  // addresses in regions
  std::size_t used = 0;      // in used spans
  std::size_t peak_used = 0;
  std::size_t dirty = 0;      // in free spans whose memory is present
  std::size_t clean = 0;      // in free spans without memory
  std::uint64_t purged = 0;   // purged so far
  std::uint64_t purges = 0;   // calls of the system for that
  std::uint64_t moved = 0;    // in pages that moved to a used span
  std::uint64_t moves = 0;    // calls of the system for that
  std::uint64_t regions = 0;  // present regions
  std::uint64_t refused = 0;  // requests that the system refused
  std::uint64_t span_allocations = 0;
  std::uint64_t span_frees = 0;
};

}  // namespace allod::space

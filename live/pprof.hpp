// The heap profile in pprof's compressed format, and as folded stacks.
#pragma once

#include <event2/buffer.h>

#include "stacks.hpp"
#include "thread_sums.hpp"

namespace allod::live {

enum class PprofKind { heap, allocations };

// What is written beside the stacks of now: their difference to `before`, or who has what is in
// use.
struct PprofOptions {
  PprofKind kind;
  const Stacks* before = nullptr;
  const ThreadSums* threads = nullptr;
  std::uint64_t duration_ms = 0;
};
// False if memory is exhausted.
[[nodiscard]] bool write_pprof(const Stacks& now, const PprofOptions& options,
                               evbuffer* to) noexcept;
// "outermost;...;innermost bytes", one line per stack with live blocks.
[[nodiscard]] bool write_folded(const Stacks& now, evbuffer* to) noexcept;

}  // namespace allod::live

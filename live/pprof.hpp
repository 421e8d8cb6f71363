// The heap profile as pprof's protocol buffer, compressed; and as folded stacks.
#pragma once

#include <event2/buffer.h>

#include "stacks.hpp"

namespace allod::live {

enum class PprofKind { heap, allocations };

// What changed since `before`, if there is one. False when there was no memory.
[[nodiscard]] bool write_pprof(const Stacks& now, const Stacks* before, PprofKind kind,
                               std::uint64_t duration_ms, evbuffer* to) noexcept;
// "outermost;...;innermost bytes", a line for each stack with live blocks.
[[nodiscard]] bool write_folded(const Stacks& now, evbuffer* to) noexcept;

}  // namespace allod::live

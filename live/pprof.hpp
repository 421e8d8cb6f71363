// The heap profile in pprof's compressed format, and as folded stacks.
#pragma once

#include <event2/buffer.h>

#include "stacks.hpp"

namespace allod::live {

enum class PprofKind { heap, allocations };

// Writes the profile, or its difference to `before` unless that is null. False if memory is
// exhausted.
[[nodiscard]] bool write_pprof(const Stacks& now, const Stacks* before, PprofKind kind,
                               std::uint64_t duration_ms, evbuffer* to) noexcept;
// "outermost;...;innermost bytes", one line per stack with live blocks.
[[nodiscard]] bool write_folded(const Stacks& now, evbuffer* to) noexcept;

}  // namespace allod::live

// Main figures of the heap.
#pragma once

#include "allod.h"
#include "text/text.hpp"

namespace allod::portable {

// Exact while no other thread allocates or frees.
[[nodiscard]] allod_stats_t collect_summary() noexcept;
void write_summary(Text& out) noexcept;

}  // namespace allod::portable

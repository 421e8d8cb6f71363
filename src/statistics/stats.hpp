// Statistics, computed on request from the heap's own records.
#pragma once

#include "allod.h"
#include "instance/heaps.hpp"
#include "text/text.hpp"

namespace allod {

[[nodiscard]] allod_stats_t collect_summary() noexcept;

void write_stats_text(Text& out) noexcept;
void write_stats_json(Text& out) noexcept;
// One first-class heap, as a JSON object.
void write_heap_json(Text& out, const heaps::Row& heap) noexcept;
// Like glibc's malloc_info.
void write_stats_xml(Text& out) noexcept;

void print_stats_to_stderr() noexcept;
// At the end of the process, as the options ask.
ALLOD_HOT void show_stats_if_asked() noexcept;

}  // namespace allod

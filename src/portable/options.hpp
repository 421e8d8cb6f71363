// The options that there are on other systems than Linux, from the environment or by the API.
#pragma once

#include "allod/heap/options.hpp"
#include "text/text.hpp"

namespace allod::portable {

struct Settings {
  heap::HeapOptions heap;
  bool has_purge_budget = false;
  bool help = false;
  bool shows_stats = false;  // when the process ends
  bool shows_errors = true;
  bool aborts_on_error = true;
};

[[nodiscard]] Settings& settings() noexcept;

// Reads all ALLOD_* variables. Warns about unknown names and invalid values, and about options that
// Linux alone has.
void read_options() noexcept;

// As allod_option_set(). Does not inform the heap.
[[nodiscard]] int change_setting(const char* name, const char* value) noexcept;

void write_options(Text& out) noexcept;

}  // namespace allod::portable

// Options that a user sets by environment or API. The table is in options.cpp.
#pragma once

#include <sys/types.h>

#include "allod/base/cpu.hpp"
#include "allod/heap/options.hpp"
#include "settings/mitigations.hpp"
#include "text/text.hpp"

namespace allod {

enum class StatsFormat { none, text, json };

struct Settings {
  heap::HeapOptions heap;
  bool has_purge_budget = false;  // set explicitly, even if to the default
  std::int64_t verbosity = 0;
  StatsFormat show_stats = StatsFormat::none;
  const char* stats_file = nullptr;    // null: standard error
  const char* profile_file = nullptr;  // null: none
  bool leaks = false;                  // search at the end of the process
  const char* leaks_file = nullptr;    // null: standard error
  bool profiles = false;               // from the start
  std::size_t profile_interval = 0;    // bytes; 0: the default
  bool profile_peaks = false;
  int profile_signal = 0;  // 0: none
  bool show_errors = true;
  bool abort_on_error = true;
  int report_descriptor = -1;  // for reports as JSON; -1: none
  // Identity of the descriptor's file when it was set.
  std::uint64_t report_device = 0;
  std::uint64_t report_inode = 0;
  Mitigations mitigations = Mitigations::all();  // as requested
  std::size_t guard_period = 0;                  // one allocation in so many is guarded; 0: none
  std::uint32_t guard_slots = 192;
  bool keeps_deepbind = false;
  bool takes_requests = true;  // to open the live page
  bool help = false;
};

// Written at start and by set_option; read by any thread.
[[nodiscard]] ALLOD_HOT Settings& settings() noexcept;
[[nodiscard]] ALLOD_HOT heap::HeapOptions heap_options() noexcept;
[[nodiscard]] ALLOD_HOT std::int64_t verbosity() noexcept;
// Descriptor for JSON reports. -1 if none is set, or if the number now refers to another file.
[[nodiscard]] int report_descriptor() noexcept;

// Reads all ALLOD_* variables, and warns about unknown names and invalid values.
ALLOD_HOT void read_options_from_environment() noexcept;

// Sets one option at run time; `name` with or without "ALLOD_". Returns 0, ENOENT for an unknown
// name, EINVAL for an invalid value, or EPERM for an option that only counts at start. Does not
// inform the heap.
int change_setting(const char* name, const char* value) noexcept;

// Lists all options with values, defaults and meanings.
void write_options(Text& out) noexcept;
// The same as a Markdown table, for the reference.
void write_options_markdown(Text& out) noexcept;

ALLOD_HOT void show_help_if_asked() noexcept;

}  // namespace allod

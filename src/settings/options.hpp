// What a user can set, by environment and by API. The table of options is in
// options.cpp, and nowhere else.
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
  bool has_purge_budget = false;  // it was set, even if to the default
  std::int64_t verbosity = 0;
  StatsFormat show_stats = StatsFormat::none;
  const char* stats_file = nullptr;    // null: standard error
  const char* profile_file = nullptr;  // null: none
  bool leaks = false;                  // look for them when the process ends
  const char* leaks_file = nullptr;    // null: standard error
  bool profiles = false;               // from the start
  std::size_t profile_interval = 0;    // bytes; 0: the usual one
  bool profile_peaks = false;
  int profile_signal = 0;  // 0: none
  bool show_errors = true;
  bool abort_on_error = true;
  int report_descriptor = -1;  // for reports as JSON; -1: none
  dev_t report_device = 0;     // which file that was when it was set
  ino_t report_inode = 0;
  Mitigations mitigations = Mitigations::all();  // as asked for
  std::size_t guard_period = 0;                  // one of so many allocations is guarded; 0: none
  std::uint32_t guard_slots = 192;
  bool keeps_deepbind = false;
  bool help = false;
};

// Read by any thread; written at start and by set_option.
[[nodiscard]] ALLOD_HOT Settings& settings() noexcept;
[[nodiscard]] ALLOD_HOT heap::HeapOptions heap_options() noexcept;
[[nodiscard]] ALLOD_HOT std::int64_t verbosity() noexcept;
// Where reports as JSON go; -1: nowhere, or the number is another file's by now.
[[nodiscard]] int report_descriptor() noexcept;

// Takes every ALLOD_* variable. What it does not know or understand, it says.
ALLOD_HOT void read_options_from_environment() noexcept;

// Sets one option by its name, with or without "ALLOD_", at run time. Returns 0,
// or an errno value: ENOENT for an unknown name, EINVAL for a value that does not
// fit, EPERM for an option that only counts at start. The heap does not know of it yet.
int change_setting(const char* name, const char* value) noexcept;

// Writes all options with their values, meanings and defaults.
void write_options(Text& out) noexcept;
// The same as a Markdown table, for the reference.
void write_options_markdown(Text& out) noexcept;

ALLOD_HOT void show_help_if_asked() noexcept;

}  // namespace allod

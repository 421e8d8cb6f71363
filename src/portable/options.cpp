#include "portable/options.hpp"

#include <errno.h>
#include <string.h>

#include <string_view>

#include "portable/system.hpp"
#include "settings/heap_values.hpp"
#include "settings/variant.hpp"

namespace allod::portable {

namespace {

constinit Settings current;

struct Option {
  std::string_view name;  // without the prefix
  std::string_view values;
  std::string_view initial;
  bool at_start_only;
  std::string_view meaning;
  bool (*set)(Settings& settings, std::string_view value) noexcept;
};

constexpr Option kOptions[] = {
    {"HELP", "0, 1", "0", true, "print this list at start; the program then runs as usual",
     [](Settings& s, std::string_view v) noexcept { return parse_bool(v, &s.help); }},
    {"SHOW_STATS", "0, 1", "0", false, "print main figures when the process ends",
     [](Settings& s, std::string_view v) noexcept { return parse_bool(v, &s.shows_stats); }},
    {"SHOW_ERRORS", "0, 1", "1", false, "report misuse of the heap on standard error",
     [](Settings& s, std::string_view v) noexcept { return parse_bool(v, &s.shows_errors); }},
    {"ABORT_ON_ERROR", "0, 1", "1", false,
     "end the process after a report, as abort() does; 0: go on, and ignore a wrong free",
     [](Settings& s, std::string_view v) noexcept { return parse_bool(v, &s.aborts_on_error); }},
    {"FOREIGN_FREE", "ignore, report", "ignore", false,
     "when the program frees memory of an allocator that nobody knows: ignore the "
     "call, or report it",
     take_foreign_free},
    {"PURGE_DELAY", "milliseconds, 0 or -1", "500", false,
     "how long to keep free memory before it goes back to the system; 0: not at all, -1: until the "
     "program calls allod_malloc_trim",
     take_purge_delay},
    {"PURGE_BUDGET", "bytes", "64M", false,
     "most free memory to keep; the rest goes back without delay", take_purge_budget},
    {"PURGE_THREAD", "0, 1", "1", false,
     "start a thread that gives free memory back while the program is idle", take_purge_thread},
    {"PROCESSORS", "1 to 1024", "those of the process", true,
     "for tests: the number of processors to prepare for", take_processors},
    {"REGION_SIZE", "bytes, 1M to 64G", "64M", true, "address space to reserve at a time",
     take_region_size},
    {"MAGAZINE_BYTES", "bytes, 0 to 16M", "256K", false,
     "most bytes of one size class that a thread caches", take_magazine_bytes},
};

// Options of Linux alone. Tests compare both lists with the table of those.
constexpr std::string_view kAbsent[] = {
    "VERBOSE",      "STATS_FILE",        "REPORT_FD",      "HARDENED",  "DEEPBIND",
    "MOVE_PAGES",   "HUGE_PAGES",        "CACHES",         "NODES",     "PROFILE",
    "PROFILE_FILE", "PROFILE_PEAKS",     "PROFILE_SIGNAL", "LEAKS",     "LEAKS_FILE",
    "GUARD_SAMPLE", "GUARD_SLOTS",       "POPULATE",       "LIVE",      "LIVE_TOKEN",
    "LIVE_LINK",    "LIVE_HOSTS",        "LIVE_WRAPPERS",  "LIVE_ONLY", "LIVE_CHILDREN",
    "LIVE_PUSH",    "LIVE_PUSH_SECONDS", "ATTACH",
};

[[nodiscard]] const Option* find_option(std::string_view name) noexcept {
  for (const Option& option : kOptions) {
    if (option.name == name) return &option;
  }
  return nullptr;
}
[[nodiscard]] bool is_absent(std::string_view name) noexcept {
  for (const std::string_view absent : kAbsent) {
    if (absent == name) return true;
  }
  return false;
}

void take_variable(std::string_view name, std::string_view value) noexcept {
  const Option* const option = find_option(name);
  if (option != nullptr && option->set(current, value)) return;
  Message message;
  message << "warning: ";
  if (option != nullptr) {
    message << kPrefix << name << "=" << Shown{value} << " is ignored; expected " << option->values;
  } else if (is_absent(name)) {
    message << kPrefix << name << " is ignored; " << system_name() << " does not have this option";
  } else {
    message << "unknown option " << kPrefix << Shown{name}
            << " is ignored; ALLOD_HELP=1 lists the options";
  }
}

}  // namespace

Settings& settings() noexcept { return current; }

void read_options() noexcept {
  for_each_variable(&take_variable);
  if (!current.help) return;
  DescriptorText out{2};
  write_options(out);
}

int change_setting(const char* name, const char* value) noexcept {
  std::string_view plain{name};
  if (plain.starts_with(kPrefix)) plain.remove_prefix(kPrefix.size());
  const Option* const option = find_option(plain);
  if (option == nullptr) return is_absent(plain) ? ENOSYS : ENOENT;
  if (option->at_start_only) return EPERM;
  return option->set(current, value) ? 0 : EINVAL;
}

void write_options(Text& out) noexcept {
  out << "Allod " << kVersion << " reads these environment variables on " << system_name() << ":\n";
  for (const Option& option : kOptions) {
    out << "  " << kPrefix << option.name << "=" << option.values
        << "  (default: " << option.initial << ")\n      " << option.meaning << "\n";
  }
}

}  // namespace allod::portable

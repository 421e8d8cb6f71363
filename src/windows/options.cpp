#include "windows/options.hpp"

#include <errno.h>
#include <string.h>

#include <string_view>

#include "settings/heap_values.hpp"
#include "settings/variant.hpp"

extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
const wchar_t* allod_win_environment() noexcept __asm__("GetEnvironmentStringsW");
int allod_win_free_environment(const wchar_t* strings) noexcept __asm__("FreeEnvironmentStringsW");
// NOLINTEND(readability-identifier-naming)
}

namespace allod::windows {

namespace {

constinit Settings current;
constexpr std::string_view kPrefix = "ALLOD_";

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
     "end the process after a report, with status 3; 0: go on, and ignore a wrong free",
     [](Settings& s, std::string_view v) noexcept { return parse_bool(v, &s.aborts_on_error); }},
    {"FOREIGN_FREE", "ignore, report", "ignore", false,
     "when the program frees memory of another allocator that is not the C runtime's: ignore the "
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

// Options of other systems. Tests compare both lists with the table of those.
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
    message << kPrefix << name << " is ignored; Windows does not have this option";
  } else {
    message << "unknown option " << kPrefix << Shown{name}
            << " is ignored; ALLOD_HELP=1 lists the options";
  }
}

// Windows compares names of variables without regard to case.
[[nodiscard]] char upper(wchar_t letter) noexcept {
  if (letter > 0x7e || letter < 0x20) return '?';
  const auto plain = static_cast<char>(letter);
  return plain >= 'a' && plain <= 'z' ? static_cast<char>(plain - 0x20) : plain;
}

void take_if_ours(const wchar_t* variable, std::size_t length) noexcept {
  char name[64];
  char value[256];
  std::size_t at = 0;
  for (; at < length && variable[at] != L'='; ++at) {
    if (at == sizeof name) return;
    name[at] = upper(variable[at]);
  }
  const std::string_view whole{name, at};
  if (at == length || !whole.starts_with(kPrefix)) return;
  std::size_t filled = 0;
  for (++at; at < length && filled < sizeof value; ++at) {
    value[filled++] = variable[at] <= 0x7e ? static_cast<char>(variable[at]) : '?';
  }
  take_variable({name + kPrefix.size(), whole.size() - kPrefix.size()}, {value, filled});
}

}  // namespace

Settings& settings() noexcept { return current; }

void read_options() noexcept {
  const wchar_t* const all = allod_win_environment();
  if (all == nullptr) return;
  for (const wchar_t* variable = all; *variable != 0;) {
    std::size_t length = 0;
    while (variable[length] != 0) ++length;
    take_if_ours(variable, length);
    variable += length + 1;
  }
  allod_win_free_environment(all);
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
  out << "Allod " << kVersion << " reads these environment variables on Windows:\n";
  for (const Option& option : kOptions) {
    out << "  " << kPrefix << option.name << "=" << option.values
        << "  (default: " << option.initial << ")\n      " << option.meaning << "\n";
  }
}

}  // namespace allod::windows

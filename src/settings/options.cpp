#include "settings/options.hpp"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "allod/base/auxiliary.hpp"
#include "allod/os/linux/calls.hpp"
#include "libc/stop_signal.hpp"
#include "settings/heap_values.hpp"
#include "settings/variant.hpp"
#include "text/spelling.hpp"

namespace allod {

namespace {

constinit Settings current_settings;
constexpr std::string_view kPrefix = "ALLOD_";

constexpr bool kReportsForeign = kVariant != Variant::release;

// Copies, since the environment may change.
constinit char stats_file_name[4096];
constinit char profile_file_name[4096];
constinit char leaks_file_name[4096];

// False if it is empty or too long.
bool keep(char (&name)[4096], std::string_view value) noexcept {
  if (value.empty() || value.size() >= sizeof name) return false;
  memcpy(name, value.data(), value.size());
  name[value.size()] = '\0';
  return true;
}

// False if the descriptor is closed.
bool identify(int descriptor, struct stat64* file) noexcept {
  return raw_syscall(os::calls::kStatusOfFile, descriptor, reinterpret_cast<long>(file)) == 0;
}

constexpr char kMeasures[] =
    "all, balanced, light, none, canary, neighbours, zero, written, quarantine, shuffle, guards, "
    "empty, origin, addresses, positions, sweep, tags, history";
static_assert([] {
  for (const LevelName& known : kLevelNames) {
    if (std::string_view{kMeasures}.find(known.name) == std::string_view::npos) return false;
  }
  for (const MitigationName& known : kMitigationNames) {
    if (std::string_view{kMeasures}.find(known.name) == std::string_view::npos) return false;
  }
  return true;
}());

// Whether the profile may use the signal. Excluded: signals of faults, which would recur without
// end; signals that cannot be caught; those of the C library, and our own.
bool can_take(std::int64_t signal) noexcept {
  if (signal < 1 || signal > kLastSignal || signal == kSecondStopSignal) return false;
  if (signal >= 32 && signal < kFirstFreeSignal) return false;
  for (const int other : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGKILL, SIGSTOP}) {
    if (signal == other) return false;
  }
  return true;
}

bool is_not_ours(Settings&, std::string_view) noexcept { return true; }

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
    {"VERBOSE", "0 to 2", "0", false,
     "1: print version and build at start; 2: print the chosen options, too",
     [](Settings& s, std::string_view v) noexcept {
       std::int64_t level = 0;
       if (!parse_number(v, &level) || level < 0 || level > 2) return false;
       s.verbosity = level;
       return true;
     }},
    {"SHOW_STATS", "0, 1, text, json", "0", false, "print statistics when the process ends",
     [](Settings& s, std::string_view v) noexcept {
       bool yes = false;
       if (v == "text") {
         s.show_stats = StatsFormat::text;
       } else if (v == "json") {
         s.show_stats = StatsFormat::json;
       } else if (parse_bool(v, &yes)) {
         s.show_stats = yes ? StatsFormat::text : StatsFormat::none;
       } else {
         return false;
       }
       return true;
     }},
    {"STATS_FILE", "a path", "standard error", false,
     "file for the statistics; %p becomes the process id",
     [](Settings& s, std::string_view v) noexcept {
       if (!keep(stats_file_name, v)) return false;
       s.stats_file = stats_file_name;
       return true;
     }},
    {"SHOW_ERRORS", "0, 1", "1", false, "report misuse of the heap on standard error",
     [](Settings& s, std::string_view v) noexcept { return parse_bool(v, &s.show_errors); }},
    {"ABORT_ON_ERROR", "0, 1", "1", false,
     "abort after a report; 0: go on, and ignore a wrong free",
     [](Settings& s, std::string_view v) noexcept { return parse_bool(v, &s.abort_on_error); }},
    {"REPORT_FD", "an open file descriptor", "none", false,
     "also write each report to this descriptor, as one line of JSON, unless the program has since "
     "opened another file there",
     [](Settings& s, std::string_view v) noexcept {
       std::int64_t descriptor = 0;
       struct stat64 file{};
       if (!parse_number(v, &descriptor) || descriptor < 0 || descriptor > INT32_MAX ||
           !identify(static_cast<int>(descriptor), &file)) {
         return false;
       }
       s.report_descriptor = static_cast<int>(descriptor);
       s.report_device = file.st_dev;
       s.report_inode = file.st_ino;
       return true;
     }},
    {"HARDENED", kMeasures, "all", true,
     "a level of the hardened library, or its measures, separated by commas; a minus before a name "
     "leaves it out",
     [](Settings& s, std::string_view v) noexcept {
       return Mitigations::parse(v, &s.mitigations);
     }},
    {"FOREIGN_FREE", "ignore, report", kReportsForeign ? "report" : "ignore", false,
     "when the program frees memory of another allocator: ignore the call, or report it",
     take_foreign_free},
    {"DEEPBIND", "ignore, keep", "ignore", false,
     "RTLD_DEEPBIND in calls of dlopen. ignore: the opened library uses Allod; keep: it uses "
     "libc's malloc, and neither side may free blocks of the other",
     [](Settings& s, std::string_view v) noexcept {
       if (v != "ignore" && v != "keep") return false;
       s.keeps_deepbind = v == "keep";
       return true;
     }},
    {"PURGE_DELAY", "milliseconds, 0 or -1", "500", false,
     "how long to keep free memory before it goes back to the system; 0: not at all, -1: until the "
     "program calls malloc_trim",
     take_purge_delay},
    {"PURGE_BUDGET", "bytes", "64M", false,
     "most free memory to keep; the rest goes back without delay. By default, memory that was in "
     "use during the last second may stay, too; in a container, at most 1/16 of its memory limit",
     take_purge_budget},
    {"PURGE_THREAD", "0, 1", "1", false,
     "start a thread that gives free memory back while the program is idle; it ends when nothing "
     "is left to give back",
     take_purge_thread},
    {"MOVE_PAGES", "0, 1", "1", false,
     "a new block above 4 MiB gets the pages of free memory, if the blocks before it were written "
     "as far",
     [](Settings& s, std::string_view v) noexcept { return parse_bool(v, &s.heap.move_pages); }},
    {"HUGE_PAGES", "bytes, or never", "16M", true,
     "ask for huge pages for memory that blocks will soon fill, once so many bytes are in use",
     [](Settings& s, std::string_view v) noexcept {
       if (v != "never") return parse_size(v, &s.heap.huge_pages_from);
       s.heap.huge_pages_from = SIZE_MAX;
       return true;
     }},
    {"CACHES", "mixed, thread, processor", "mixed", true,
     "where free blocks are cached: in each thread, in each processor, or mixed: in each processor "
     "and in the busiest threads. Without restartable sequences: always in threads",
     [](Settings& s, std::string_view v) noexcept {
       using heap::Caches;
       if (v != "mixed" && v != "thread" && v != "processor") return false;
       s.heap.caches = v == "mixed"    ? Caches::mixed
                       : v == "thread" ? Caches::thread
                                       : Caches::processor;
       return true;
     }},
    {"PROCESSORS", "1 to 1024", "those of the process", true,
     "for tests: the number of processors to prepare for, whatever the machine has",
     take_processors},
    {"NODES", "1 to 16", "those of the system", true,
     "the number of memory nodes to keep apart; 1: none. By default 1, too, for a process with a "
     "memory policy",
     [](Settings& s, std::string_view v) noexcept {
       std::int64_t number = 0;
       if (!parse_number(v, &number) || number < 1 || number > kMostNodes) return false;
       s.heap.nodes = static_cast<std::uint32_t>(number);
       return true;
     }},
    {"PROFILE", "0, 1, bytes", "0", true,
     "profile the heap with one sample for so many bytes on average; 1: for 512K",
     [](Settings& s, std::string_view v) noexcept {
       std::size_t interval = 0;
       if (!parse_size(v, &interval)) return false;
       s.profiles = interval != 0;
       s.profile_interval = interval == 1 ? 0 : interval;
       return true;
     }},
    {"PROFILE_FILE", "a path", "none", false,
     "file for the profile, written when the process ends; %p becomes the process id",
     [](Settings& s, std::string_view v) noexcept {
       if (!keep(profile_file_name, v)) return false;
       s.profile_file = profile_file_name;
       return true;
     }},
    {"PROFILE_PEAKS", "0, 1", "0", false,
     "also write the profile at the peak of memory use, to a second file that ends in .peak",
     [](Settings& s, std::string_view v) noexcept { return parse_bool(v, &s.profile_peaks); }},
    {"PROFILE_SIGNAL", "USR1, USR2, PROF or a number", "none", true,
     "this signal starts the profile; while the profile runs, it writes a file that ends in .1, .2 "
     "and so on",
     [](Settings& s, std::string_view v) noexcept {
       std::int64_t number = v == "USR1" ? SIGUSR1 : v == "USR2" ? SIGUSR2 : SIGPROF;
       if (v != "USR1" && v != "USR2" && v != "PROF" && !parse_number(v, &number)) return false;
       if (!can_take(number)) return false;
       s.profile_signal = static_cast<int>(number);
       return true;
     }},
    {"LEAKS", "0, 1", "0", true,
     "find leaks when the process ends; this records every allocation and is slow",
     [](Settings& s, std::string_view v) noexcept { return parse_bool(v, &s.leaks); }},
    {"LEAKS_FILE", "a path", "standard error", false,
     "file for the leaks; %p becomes the process id",
     [](Settings& s, std::string_view v) noexcept {
       if (!keep(leaks_file_name, v)) return false;
       s.leaks_file = leaks_file_name;
       return true;
     }},
    {"GUARD_SAMPLE", "0, on, a number", "0", true,
     "put one of so many allocations, on average, on a page of its own between two guard pages; "
     "on: one of 10000",
     [](Settings& s, std::string_view v) noexcept {
       std::int64_t period = 0;
       if (v == "on") {
         period = 10'000;
       } else if (!parse_number(v, &period) || period < 0) {
         return false;
       }
       s.guard_period = static_cast<std::size_t>(period);
       return true;
     }},
    {"GUARD_SLOTS", "1 to 4096", "192", true,
     "most blocks with guard pages at a time, freed ones that Allod still watches included",
     [](Settings& s, std::string_view v) noexcept {
       std::int64_t slots = 0;
       if (!parse_number(v, &slots) || slots < 1 || slots > 4096) return false;
       s.guard_slots = static_cast<std::uint32_t>(slots);
       return true;
     }},
    {"POPULATE", "off, adaptive, all", "adaptive", false,
     "prefault fresh memory. adaptive: for small sizes with many slabs; all: always; off: never",
     [](Settings& s, std::string_view v) noexcept {
       using heap::Populate;
       if (v != "off" && v != "adaptive" && v != "all") return false;
       s.heap.populate = v == "off"   ? Populate::off
                         : v == "all" ? Populate::all
                                      : Populate::adaptive;
       return true;
     }},
    {"REGION_SIZE", kAddressesAbound ? "bytes, 1M to 64G" : "bytes, 1M to 1G",
     kAddressesAbound ? "64M" : "8M", true, "address space to reserve at a time", take_region_size},
    // Read by liballod-live.so itself.
    {"LIVE", "address:port, or 1", "none", true,
     "address of the live page, if liballod-live.so is preloaded, too; 1: any free port at "
     "127.0.0.1",
     &is_not_ours},
    {"LIVE_TOKEN", "16 characters or more", "random", true, "secret in the link of the live page",
     &is_not_ours},
    {"LIVE_LINK", "a path", "standard error", true,
     "file for the link of the live page; %p becomes the process id", &is_not_ours},
    {"LIVE_HOSTS", "names, by commas", "none", true,
     "other host names, with or without a port, under which browsers may open the page",
     &is_not_ours},
    {"LIVE_WRAPPERS", "names, by commas", "none", true,
     "functions that only pass allocations on, besides those that Allod knows; name* for all that"
     " begin so",
     &is_not_ours},
    {"LIVE_PUSH", "http://address:port/path", "none", true,
     "collector of OpenTelemetry to which the live page's server pushes profiles", &is_not_ours},
    {"LIVE_PUSH_SECONDS", "seconds", "60", true, "time between two of these profiles",
     &is_not_ours},
    {"LIVE_ONLY", "a process id", "none", true, "the only process that serves a live page",
     &is_not_ours},
    {"LIVE_CHILDREN", "0, 1", "0", true, "child processes serve live pages, too", &is_not_ours},
    {"ATTACH", "0, 1", "1", true,
     "let the same user or root open the live page of the running process (allod live PID)",
     [](Settings& s, std::string_view v) noexcept { return parse_bool(v, &s.takes_requests); }},
    {"MAGAZINE_BYTES", "bytes, 0 to 16M", "256K", false,
     "most bytes of one size class that a thread caches", take_magazine_bytes},
};

ALLOD_HOT const Option* find_option(std::string_view name) noexcept {
  for (const Option& option : kOptions) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

// substr can throw.
constexpr std::string_view part(std::string_view text, std::size_t from, std::size_t to) noexcept {
  return {text.data() + from, to - from};
}

// Visits the words of a list, without blanks, "or" and "-".
template <class Visit>
void for_each_word(std::string_view list, Visit&& visit) noexcept {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view word = part(list, 0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    for (const std::string_view sign : {" ", "or ", "-"}) {
      if (word.starts_with(sign)) word.remove_prefix(sign.size());
    }
    visit(word);
  }
}

void suggest_name(Text& out, std::string_view name) noexcept {
  NearestWord meant{name};
  for (const Option& option : kOptions) meant.offer(option.name);
  if (!meant.nearest().empty()) out << " did you mean " << kPrefix << meant.nearest() << "?";
}

// Suggests one of the option's values for each unknown word. "bytes" and "milliseconds" stand for
// numbers and are not suggested.
void suggest_value(Text& out, const Option& option, std::string_view value) noexcept {
  for_each_word(value, [&](std::string_view word) noexcept {
    NearestWord meant{word};
    bool is_known = false;
    for_each_word(option.values, [&](std::string_view known) noexcept {
      is_known |= known == word;
      const bool is_word =
          known != "bytes" && known != "milliseconds" && known.find(' ') == std::string_view::npos;
      if (is_word) meant.offer(known);
    });
    if (is_known || meant.nearest().empty()) return;
    out << "; did you mean " << meant.nearest() << "?";
  });
}

// Why a value has no effect on this processor; null: it has one.
constexpr const char* why_without_effect(std::string_view name, std::string_view value) noexcept {
  if (!kHasSequences && name == "CACHES" && value == "processor") {
    return "Allod has no restartable sequences on this processor, and caches in threads";
  }
  if (!kHasLivePage && (name == "LIVE" || name == "LIVE_CHILDREN")) {
    return "Allod has no live page on this processor";
  }
  return nullptr;
}

ALLOD_HOT void take_variable(std::string_view variable) noexcept {
  if (!variable.starts_with(kPrefix)) return;
  const std::size_t equals = variable.find('=');
  if (equals == std::string_view::npos) return;
  const std::string_view name = part(variable, kPrefix.size(), equals);
  const std::string_view value = part(variable, equals + 1, variable.size());
  const Option* const option = find_option(name);
  if (option == nullptr) {
    Message message;
    message << "warning: unknown option " << Shown{part(variable, 0, equals)} << " is ignored;";
    suggest_name(message, name);
    message << " ALLOD_HELP=1 lists the options";
  } else if (!option->set(current_settings, value)) {
    Message message;
    message << "warning: " << kPrefix << name << "=" << Shown{value} << " is ignored; expected "
            << option->values;
    suggest_value(message, *option, value);
  } else if (const char* const why = why_without_effect(name, value)) {
    Message{} << "warning: " << kPrefix << name << "=" << Shown{value} << " has no effect: " << why;
  }
}

// libc's environ may be unset inside the loader, so this reads /proc/self/environ.
void take_initial_environment() noexcept {
  const long file = raw_syscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>("/proc/self/environ"),
                                O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  static char buffer[8192];
  std::size_t held = 0;
  bool skipping = false;
  for (;;) {
    const long got = raw_syscall(SYS_read, file, reinterpret_cast<long>(buffer + held),
                                 static_cast<long>(sizeof buffer - held));
    if (got <= 0) break;
    held += static_cast<std::size_t>(got);
    std::size_t start = 0;
    for (std::size_t i = 0; i < held; ++i) {
      if (buffer[i] != '\0') continue;
      if (!skipping) take_variable({buffer + start, i - start});
      skipping = false;
      start = i + 1;
    }
    held -= start;
    memmove(buffer, buffer + start, held);
    if (held == sizeof buffer) {
      skipping = true;  // longer than any option
      held = 0;
    }
  }
  raw_syscall(SYS_close, file);
}

}  // namespace

Settings& settings() noexcept { return current_settings; }
std::int64_t verbosity() noexcept { return current_settings.verbosity; }
heap::HeapOptions heap_options() noexcept { return current_settings.heap; }

int report_descriptor() noexcept {
  const Settings& chosen = current_settings;
  struct stat64 file{};
  if (chosen.report_descriptor < 0 || !identify(chosen.report_descriptor, &file) ||
      file.st_dev != chosen.report_device || file.st_ino != chosen.report_inode) {
    return -1;
  }
  return chosen.report_descriptor;
}

void read_options_from_environment() noexcept {
  current_settings.heap.report_foreign = kReportsForeign;
  // Who starts a program with elevated rights (AT_SECURE) must not choose which files it writes.
  if (Auxiliary::value(AT_SECURE) != 0) return;
  if (environ == nullptr) return take_initial_environment();
  // Compares prefixes only: most variables are not ours, and strlen would make more of libc
  // resident.
  const auto is_ours = [](const char* variable) noexcept {
    for (const char letter : kPrefix) {
      if (*variable++ != letter) return false;
    }
    return true;
  };
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (is_ours(*variable)) take_variable(*variable);
  }
}

int change_setting(const char* name, const char* value) noexcept {
  std::string_view plain{name};
  if (plain.starts_with(kPrefix)) plain.remove_prefix(kPrefix.size());
  const Option* const option = find_option(plain);
  if (option == nullptr) return ENOENT;
  if (option->at_start_only) return EPERM;
  return option->set(current_settings, value) ? 0 : EINVAL;
}

void write_options(Text& out) noexcept {
  out << "Allod " << kVersion << " reads these environment variables:\n";
  for (const Option& option : kOptions) {
    out << "  " << kPrefix << option.name << "=" << option.values
        << "  (default: " << option.initial << ")\n      " << option.meaning << "\n";
  }
}

void write_options_markdown(Text& out) noexcept {
  out << "| option | values | default | when | meaning |\n|---|---|---|---|---|\n";
  for (const Option& option : kOptions) {
    out << "| `" << kPrefix << option.name << "` | " << option.values << " | " << option.initial
        << " | " << (option.at_start_only ? "at start" : "any time") << " | " << option.meaning
        << " |\n";
  }
}

void show_help_if_asked() noexcept {
  if (!current_settings.help) return;
  DescriptorText out{2};
  write_options(out);
}

}  // namespace allod

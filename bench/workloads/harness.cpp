#include "harness.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace bench {
namespace {

// Reports are formatted here and written with write(2): stdio would allocate a buffer.
char g_output[1U << 17U];
std::size_t g_length = 0;

[[gnu::format(printf, 1, 2)]] void append(const char* format, ...) {
  const std::size_t room = sizeof g_output - g_length;
  std::va_list arguments;
  va_start(arguments, format);
  const int written = std::vsnprintf(g_output + g_length, room, format, arguments);
  va_end(arguments);
  if (written < 0 || static_cast<std::size_t>(written) >= room) {
    die("the report does not fit its buffer");
  }
  g_length += static_cast<std::size_t>(written);
}

void write_all(int descriptor, const char* text, std::size_t length) {
  while (length > 0) {
    const ssize_t written = write(descriptor, text, length);
    if (written <= 0) {
      _exit(1);
    }
    text += written;
    length -= static_cast<std::size_t>(written);
  }
}

// Hands each line of a file under /proc to `visit`, without allocating. A line longer than the
// buffer is handed over in pieces.
template <class Visit>
void each_line(const char* path, Visit visit) {
  static char buffer[1U << 14U];
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    die("cannot read %s", path);
  }
  std::size_t held = 0;
  for (;;) {
    const ssize_t count = read(descriptor, buffer + held, sizeof buffer - held - 1);
    held += count > 0 ? static_cast<std::size_t>(count) : 0;
    std::size_t begin = 0;
    while (begin < held) {
      void* end = std::memchr(buffer + begin, '\n', held - begin);
      if (end == nullptr && count > 0 && (begin > 0 || held < sizeof buffer - 1)) {
        break;
      }
      const std::size_t stop =
          end != nullptr ? static_cast<std::size_t>(static_cast<char*>(end) - buffer) : held;
      buffer[stop] = '\0';
      visit(static_cast<const char*>(buffer + begin), stop - begin);
      begin = stop + (end != nullptr ? 1 : 0);
    }
    std::memmove(buffer, buffer + begin, held - begin);
    held -= begin;
    if (count <= 0) {
      break;
    }
  }
  close(descriptor);
}

struct Resident {
  unsigned long peak_kib = 0;
  unsigned long final_kib = 0;
};

Resident resident() {
  Resident result;
  each_line("/proc/self/status", [&](const char* line, std::size_t) {
    std::sscanf(line, "VmHWM: %lu kB", &result.peak_kib);
    std::sscanf(line, "VmRSS: %lu kB", &result.final_kib);
  });
  return result;
}

bool is_mapped(const char* path) {
  const std::size_t length = std::strlen(path);
  bool found = false;
  each_line("/proc/self/maps", [&](const char* line, std::size_t line_length) {
    const char* tail = line + line_length - length;
    found =
        found || (line_length > length && tail[-1] == ' ' && std::memcmp(tail, path, length) == 0);
  });
  return found;
}

// Appends a path as a JSON string.
void append_string(const char* text) {
  append("\"");
  for (; *text != '\0'; ++text) {
    const auto byte = static_cast<unsigned char>(*text);
    if (byte < 0x20 || byte == '"' || byte == '\\') {
      append("\\u%04x", byte);
    } else {
      append("%c", *text);
    }
  }
  append("\"");
}

void append_allocator() {
  Dl_info info{};
  append(",\"malloc_from\":");
  if (dladdr(reinterpret_cast<void*>(&std::malloc), &info) != 0 && info.dli_fname != nullptr) {
    append_string(info.dli_fname);
  } else {
    append("null");
  }
  const char* expected = std::getenv("BENCH_EXPECT");
  append(",\"expected_library\":%s",
         expected == nullptr ? "null" : (is_mapped(expected) ? "true" : "false"));
}

pthread_barrier_t g_gate;

// The workload whose only thread is the main thread, while that runs.
Workload* g_alone = nullptr;

struct Member {
  const Crew* crew;
  std::size_t index;
};

void* run_member(void* argument) {
  const auto* member = static_cast<const Member*>(argument);
  member->crew->body(member->crew->context, member->index);
  pthread_barrier_wait(&g_gate);
  return nullptr;
}

void* map_memory(std::size_t bytes, int flags) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (memory == MAP_FAILED) {
    die("cannot map %zu bytes", bytes);
  }
  return memory;
}

}  // namespace

void die(const char* format, ...) {
  char text[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  write_all(2, "error: ", 7);
  write_all(2, text, std::strlen(text));
  write_all(2, "\n", 1);
  _exit(1);
}

std::uint64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(time.tv_nsec);
}

void* map_memory(std::size_t bytes) { return map_memory(bytes, 0); }

void* map_resident_memory(std::size_t bytes) { return map_memory(bytes, MAP_POPULATE); }

std::uint64_t resident_kib() {
  char text[128];
  const int descriptor = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  const ssize_t length = descriptor < 0 ? -1 : read(descriptor, text, sizeof text - 1);
  close(descriptor);
  text[length < 0 ? 0 : length] = '\0';
  unsigned long pages = 0;
  if (std::sscanf(text, "%*u %lu", &pages) != 1) {
    die("cannot read /proc/self/statm");
  }
  static const auto kPage = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return pages * kPage / 1024;
}

std::uint64_t exact_resident_kib() {
  constexpr const char* kPath = "/proc/self/smaps_rollup";
  unsigned long kib = 0;
  if (access(kPath, R_OK) == 0) {
    each_line(kPath,
              [&](const char* line, std::size_t) { std::sscanf(line, "Rss: %lu kB", &kib); });
  }
  return kib != 0 ? kib : resident_kib();
}

std::uint64_t peak_resident_kib() { return resident().peak_kib; }

double over_live(std::uint64_t resident_kib, std::uint64_t base_kib, std::uint64_t live) {
  const std::uint64_t added = resident_kib > base_kib ? resident_kib - base_kib : 0;
  return static_cast<double>(added) * 1024 / static_cast<double>(live);
}

void Series::add(double at, double value) {
  if (count == kMost) {
    die("a series of more than %zu points", kMost);
  }
  points[count][0] = at;
  points[count][1] = value;
  ++count;
}

std::uint16_t* size_table(std::size_t count, std::uint64_t least, std::uint64_t most,
                          std::uint64_t seed) {
  auto* sizes = map_array<std::uint16_t>(count);
  Random random(seed);
  for (std::size_t i = 0; i < count; ++i) {
    sizes[i] = static_cast<std::uint16_t>(least + random.below(most - least + 1));
  }
  return sizes;
}

pthread_t start_thread(void* (*body)(void*), void* argument) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, body, argument) != 0) {
    die("cannot start a thread");
  }
  return thread;
}

void run_threads(std::size_t count, const Crew& crew) {
  static pthread_t threads[kMostThreads];
  static Member members[kMostThreads];
  if (count > kMostThreads ||
      pthread_barrier_init(&g_gate, nullptr, static_cast<unsigned>(count + 1)) != 0) {
    die("cannot start %zu threads", count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    members[i] = {&crew, i};
    threads[i] = start_thread(run_member, &members[i]);
  }
  // The first round of the barrier says that all are warm, the second lets them go, the third
  // that all have ended. Between the first two only this thread runs.
  pthread_barrier_wait(&g_gate);
  crew.ready(crew.context);
  pthread_barrier_wait(&g_gate);
  pthread_barrier_wait(&g_gate);
  crew.done(crew.context);
  for (std::size_t i = 0; i < count; ++i) {
    pthread_join(threads[i], nullptr);
  }
}

void pass_gate() {
  if (g_alone != nullptr) {
    g_alone->start();
    return;
  }
  pthread_barrier_wait(&g_gate);
  pthread_barrier_wait(&g_gate);
}

void Workload::parse(int argc, char** argv) const {
  constexpr std::size_t kMostParameters = 16;
  option options[kMostParameters + 2]{};
  if (count_ > kMostParameters) {
    die("too many parameters");
  }
  for (std::size_t i = 0; i < count_; ++i) {
    options[i] = {parameters_[i].name, required_argument, nullptr, static_cast<int>(i + 1)};
  }
  options[count_] = {"help", no_argument, nullptr, 'h'};

  for (int chosen; (chosen = getopt_long(argc, argv, "", options, nullptr)) != -1;) {
    if (chosen == 'h') {
      append("%s: %s\n", name_, meaning_);
      for (std::size_t i = 0; i < count_; ++i) {
        const Parameter& p = parameters_[i];
        append("  --%-10s %s (%llu to %llu, default %llu)\n", p.name, p.meaning,
               static_cast<unsigned long long>(p.least), static_cast<unsigned long long>(p.most),
               static_cast<unsigned long long>(*p.value));
      }
      write_all(1, g_output, g_length);
      _exit(0);
    }
    if (chosen == '?') {
      _exit(2);
    }
    const Parameter& parameter = parameters_[chosen - 1];
    const char* end = optarg + std::strlen(optarg);
    const auto [stop, error] = std::from_chars(optarg, end, *parameter.value);
    if (error != std::errc{} || stop != end || *parameter.value < parameter.least ||
        *parameter.value > parameter.most) {
      std::fprintf(stderr, "%s: --%s must be a whole number from %llu to %llu, not '%s'\n", name_,
                   parameter.name, static_cast<unsigned long long>(parameter.least),
                   static_cast<unsigned long long>(parameter.most), optarg);
      _exit(2);
    }
  }
  if (optind < argc) {
    std::fprintf(stderr, "%s: unexpected argument '%s'\n", name_, argv[optind]);
    _exit(2);
  }
}

void Workload::refuse(const char* why) const {
  std::fprintf(stderr, "%s: %s\n", name_, why);
  _exit(2);
}

Workload::Usage Workload::usage() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return {.wall = static_cast<double>(now()) * 1e-9,
          .user = seconds(used.ru_utime),
          .system = seconds(used.ru_stime),
          .minor_faults = used.ru_minflt,
          .major_faults = used.ru_majflt,
          .voluntary_switches = used.ru_nvcsw,
          .involuntary_switches = used.ru_nivcsw};
}

void Workload::start() { before_ = usage(); }

void Workload::stop() {
  const Usage after = usage();
  spent_.wall += after.wall - before_.wall;
  spent_.user += after.user - before_.user;
  spent_.system += after.system - before_.system;
  spent_.minor_faults += after.minor_faults - before_.minor_faults;
  spent_.major_faults += after.major_faults - before_.major_faults;
  spent_.voluntary_switches += after.voluntary_switches - before_.voluntary_switches;
  spent_.involuntary_switches += after.involuntary_switches - before_.involuntary_switches;
}

void Workload::run(std::size_t threads, void (*body)(std::size_t index)) {
  if (threads == 1) {
    g_alone = this;
    body(0);
    stop();
    g_alone = nullptr;
    return;
  }
  struct Measured {
    Workload* workload;
    void (*body)(std::size_t index);
  } measured{this, body};
  run_threads(threads,
              {.body = [](void* context,
                          std::size_t index) { static_cast<Measured*>(context)->body(index); },
               .context = &measured,
               .ready = [](void* context) { static_cast<Measured*>(context)->workload->start(); },
               .done = [](void* context) { static_cast<Measured*>(context)->workload->stop(); }});
}

void Workload::close_list() {
  if (list_ != nullptr) {
    append("]");
    list_ = nullptr;
  }
}

// Begins the next item of the list with this key.
void Workload::open_list(const char* key) {
  if (list_ != nullptr && std::strcmp(list_, key) == 0) {
    append(",");
    return;
  }
  close_list();
  append("%s\"%s\":[", g_length > 0 ? "," : "", key);
  list_ = key;
}

void Workload::point(const char* name, double nanoseconds) {
  open_list("points");
  append("{\"name\":\"%s\",\"nanoseconds\":%.3f}", name, nanoseconds);
}

void Workload::series(const Series& series) {
  open_list("series");
  append("{\"name\":\"%s\",\"x\":\"%s\",\"y\":\"%s\",\"points\":[", series.name, series.x,
         series.y);
  for (std::size_t i = 0; i < series.count; ++i) {
    append("%s[%.6g,%.9g]", i == 0 ? "" : ",", series.points[i][0], series.points[i][1]);
  }
  append("]}");
}

void Workload::percentiles(const char* name, const double (&nanoseconds)[kPercentileCount]) {
  open_list("percentiles");
  append("{\"name\":\"%s\",\"nanoseconds\":{", name);
  for (std::size_t i = 0; i < kPercentileCount; ++i) {
    append("%s\"%.6g\":%.1f", i == 0 ? "" : ",", static_cast<double>(kPercentiles[i]) / 1000,
           nanoseconds[i]);
  }
  append("}}");
}

void Workload::figure(const char* name, double value, const char* unit, const char* better) {
  open_list("figures");
  append("{\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\",\"better\":\"%s\"}", name, value, unit,
         better);
}

void Workload::report(std::uint64_t ops, std::uint64_t checksum) {
  close_list();
  const Resident memory = resident();
  // What was added so far becomes the tail of the object.
  static char extra[sizeof g_output];
  const std::size_t extra_length = g_length;
  std::memcpy(extra, g_output, extra_length);
  g_length = 0;

  append("{\"workload\":\"%s\",\"params\":{", name_);
  for (std::size_t i = 0; i < count_; ++i) {
    append("%s\"%s\":%llu", i == 0 ? "" : ",", parameters_[i].name,
           static_cast<unsigned long long>(*parameters_[i].value));
  }
  append("},\"seconds\":%.9f,\"ops\":%llu,\"checksum\":\"%016llx\"", spent_.wall,
         static_cast<unsigned long long>(ops), static_cast<unsigned long long>(checksum));
  append(",\"user_seconds\":%.6f,\"system_seconds\":%.6f", spent_.user, spent_.system);
  append(",\"minor_faults\":%ld,\"major_faults\":%ld", spent_.minor_faults, spent_.major_faults);
  append(",\"voluntary_switches\":%ld,\"involuntary_switches\":%ld", spent_.voluntary_switches,
         spent_.involuntary_switches);
  append(",\"peak_rss_kib\":%lu,\"final_rss_kib\":%lu", memory.peak_kib, memory.final_kib);
  append_allocator();
#ifdef __clang__
  append(",\"compiler\":\"clang " __clang_version__ "\"");
#else
  append(",\"compiler\":\"gcc " __VERSION__ "\"");
#endif
  append("%s%.*s}\n", extra_length > 0 ? "," : "", static_cast<int>(extra_length), extra);
  write_all(1, g_output, g_length);
}

}  // namespace bench

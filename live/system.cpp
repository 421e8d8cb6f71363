#include "system.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

namespace allod::live {

namespace {

std::uint64_t clock_ms(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

// The number behind `label`, or 0.
std::uint64_t number_after(const char* text, const char* label) noexcept {
  const char* const found = strstr(text, label);
  return found == nullptr ? 0 : strtoull(found + strlen(label), nullptr, 10);
}

}  // namespace

std::uint64_t now_ms() noexcept { return clock_ms(CLOCK_MONOTONIC); }
std::uint64_t wall_clock_ms() noexcept { return clock_ms(CLOCK_REALTIME); }

std::uint64_t thread_time_ms() noexcept { return clock_ms(CLOCK_THREAD_CPUTIME_ID); }

void http_date(char (&to)[32]) noexcept {
  static const char* const kDays[] = {"Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"};
  static const char* const kMonths[] = {"Mar", "Apr", "May", "Jun", "Jul", "Aug",
                                        "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"};
  const std::uint64_t seconds = wall_clock_ms() / 1000;
  const std::uint64_t days = seconds / 86'400;
  // Years start in March, in eras of 400 years; after H. Hinnant, "chrono-compatible low-level date
  // algorithms".
  const std::uint64_t shifted = days + 719'468;
  const std::uint64_t of_era = shifted % 146'097;
  const std::uint64_t year = (of_era - of_era / 1460 + of_era / 36'524 - of_era / 146'096) / 365;
  const std::uint64_t of_year = of_era - (365 * year + year / 4 - year / 100);
  const std::uint64_t month = (5 * of_year + 2) / 153;
  const std::uint64_t day = of_year - (153 * month + 2) / 5 + 1;
  snprintf(to, sizeof to, "%s, %02u %s %04u %02u:%02u:%02u GMT", kDays[days % 7],
           static_cast<unsigned>(day), kMonths[month],
           static_cast<unsigned>(year + shifted / 146'097 * 400 + (month >= 10 ? 1 : 0)),
           static_cast<unsigned>(seconds / 3600 % 24), static_cast<unsigned>(seconds / 60 % 60),
           static_cast<unsigned>(seconds % 60));
}

std::size_t read_file(const char* path, char* to, std::size_t room) noexcept {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  std::size_t length = 0;
  if (file >= 0) {
    while (length + 1 < room) {
      const ssize_t got = read(file, to + length, room - 1 - length);
      if (got <= 0) break;
      length += static_cast<std::size_t>(got);
    }
    close(file);
  }
  to[length] = '\0';
  return length;
}

ProcessFigures process_figures() noexcept {
  ProcessFigures figures{};
  char text[4096];
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (read_file("/proc/self/statm", text, sizeof text) > 0) {
    char* rest = nullptr;
    figures.addresses = strtoull(text, &rest, 10) * page;
    figures.resident = strtoull(rest, nullptr, 10) * page;
  }
  if (read_file("/proc/self/status", text, sizeof text) > 0) {
    figures.threads = number_after(text, "\nThreads:");
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  figures.minor_faults = static_cast<std::uint64_t>(usage.ru_minflt);
  figures.major_faults = static_cast<std::uint64_t>(usage.ru_majflt);
  return figures;
}

std::uint64_t process_began() noexcept {
  char text[1024];
  read_file("/proc/self/stat", text, sizeof text);
  const char* at = strrchr(text, ')');
  // The start, in ticks since the machine's, is the 20th field behind the name.
  for (int i = 0; at != nullptr && i < 20; ++i) at = strchr(at + 1, ' ');
  const long ticks = sysconf(_SC_CLK_TCK);
  if (at == nullptr || ticks <= 0) return 0;
  const std::uint64_t since_boot = strtoull(at, nullptr, 10) / static_cast<std::uint64_t>(ticks);
  const std::uint64_t booted = (clock_ms(CLOCK_REALTIME) - clock_ms(CLOCK_BOOTTIME)) / 1000;
  return booted + since_boot;
}

void thread_name(std::uint32_t thread, char (&name)[16]) noexcept {
  char path[64];
  char text[32];
  snprintf(path, sizeof path, "/proc/self/task/%u/comm", thread);
  std::size_t length = read_file(path, text, sizeof text);
  if (length > 0 && text[length - 1] == '\n') --length;
  if (length >= sizeof name) length = sizeof name - 1;
  memcpy(name, text, length);
  name[length] = '\0';
}

bool is_last_thread() noexcept {
  // An ended main thread stays in the list until the others have ended.
  struct stat tasks{};
  if (stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink != 4) return false;
  char path[64];
  char text[512];
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
  read_file(path, text, sizeof text);
  const char* const end = strrchr(text, ')');
  return end != nullptr && end[1] == ' ' && end[2] == 'Z';
}

void measure_residency(const Piece* pieces, std::size_t count, std::size_t* resident) noexcept {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  constexpr std::size_t kPages = 4096;
  static unsigned char present[kPages];
  // Adjacent pieces are queried together.
  std::uintptr_t from = 0;
  std::uintptr_t to = 0;
  bool known = false;
  for (std::size_t i = 0; i < count; ++i) {
    const Piece& piece = pieces[i];
    resident[i] = 0;
    const std::uintptr_t end = piece.address + piece.bytes;
    for (std::uintptr_t at = piece.address; at < end; at += page) {
      if (at < from || at >= to) {
        std::uintptr_t reach = end;
        for (std::size_t next = i + 1; next < count && pieces[next].address == reach; ++next) {
          reach += pieces[next].bytes;
          if (reach - at >= kPages * page) break;
        }
        from = at;
        to = reach - at > kPages * page ? at + kPages * page : reach;
        known = mincore(reinterpret_cast<void*>(from), to - from, present) == 0;
      }
      if (known && (present[(at - from) / page] & 1) != 0) resident[i] += page;
    }
  }
}

}  // namespace allod::live

#include "statistics/usage.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <string_view>

namespace allod {

namespace {

Faults all_page_faults() noexcept {
  rusage usage{};
  raw_syscall(SYS_getrusage, RUSAGE_SELF, reinterpret_cast<long>(&usage));
  return {static_cast<std::uint64_t>(usage.ru_minflt), static_cast<std::uint64_t>(usage.ru_majflt)};
}

// Page faults at the start: the kernel's counters survive exec and include the previous program's.
struct Start {
  long process;
  Faults faults;
};
constinit Start start{};

// Parses /proc/self/status, in pieces of any size.
class ResidentReader {
 public:
  void take(char c) noexcept {
    if (c != '\n') {
      if (length_ < sizeof line_) line_[length_++] = c;
      return;
    }
    const std::string_view line{line_, length_};
    if (line.starts_with("VmRSS:")) resident_.now = number_in(line) * 1024;
    if (line.starts_with("VmHWM:")) resident_.peak = number_in(line) * 1024;
    length_ = 0;
  }
  [[nodiscard]] Resident result() const noexcept { return resident_; }

 private:
  static std::uint64_t number_in(std::string_view line) noexcept {
    std::uint64_t number = 0;
    for (const char c : line) {
      if (c >= '0' && c <= '9') number = number * 10 + static_cast<std::uint64_t>(c - '0');
    }
    return number;
  }

  char line_[64];
  std::size_t length_ = 0;
  Resident resident_;
};

}  // namespace

void note_start() noexcept { start = {raw_syscall(SYS_getpid), all_page_faults()}; }

Faults page_faults() noexcept {
  Faults faults = all_page_faults();
  // In a child, the counters began at its fork.
  if (start.process != raw_syscall(SYS_getpid)) return faults;
  faults.minor -= start.faults.minor < faults.minor ? start.faults.minor : faults.minor;
  faults.major -= start.faults.major < faults.major ? start.faults.major : faults.major;
  return faults;
}

Resident resident() noexcept {
  // Not /proc/self/status, which is empty once the main thread has ended.
  constexpr char kFile[] = "/proc/thread-self/status";
  const long file =
      raw_syscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>(kFile), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  ResidentReader reader;
  char part[1024];
  long got = 0;
  while ((got = raw_syscall(SYS_read, file, reinterpret_cast<long>(part), sizeof part)) > 0) {
    for (const char c : std::string_view{part, static_cast<std::size_t>(got)}) reader.take(c);
  }
  raw_syscall(SYS_close, file);
  return reader.result();
}

}  // namespace allod

#include "profile/file.hpp"

#include <errno.h>
#include <signal.h>

#include "profile/profile.hpp"
#include "settings/options.hpp"
#include "text/output_file.hpp"

namespace allod::profile {

namespace {

// Returns 0 or an error number.
long write_to(const OutputFile& file) noexcept {
  return file.write([](Text& out) noexcept { write(out); });
}
void write_or_warn(const OutputFile& file) noexcept {
  const long error = write_to(file);
  if (error != 0) file.warn("the profile", error);
}

// The suffix ".N" of files written on a signal.
struct Numbered {
  char text[24];
  explicit Numbered(std::uint64_t number) noexcept {
    char* at = text + sizeof text;
    *--at = '\0';
    do {
      *--at = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    *--at = '.';
    suffix = at;
  }
  const char* suffix;
};

constinit std::atomic<std::uint64_t> asked{0};    // signals so far
constinit std::atomic<std::uint64_t> written{0};  // files written for them

void write_what_was_asked() noexcept {
  for (;;) {
    std::uint64_t done = written.load();
    if (done >= asked.load()) return;
    if (!written.compare_exchange_strong(done, done + 1)) continue;
    write_or_warn(OutputFile{settings().profile_file, Numbered{done + 1}.suffix});
  }
}

// Takes no lock that the interrupted code may hold, except the profile's own: a thread that is busy
// with the profile writes the file afterwards.
void on_signal(int) noexcept {
  const int error = errno;
  if (!Profile::is_on()) {
    Profile::start_with_process(0);
  } else if (settings().profile_file != nullptr) {
    asked.fetch_add(1);
    if (!Profile::is_busy()) write_what_was_asked();
  }
  errno = error;
}

// Replaces the file atomically, so readers always find a whole profile, and the previous one if
// writing fails. Only the first failure is reported, since there may be many.
void write_peak() noexcept {
  const OutputFile unfinished{settings().profile_file, ".peak.new"};
  const OutputFile finished{settings().profile_file, ".peak"};
  long error = write_to(unfinished);
  if (error == 0) error = unfinished.rename_to(finished);
  if (error == 0) return;
  unfinished.remove();
  static constinit std::atomic<bool> was_told{false};
  if (!was_told.exchange(true)) finished.warn("the profile", error);
}

}  // namespace

void watch_signal() noexcept {
  if (settings().profile_signal == 0) return;
  struct sigaction action{};
  action.sa_handler = &on_signal;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  sigaction(settings().profile_signal, &action, nullptr);
}

void write_due_files(unsigned long long peak) noexcept {
  if (asked.load(std::memory_order_relaxed) != written.load(std::memory_order_relaxed)) {
    write_what_was_asked();
  }
  if (peak == 0 || !settings().profile_peaks || settings().profile_file == nullptr) return;
  // Requires 1/8 more than the last time, to limit the number of files.
  static constinit std::atomic<unsigned long long> last{std::size_t{1} << 20};
  unsigned long long before = last.load(std::memory_order_relaxed);
  if (peak < before + before / 8) return;
  static constinit std::atomic<bool> writing{false};
  if (writing.exchange(true, std::memory_order_acquire)) return;
  last.store(peak, std::memory_order_relaxed);
  write_peak();
  writing.store(false, std::memory_order_release);
}

void write_file_at_end() noexcept {
  if (settings().profile_file == nullptr || !Profile::may_know()) return;
  write_or_warn(OutputFile{settings().profile_file, ""});
}

}  // namespace allod::profile

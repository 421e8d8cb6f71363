// liballod-ends.so: where SIGHUP, SIGINT or SIGTERM would end the process, the reports that the
// options ask for are written first. Stands in front of sigaction() and signal(), so that the
// program finds the default action that it left, and its own handlers count as ever.
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allod.h"
#include "libc/next_function.hpp"

#define ALLOD_EXPORT extern "C" [[gnu::visibility("default")]]

// Whichever of them is in the process.
#pragma weak allod_reports_write
extern "C" [[gnu::weak]] void liballod_record_end() noexcept;

namespace {

constexpr int kWatched[] = {SIGHUP, SIGINT, SIGTERM};

bool is_watched(int signal) noexcept {
  for (const int watched : kWatched) {
    if (watched == signal) return true;
  }
  return false;
}

using Action = int (*)(int, const struct sigaction*, struct sigaction*);
constinit std::atomic<Action> next_action{nullptr};

int set_action(int signal, const struct sigaction* action, struct sigaction* before) noexcept {
  const Action next = allod::next_function(next_action, "sigaction");
  if (next != nullptr) return next(signal, action, before);
  errno = ENOSYS;
  return -1;
}

// Sends the signal to this thread again, in a moment. False if the system has no timers.
bool come_again(int signal) noexcept {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = signal;
  // glibc's field has a name in newer versions only.
  const auto thread = static_cast<int>(syscall(SYS_gettid));
  memcpy(reinterpret_cast<char*>(&event.sigev_notify) + sizeof event.sigev_notify, &thread,
         sizeof thread);
  int timer = 0;
  if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) != 0) return false;
  constexpr long kMillisecond = 1'000'000;
  const itimerspec soon{{0, 0}, {0, kMillisecond}};
  return syscall(SYS_timer_settime, timer, 0, &soon, nullptr) == 0;
}

// Whether all is written. What the interrupted code holds, it gives back in a moment.
bool write_all() noexcept {
  if (&allod_reports_write != nullptr && allod_reports_write() == EAGAIN) return false;
  if (&liballod_record_end != nullptr) liballod_record_end();
  return true;
}

void on_signal(int signal) noexcept {
  constexpr int kMostTries = 2'000;
  static constinit std::atomic<int> tries{0};
  static constinit std::atomic<bool> is_writing{false};
  // The thread that writes will end the process.
  if (is_writing.exchange(true)) return;
  const int error = errno;
  if (!write_all() && tries.fetch_add(1) < kMostTries && come_again(signal)) {
    is_writing.store(false);
    errno = error;
    return;
  }
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  set_action(signal, &action, nullptr);
  // Delivered when this handler returns.
  syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signal);
}

bool is_ours(const struct sigaction& action) noexcept { return action.sa_handler == &on_signal; }

struct sigaction ours() noexcept {
  struct sigaction action{};
  action.sa_handler = &on_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  return action;
}

// Handlers that leave the default action behind when they run (SA_RESETHAND): by signal. Ours runs
// in their place, and leaves ours behind.
constexpr int kMostWatched = SIGTERM;
constinit struct sigaction once[kMostWatched + 1] = {};

void on_signal_once(int signal, siginfo_t* info, void* context) noexcept {
  const struct sigaction given = once[signal];
  const struct sigaction writing = ours();
  set_action(signal, &writing, nullptr);
  if ((given.sa_flags & SA_SIGINFO) != 0) return given.sa_sigaction(signal, info, context);
  given.sa_handler(signal);
}

bool is_once(const struct sigaction& action) noexcept {
  return action.sa_sigaction == &on_signal_once;
}

// What the kernel gets in place of the program's action.
struct sigaction in_place_of(int signal, const struct sigaction& action) noexcept {
  if (action.sa_handler == SIG_DFL) return ours();
  struct sigaction result = action;
  if ((static_cast<unsigned>(action.sa_flags) & SA_RESETHAND) != 0 &&
      action.sa_handler != SIG_IGN) {
    once[signal] = action;
    const auto flags = static_cast<unsigned>(action.sa_flags) & ~unsigned{SA_RESETHAND};
    result.sa_flags = static_cast<int>(flags | SA_SIGINFO);
    result.sa_sigaction = &on_signal_once;
  }
  return result;
}

[[gnu::constructor]] void watch() noexcept {
  if (&allod_reports_write == nullptr && &liballod_record_end == nullptr) return;
  const struct sigaction writing = ours();
  for (const int signal : kWatched) {
    struct sigaction before{};
    if (set_action(signal, nullptr, &before) == 0 && before.sa_handler == SIG_DFL) {
      set_action(signal, &writing, nullptr);
    }
  }
}

}  // namespace

ALLOD_EXPORT int sigaction(int signal, const struct sigaction* action,
                           struct sigaction* before) noexcept {
  if (!is_watched(signal)) return set_action(signal, action, before);
  const struct sigaction earlier = once[signal];
  struct sigaction placed{};
  if (action != nullptr) placed = in_place_of(signal, *action);
  const int result = set_action(signal, action == nullptr ? nullptr : &placed, before);
  if (result != 0 || before == nullptr) return result;
  if (is_ours(*before)) {
    *before = {};
  } else if (is_once(*before)) {
    *before = earlier;
  }
  return result;
}

ALLOD_EXPORT sighandler_t signal(int number, sighandler_t handler) noexcept {
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaddset(&action.sa_mask, number);
  return sigaction(number, &action, &before) == 0 ? before.sa_handler : SIG_ERR;
}

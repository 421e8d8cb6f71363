#include "stop_threads.hpp"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "stop_signal.hpp"

namespace allod {

namespace {

using os::Linux;

constexpr std::size_t kMost = 4096;

constinit struct {
  std::uint32_t threads[kMost] = {};
  std::size_t signalled = 0;
  std::atomic<Address> stacks[kMost] = {};
  std::atomic<std::uint32_t> stopped{0};
  std::atomic<std::uint32_t> left{0};
  std::atomic<std::uint32_t> go{0};
  std::atomic<std::uint32_t> taken{0};
} stop;
struct sigaction action_before;

Address stack_pointer(const ucontext_t& context) noexcept {
#if defined(__x86_64__)
  constexpr Address kRedZone = 128;
  return static_cast<Address>(context.uc_mcontext.gregs[REG_RSP]) - kRedZone;
#else
  return static_cast<Address>(context.uc_mcontext.sp);
#endif
}

// The frame of the signal holds the registers. It is on the thread's stack, or on one of its own,
// of which everything counts.
void wait_in_handler(int, siginfo_t*, void* context) {
  const int error = errno;
  const Address interrupted = stack_pointer(*static_cast<const ucontext_t*>(context));
  const Address here = address_of(__builtin_frame_address(0)) - 256;
  const bool same_stack = interrupted - here < (Address{1} << 16);
  const std::uint32_t place = stop.stopped.fetch_add(1);
  if (place < kMost) stop.stacks[place].store(same_stack ? here : interrupted);
  Linux::futex_wake(&stop.stopped, 1);
  while (stop.go.load() == 0) Linux::futex_wait(&stop.go, 0);
  stop.left.fetch_add(1);
  Linux::futex_wake(&stop.left, 1);
  errno = error;
}

bool was_signalled(std::uint32_t thread) noexcept {
  for (std::size_t i = 0; i < stop.signalled; ++i) {
    if (stop.threads[i] == thread) return true;
  }
  return false;
}

struct Entry {  // of a folder, as the kernel writes it
  std::uint64_t inode;
  std::int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[1];
};

// Calls `visit` with the id of each thread.
template <class Visit>
void for_each_thread(Visit&& visit) noexcept {
  const long folder = raw_syscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>("/proc/self/task"),
                                  O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  alignas(8) char buffer[4096] = {};
  for (;;) {
    const long got =
        raw_syscall(SYS_getdents64, folder, reinterpret_cast<long>(buffer), sizeof buffer);
    if (got <= 0) break;
    for (long at = 0; at < got;) {
      const auto& entry = *reinterpret_cast<const Entry*>(buffer + at);
      at += entry.length;
      std::uint32_t thread = 0;
      for (const char* digit = entry.name; *digit >= '0' && *digit <= '9'; ++digit) {
        thread = thread * 10 + static_cast<std::uint32_t>(*digit - '0');
      }
      if (thread != 0) visit(thread);
    }
  }
  raw_syscall(SYS_close, folder);
}

// A thread that blocks the signal never comes.
void wait_for_stopped() noexcept {
  for (int patience = 200; patience > 0; --patience) {
    const std::uint32_t stopped = stop.stopped.load();
    if (stopped >= stop.signalled) return;
    Linux::futex_wait_ms(&stop.stopped, stopped, 1);
  }
}

}  // namespace

StoppedThreads::StoppedThreads() noexcept {
  // Whoever stops threads here is stopped itself perhaps, until the other one is done.
  while (stop.taken.exchange(1) != 0) Linux::futex_wait_ms(&stop.taken, 1, 1);
  stop.signalled = 0;
  stop.stopped.store(0);
  stop.left.store(0);
  stop.go.store(0);
  struct sigaction action{};
  action.sa_sigaction = &wait_in_handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  sigaction(stop_signal(), &action, &action_before);
  stop_all();
}

// Until no thread is found that was not stopped.
void StoppedThreads::stop_all() noexcept {
  const auto self = static_cast<std::uint32_t>(raw_syscall(SYS_gettid));
  const long process = raw_syscall(SYS_getpid);
  for (std::size_t before = ~std::size_t{0}; before != stop.signalled;) {
    before = stop.signalled;
    for_each_thread([&](std::uint32_t thread) noexcept {
      if (thread == self || stop.signalled == kMost || was_signalled(thread)) return;
      if (Linux::Purger::is(thread) || Sweeper::is(thread)) return;
      if (raw_syscall(SYS_tgkill, process, thread, stop_signal()) != 0) return;
      stop.threads[stop.signalled++] = thread;
    });
    if (before != stop.signalled) wait_for_stopped();
  }
}

// Threads that have not come must find a handler when they do: it lets them pass.
StoppedThreads::~StoppedThreads() {
  stop.go.store(1);
  Linux::futex_wake(&stop.go, 0x7fffffff);
  for (;;) {
    const std::uint32_t left = stop.left.load();
    if (left >= stop.stopped.load()) break;
    Linux::futex_wait_ms(&stop.left, left, 1);
  }
  if (stop.stopped.load() >= stop.signalled) sigaction(stop_signal(), &action_before, nullptr);
  stop.taken.store(0);
}

void StoppedThreads::reset_in_child() noexcept { stop.taken.store(0); }

Address StoppedThreads::used_from(Address begin, Address end) const noexcept {
  Address from = end;
  const std::uint32_t stopped = stop.stopped.load();
  for (std::uint32_t i = 0; i < stopped && i < kMost; ++i) {
    const Address at = stop.stacks[i].load();
    if (at >= begin && at < end && at < from) from = at;
  }
  return from == end ? begin : from;
}

}  // namespace allod

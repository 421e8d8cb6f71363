// Calls of the system that libc offers. For most of them the page map is in the way: it takes 24
// GiB of addresses, of which hardly anything is ever used. For others a thread that the program
// does not know of.
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "entry/surface.hpp"
#include "hardened/sweep.hpp"
#include "libc/operators.hpp"
#include "scan/mappings.hpp"
#include "stop/signal_stacks.hpp"

// glibc's, since 2.32: no thread has ever been made, but for the helpers, which it does not know.
// NOLINTNEXTLINE(readability-identifier-naming, bugprone-reserved-identifier)
extern "C" [[gnu::weak]] char __libc_single_threaded;

namespace {

[[nodiscard]] int to_errno(long result) noexcept {
  if (result >= 0) return 0;
  errno = static_cast<int>(-result);
  return -1;
}

// Of this process, and which it may set, as far as can be seen. The kernel reads a set of signals
// before it finds that nothing is to be done with it: an address that cannot be read is its matter.
[[nodiscard]] bool is_own_limit(pid_t pid, const rlimit64* limit) noexcept {
  using allod::raw_syscall;
  if (pid != 0 && pid != raw_syscall(SYS_getpid)) return false;
  constexpr long kNothing = -1;
  const long error = raw_syscall(SYS_rt_sigprocmask, kNothing, reinterpret_cast<long>(limit), 0, 8);
  rlimit64 old{};
  return error == -EINVAL && limit->rlim_cur <= limit->rlim_max &&
         raw_syscall(SYS_prlimit64, 0, RLIMIT_AS, 0, reinterpret_cast<long>(&old)) == 0 &&
         limit->rlim_max <= old.rlim_max;
}

// Below the limit that the process gets, the whole map would leave it nothing. A guest of another
// process has the limit alone.
void respect_address_limit(std::size_t limit) noexcept {
  if (limit == RLIM64_INFINITY || allod::os::LinuxGuest::is_here()) return;
  const bool is_alone = !allod::Policy::kBlockStates && &__libc_single_threaded != nullptr &&
                        __libc_single_threaded != 0;
  allod::Process::narrow_map(limit, is_alone, [](auto&& keep) noexcept {
    allod::operators::slices_at_once.store(0);
    if constexpr (allod::Policy::kBlockStates) {
      if (!allod::sweep::wait_for_lookups()) return false;
    }
    // By one thread at a time: others wait to narrow the map.
    static constinit allod::MappingLines lines = {};
    return allod::for_each_mapping_line(lines, [&](std::string_view line) noexcept {
             const allod::MappingLine mapping{line};
             keep(mapping.begin, mapping.end);
           }) == 0;
  });
}

// The map is narrowed before, so that no thread is refused memory in between.
[[nodiscard]] int set_limit(pid_t pid, int resource, const rlimit64* limit,
                            rlimit64* old) noexcept {
  if (resource == RLIMIT_AS && limit != nullptr && is_own_limit(pid, limit)) {
    respect_address_limit(limit->rlim_cur);
  }
  return to_errno(allod::raw_syscall(SYS_prlimit64, pid, resource, reinterpret_cast<long>(limit),
                                     reinterpret_cast<long>(old)));
}

}  // namespace

// As a process without threads of ours, which would stay behind where the program goes: the system
// refuses some of this as long as there is another thread.
template <class Call>
[[nodiscard]] int call_alone(Call&& call) noexcept {
  using allod::Process;
  if (allod::os::LinuxGuest::is_here()) return to_errno(call());
  const bool has_ended_one = Process::send_helper_away();
  if constexpr (allod::Policy::kBlockStates) allod::sweep::wait_for_sweeper_to_end();
  long result = call();
  // A thread can be counted a moment longer than it can be found.
  constexpr int kTries = 64;
  for (int i = 0; has_ended_one && (result == -EINVAL || result == -EUSERS) && i < kTries; ++i) {
    allod::raw_syscall(SYS_sched_yield);
    result = call();
  }
  Process::heap().let_helper_come();
  return to_errno(result);
}

// libc's declarations differ in the types of their parameters, but not as the linker sees it, for
// which those with 64 in their names are the same, too.
#define ALLOD_STANDS_FOR(name) __asm__(name) __attribute__((visibility("default")))

extern "C" {
int allod_setrlimit(int resource, const rlimit64* limit) noexcept ALLOD_STANDS_FOR("setrlimit");
int allod_prlimit(pid_t pid, int resource, const rlimit64* limit, rlimit64* old) noexcept
    ALLOD_STANDS_FOR("prlimit");

int allod_setrlimit(int resource, const rlimit64* limit) noexcept {
  return set_limit(0, resource, limit, nullptr);
}
int allod_prlimit(pid_t pid, int resource, const rlimit64* limit, rlimit64* old) noexcept {
  return set_limit(pid, resource, limit, old);
}
int allod_setrlimit64(int resource, const rlimit64* limit) noexcept ALLOD_STANDS_FOR("setrlimit64")
    __attribute__((alias("setrlimit")));
int allod_prlimit64(pid_t pid, int resource, const rlimit64* limit, rlimit64* old) noexcept
    ALLOD_STANDS_FOR("prlimit64") __attribute__((alias("prlimit")));

// With MCL_CURRENT the system reads every page that can be read, and the page map has six million
// that are never used: they would cost the program four seconds.
[[gnu::visibility("default")]] int mlockall(int flags) noexcept {
  using allod::Process;
  if ((flags & MCL_CURRENT) != 0) {
    Process::ensure_started();
    auto& space = Process::heap().space();
    space.map().expect_reads(space.platform());
  }
  return to_errno(allod::raw_syscall(SYS_mlockall, flags));
}

[[gnu::visibility("default")]] int unshare(int flags) noexcept {
  return call_alone([=]() noexcept { return allod::raw_syscall(SYS_unshare, flags); });
}
[[gnu::visibility("default")]] int setns(int descriptor, int kind) noexcept {
  return call_alone([=]() noexcept { return allod::raw_syscall(SYS_setns, descriptor, kind); });
}

// Threads that are stopped, for a sweep or a search for leaks, must not be on the same stack then.
[[gnu::visibility("default")]] int sigaltstack(const stack_t* stack, stack_t* old) noexcept {
  return to_errno(allod::SignalStacks::set(stack, old));
}
}

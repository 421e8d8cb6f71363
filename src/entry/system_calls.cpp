// Interposed system calls. Most would be disturbed by the page map, which takes 24 GiB of mostly
// unused addresses, others by our threads, which the program does not know.
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "entry/surface.hpp"
#include "hardened/sweep.hpp"
#include "libc/completion.hpp"
#include "libc/operators.hpp"
#include "scan/mappings.hpp"
#include "stop/signal_stacks.hpp"

namespace {

[[nodiscard]] int to_errno(long result) noexcept {
  if (result >= 0) return 0;
  errno = static_cast<int>(-result);
  return -1;
}

#ifdef ALLOD_HAS_LARGE_MAP

// glibc 2.32 and later: no thread has been created, except our helpers, which it does not know.
[[nodiscard]] bool is_single_threaded() noexcept {
  const allod::Address flag = allod::symbol_of_libc("__libc_single_threaded");
  return flag != 0 && *reinterpret_cast<const char*>(flag) != 0;
}

// Whether the limit is this process's and, as far as visible, valid. rt_sigprocmask with an invalid
// `how` probes the address: the kernel reads the set first and changes nothing.
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

// Narrows the page map, which would leave the process no addresses below the limit. A child of
// vfork only gets the limit.
void respect_address_limit(std::size_t limit) noexcept {
  if (limit == RLIM64_INFINITY || allod::os::LinuxGuest::is_here()) return;
  const bool is_alone = !allod::Policy::kBlockStates && is_single_threaded();
  allod::Process::narrow_map(limit, is_alone, [](auto&& keep) noexcept {
    allod::operators::slices_at_once.store(0);
    if constexpr (allod::Policy::kBlockStates) {
      if (!allod::sweep::wait_for_lookups()) return false;
    }
    // Static: only one thread at a time narrows the map.
    static constinit allod::MappingLines lines = {};
    return allod::for_each_mapping_line(lines, [&](std::string_view line) noexcept {
             const allod::MappingLine mapping{line};
             keep(mapping.begin, mapping.end);
           }) == 0;
  });
}

// Narrows the map first, so that no thread is refused memory in between.
[[nodiscard]] int set_limit(pid_t pid, int resource, const rlimit64* limit,
                            rlimit64* old) noexcept {
  if (resource == RLIMIT_AS && limit != nullptr && is_own_limit(pid, limit)) {
    respect_address_limit(limit->rlim_cur);
  }
  return to_errno(allod::raw_syscall(SYS_prlimit64, pid, resource, reinterpret_cast<long>(limit),
                                     reinterpret_cast<long>(old)));
}

#endif

}  // namespace

// Makes a call while none of our threads run. The kernel refuses some calls in a multithreaded
// process, and our threads would not follow into new namespaces.
template <class Call>
[[nodiscard]] int call_alone(Call&& call) noexcept {
  using allod::Process;
  if (allod::os::LinuxGuest::is_here()) return to_errno(call());
  const bool has_ended_one = Process::send_helper_away();
  if constexpr (allod::Policy::kBlockStates) allod::sweep::wait_for_sweeper_to_end();
  long result = call();
  // The kernel may count an ended thread for a moment longer.
  constexpr int kTries = 64;
  for (int i = 0; has_ended_one && (result == -EINVAL || result == -EUSERS) && i < kTries; ++i) {
    allod::raw_syscall(SYS_sched_yield);
    result = call();
  }
  Process::heap().let_helper_come();
  return to_errno(result);
}

// Declarations differ between C libraries, but not for the linker. With a large map, the variants
// with 64 are the same functions.
#define ALLOD_STANDS_FOR(name) __asm__(name) __attribute__((visibility("default")))

extern "C" {
#ifdef ALLOD_HAS_LARGE_MAP
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
#endif

// With MCL_CURRENT the kernel populates every readable page. The page map has six million unused
// ones, which would take four seconds.
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

// Registers alternate signal stacks: threads that share one must not be stopped on it at once.
[[gnu::visibility("default")]] int sigaltstack(const stack_t* stack, stack_t* old) noexcept {
  return to_errno(allod::SignalStacks::set(stack, old));
}
}

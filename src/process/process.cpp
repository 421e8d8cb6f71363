// Start and end of the process.
#include "instance/process.hpp"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "allod/os/posix/at_fork.hpp"
#include "attach/attach.hpp"
#include "guards/guards.hpp"
#include "hardened/hardened.hpp"
#include "image/own_image.hpp"
#include "leaks/leaks.hpp"
#include "libc/completion.hpp"
#include "process/faults.hpp"
#include "process/setup.hpp"
#include "profile/file.hpp"
#include "profile/profile.hpp"
#include "report/heap_reports.hpp"
#include "report/marks.hpp"
#include "report/report.hpp"
#include "report/tracker.hpp"
#include "settings/options.hpp"
#include "statistics/stats.hpp"
#include "statistics/usage.hpp"

#if defined(DLFO_STRUCT_HAS_EH_DBASE)
// Weak: the program may run with an older libc.
#pragma weak _dl_find_object
#endif

template class allod::heap::Engine<allod::Policy, allod::heaps::Heap<allod::Policy>>;
template class allod::heaps::Heap<allod::Policy>;

namespace allod {

heap::HeapOptions LibraryPolicy::options() noexcept {
  note_start();
  read_options_from_environment();
  start_samples();
  check_failure_handler = &report_failed_check;
  return heap_options();
}

namespace {

// Releases pages of libc's constants. glibc reads one of them to register the first fork handler,
// and the kernel then maps at least 64 KiB of the file around it. The smallest programs read none
// of that again; for others the kernel maps it again.
ALLOD_HOT void drop_constants_of_libc() noexcept {
#if defined(DLFO_STRUCT_HAS_EH_DBASE)
  dl_find_object libc{};
  if (&_dl_find_object == nullptr) return;
  if (_dl_find_object(reinterpret_cast<void*>(&__register_atfork), &libc) != 0) return;
  const auto& header = *static_cast<const ElfW(Ehdr)*>(libc.dlfo_map_start);
  // In a static program, these may be constants of any part of it.
  if (header.e_type != ET_DYN || libc.dlfo_map_start == &__ehdr_start) return;
  const Address begin = address_of(&header);
  const auto* const parts = reinterpret_cast<const ElfW(Phdr)*>(begin + header.e_phoff);
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto& part = parts[i];
    // Read-only from the start: relocated data lies in other segments.
    if (part.p_type != PT_LOAD || part.p_flags != PF_R || part.p_offset == 0) continue;
    raw_syscall(SYS_madvise, static_cast<long>(begin + part.p_vaddr),
                static_cast<long>(part.p_memsz), MADV_DONTNEED);
  }
#endif
}

}  // namespace

void start_process() noexcept {
  static constinit std::atomic<bool> was_called{false};
  if (was_called.exchange(true, std::memory_order_relaxed)) return;
  os::LinuxGuest::note_owner();
  if (&allod_complete_libc != nullptr) allod_complete_libc();
  Process::start();
  // Reads files now, since the program may forbid itself to do so later.
  Process::respect_quota();
  respect_memory_limit(Process::heap().space().platform().memory_limit());
  if (Profile::is_on() || settings().profile_signal != 0) static_cast<void>(Profile::prepare());
  if (Guards::is_on()) Guards::prepare();
  if (Guards::is_on()) faults::watch();
  profile::watch_signal();
  attach::watch();
  os::at_fork(&profile::lock, &profile::unlock, &profile::reset_lock_after_fork);
  if constexpr (Policy::kTracked) {
    // Registered last, so its lock is taken first at a fork, as its rank demands.
    os::at_fork(&lock_records, &unlock_records, &reset_records_lock_after_fork);
  }
  if constexpr (Policy::kBlockStates) {
    hardened::start();
    if (hardened::has_faults()) faults::watch();
  }
  drop_constants_of_libc();
  show_help_if_asked();
  if (verbosity() > 0) announce_start();
}

namespace {

// Runs before the program's constructors, and before those of most libraries; see at_fork.cpp.
[[gnu::constructor(101)]] void start_with_constructors([[maybe_unused]] int count,
                                                       [[maybe_unused]] char** arguments,
                                                       [[maybe_unused]] char** variables) noexcept {
#ifdef __GLIBC__
  // As libc will do.
  if (environ == nullptr) environ = variables;
#endif
  start_process();
}

// Warns if the options asked for a report.
void end_without_reports() noexcept {
  const Settings& chosen = settings();
  if (!chosen.leaks && chosen.show_stats == StatsFormat::none && !Profile::is_on()) return;
  Message message;
  message << "warning: no reports at exit: a signal handler interrupted malloc or free and called "
             "exit, so the heap cannot be read";
}

void write_reports() noexcept {
  leaks::check_at_end();
  profile::write_file_at_end();
  heaps::report_leaks_at_exit();
  show_stats_if_asked();
}

[[gnu::destructor(101)]] void end_process() noexcept {
  if (Process::is_interrupted()) return end_without_reports();
  if constexpr (Policy::kBlockStates) hardened::check_at_exit();
  if constexpr (Policy::kTracked) marks::check_all();
  write_reports();
  Process::check_own_stocks();
}

}  // namespace

}  // namespace allod

int allod_reports_write() noexcept {
  if (allod::Process::is_interrupted() || allod::Profile::is_busy()) return EAGAIN;
  allod::write_reports();
  return 0;
}

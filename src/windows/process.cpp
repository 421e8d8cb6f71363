// Start and end of the process, and what it is told of its mistakes.
#include "settings/heap_values.hpp"
#include "windows/heap.hpp"
#include "windows/options.hpp"
#include "windows/statistics.hpp"

extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
int allod_win_end(void* process, std::uint32_t status) noexcept __asm__("TerminateProcess");
int allod_win_hold(std::uint32_t flags, const void* address, void** module) noexcept
    __asm__("GetModuleHandleExW");
extern const char __ImageBase;
// NOLINTEND(readability-identifier-naming)
}

namespace allod::windows {

namespace {

void report_failed_check(const char* what) noexcept { Message{} << "internal error: " << what; }

void respect_job(heap::HeapOptions& options) noexcept {
  if (const std::uint32_t quota = os::Native::processor_quota();
      quota != 0 && options.processors == 0) {
    options.processors = quota;
  }
  const std::size_t limit = os::Native::memory_limit();
  if (limit != 0 && !settings().has_purge_budget) limit_kept_memory(options, limit);
}

void write_report(const heap::Misuse& misuse) noexcept {
  Message message;
  message << "error: " << heap::start_of_report(misuse.kind) << Hex{address_of(misuse.address)};
  if (misuse.block == nullptr) return;
  const std::size_t offset = address_of(misuse.address) - address_of(misuse.block);
  if (offset != 0) message << ", " << offset << " bytes into";
  message << (offset != 0 ? " a block of " : ", a block of ") << misuse.block_bytes << " bytes";
}

// Threads that end, and the thread that gives memory back, call the module for as long as the
// process lives: it is never unloaded.
void stay() noexcept {
  constexpr std::uint32_t kPinByAddress = 4 | 1;
  void* own = nullptr;
  allod_win_hold(kPinByAddress, &__ImageBase, &own);
}

// At the end, other threads may have been ended with locks held, for which nobody waits any more.
void notice(void*, std::uint32_t reason, void*) noexcept {
  constexpr std::uint32_t kProcessEnds = 0;
  constexpr std::uint32_t kProcessBegins = 1;
  if (reason == kProcessBegins) stay();
  if (reason != kProcessEnds || !settings().shows_stats) return;
  DescriptorText out{2};
  write_summary(out);
}

[[gnu::section(".CRT$XLX"), gnu::used]] void (*const to_notice)(void*, std::uint32_t,
                                                                void*) noexcept = &notice;

}  // namespace

heap::HeapOptions Policy::options() noexcept {
  check_failure_handler = &report_failed_check;
  read_options();
  heap::HeapOptions& options = settings().heap;
  respect_job(options);
  return options;
}

void Report::report(const heap::Misuse& misuse) noexcept {
  constexpr std::uint32_t kAborted = 3;
  const Settings& chosen = settings();
  if (chosen.shows_errors) write_report(misuse);
  if (chosen.aborts_on_error) allod_win_end(os::own_process(), kAborted);
}

}  // namespace allod::windows

// What the heap is told at the start of the process, and what the process is told of its mistakes.
#include "portable/heap.hpp"
#include "portable/options.hpp"
#include "portable/system.hpp"
#include "settings/heap_values.hpp"

namespace allod::portable {

namespace {

void report_failed_check(const char* what) noexcept { Message{} << "internal error: " << what; }

void respect_limits(heap::HeapOptions& options) noexcept {
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

}  // namespace

heap::HeapOptions Policy::options() noexcept {
  check_failure_handler = &report_failed_check;
  read_options();
  heap::HeapOptions& options = settings().heap;
  respect_limits(options);
  return options;
}

void Report::report(const heap::Misuse& misuse) noexcept {
  const Settings& chosen = settings();
  if (chosen.shows_errors) write_report(misuse);
  if (chosen.aborts_on_error) end_process();
}

}  // namespace allod::portable

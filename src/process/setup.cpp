#include "process/setup.hpp"

#include <sys/syscall.h>

#include "guards/guards.hpp"
#include "hardened/hardened.hpp"
#include "settings/heap_values.hpp"
#include "settings/options.hpp"
#include "settings/variant.hpp"
#include "text/text.hpp"

namespace allod {

void start_samples() noexcept {
  const Settings& chosen = settings();
  if (chosen.leaks) {
    Profile::start_with_process(1);
  } else if (chosen.profiles) {
    Profile::start_with_process(chosen.profile_interval);
  }
  // The hardened library keeps a state for every block, which guarded ones would lack.
  if constexpr (!Policy::kBlockStates) GuardedSamples::choose_period(chosen.guard_period);
  Guards::choose_slots(chosen.guard_slots);
}

void respect_memory_limit(std::size_t limit) noexcept {
  if (limit == 0 || settings().has_purge_budget) return;
  limit_kept_memory(settings().heap, limit);
  limit_kept_memory(Process::heap().options(), limit);
}

int set_option(const char* name, const char* value) noexcept {
  Process::ensure_started();
  const int error = change_setting(name, value);
  if (error == 0) Process::heap().options() = heap_options();
  return error;
}

namespace {

// Active measures may be fewer than requested.
[[maybe_unused]] void announce_measures() noexcept {
  Message message;
  std::string_view separator = "measures: ";
  for (const MitigationName& known : kMitigationNames) {
    if (!hardened::active().has(known.mitigation)) continue;
    message << separator << known.name;
    separator = ", ";
  }
  if (hardened::active().empty()) message << separator << "none";
}

}  // namespace

void announce_start() noexcept {
  Message{} << kVersion
            << (Policy::kTracked       ? " (debug)"
                : Policy::kBlockStates ? " (hardened)"
                                       : "")
            << " serves process " << static_cast<std::int64_t>(raw_syscall(SYS_getpid));
  if (verbosity() < 2) return;
  const heap::HeapOptions options = heap_options();
  Message{} << "regions of " << Human{options.region_bytes} << ", magazines up to "
            << Human{options.magazine_bytes} << ", purge after " << options.purge_delay_ms
            << " ms or above " << Human{options.purge_budget}
            << (options.purge_thread ? ", by a thread when idle" : "");
  if constexpr (Policy::kBlockStates) announce_measures();
}

}  // namespace allod

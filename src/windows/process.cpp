// Start and end of the process.
#include "allod/os/native.hpp"
#include "portable/options.hpp"
#include "portable/statistics.hpp"
#include "portable/system.hpp"

extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
int allod_win_end(void* process, std::uint32_t status) noexcept __asm__("TerminateProcess");
int allod_win_hold(std::uint32_t flags, const void* address, void** module) noexcept
    __asm__("GetModuleHandleExW");
extern const char __ImageBase;
// NOLINTEND(readability-identifier-naming)
}

namespace allod::portable {

namespace {

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

void end_process() noexcept {
  constexpr std::uint32_t kAborted = 3;
  allod_win_end(os::own_process(), kAborted);
  __builtin_unreachable();
}

}  // namespace allod::portable

// Start and end of the process on macOS and FreeBSD, and its environment.
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "allod/os/environment.hpp"
#include "portable/heap.hpp"
#include "portable/options.hpp"
#include "portable/statistics.hpp"
#include "portable/system.hpp"

namespace allod::portable {

namespace {

// Threads that end, and forks, call the library for as long as the process lives: it is never
// unloaded.
void stay() noexcept {
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&stay), &own) == 0) return;
  static_cast<void>(dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD));
}

[[gnu::constructor]] void begin() noexcept {
  Process::start();
  stay();
}

[[gnu::destructor]] void end() noexcept {
  if (!settings().shows_stats) return;
  DescriptorText out{2};
  write_summary(out);
}

}  // namespace

std::string_view system_name() noexcept { return os::kSystemName; }

void for_each_variable(void (*visit)(std::string_view name,
                                     std::string_view value) noexcept) noexcept {
  char** const all = os::environment();
  // With elevated rights, the environment is that of somebody else.
  if (all == nullptr || issetugid() != 0) return;
  for (char** variable = all; *variable != nullptr; ++variable) {
    const std::string_view whole{*variable};
    const std::size_t at = whole.find('=');
    if (at == std::string_view::npos || !whole.starts_with(kPrefix)) continue;
    visit({*variable + kPrefix.size(), at - kPrefix.size()},
          {*variable + at + 1, whole.size() - at - 1});
  }
}

void end_process() noexcept { abort(); }

}  // namespace allod::portable

// libevent finds itself used in a way that it takes for an end of the process: the thread that
// called it goes on.
#include <event2/event.h>
#include <stdio.h>

#include "memory.hpp"

int main() {
  if (!allod::live::open_memory()) return 2;
  const auto once = [](void*) noexcept { event_enable_debug_mode(); };
  const bool first = allod::live::with_events(once, nullptr);
  const bool second = allod::live::with_events(once, nullptr);
  printf("%d %d\n", first, second);
  return 0;
}

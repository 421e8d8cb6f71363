// Reads moments, "MILLISECONDS LIVE TOTAL" in each line, and prints the timeline: the length of a
// period, and in each line the most that was live in one and the total at its end.
#include "profile/timeline.hpp"

#include <inttypes.h>
#include <stdio.h>

int main() {
  static allod::profile::Timeline timeline;
  std::uint64_t ms = 0;
  std::uint64_t live = 0;
  std::uint64_t total = 0;
  while (scanf("%" SCNu64 " %" SCNu64 " %" SCNu64, &ms, &live, &total) == 3) {
    timeline.note(ms, live, total);
  }
  printf("%" PRIu64 "\n", timeline.period_ms());
  for (std::size_t i = 0; i < timeline.count(); ++i) {
    printf("%" PRIu64 " %" PRIu64 "\n", timeline[i].live, timeline[i].total);
  }
  return 0;
}

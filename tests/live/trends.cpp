// Reads readings, "MILLISECONDS BYTES" in each line, and prints their trend: bytes per minute, the
// bounds of it, whether it is sure, and the milliseconds that it is of.
#include "trend.hpp"

#include <inttypes.h>
#include <stdio.h>

#include <iterator>

int main() {
  static allod::live::Reading readings[1 << 16];
  std::size_t count = 0;
  while (count < std::size(readings) &&
         scanf("%" SCNu64 " %" SCNu64, &readings[count].at_ms, &readings[count].value) == 2) {
    ++count;
  }
  const allod::live::Trend trend = allod::live::trend_of(readings, count);
  printf("%.0f %.0f %.0f %d %" PRIu64 "\n", trend.rate, trend.low, trend.high, trend.is_sure(),
         trend.span_ms);
  return 0;
}

// A stretch in which the measured program does nothing, and its resident size is sampled.
#pragma once

#include <time.h>

#include <algorithm>

#include "harness.hpp"

namespace bench {

inline constexpr std::uint64_t kMillion = 1'000'000;

inline void sleep_until(std::uint64_t nanoseconds) {
  const timespec time{static_cast<time_t>(nanoseconds / (1000 * kMillion)),
                      static_cast<long>(nanoseconds % (1000 * kMillion))};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) != 0) {
  }
}

// What is compared with the resident size: bytes that are needed, and what they are called.
struct Needed {
  const char* name;
  std::uint64_t bytes;
};

class Rest {
 public:
  // `base_kib` was resident before the first block.
  Rest(Workload& workload, std::uint64_t base_kib, Needed needed)
      : workload_{workload}, base_kib_{base_kib}, needed_{needed} {
    wanted_.name = needed.name;
  }

  // Rests so long. Samples once in a while, exactly after `early_ms` and at the end, and reports
  // both as figures of these names.
  void run(std::uint64_t milliseconds, std::uint64_t early_ms, const char* early,
           const char* at_the_end) {
    const std::uint64_t interval =
        std::max<std::uint64_t>(10, milliseconds / (Series::kMost - 100));
    const std::uint64_t begin = now();
    for (std::uint64_t at = 0; at <= milliseconds; at += interval) {
      sleep_until(begin + at * kMillion);
      if (early != nullptr && at >= early_ms) {
        figure(early);
        early = nullptr;
      }
      const double seconds = static_cast<double>(now() - begin) * 1e-9;
      resident_.add(seconds, static_cast<double>(resident_kib()));
      wanted_.add(seconds, static_cast<double>(needed_.bytes) / 1024);
    }
    sleep_until(begin + milliseconds * kMillion);
    figure(at_the_end);
  }

  void report_series() {
    workload_.series(resident_);
    workload_.series(wanted_);
  }

 private:
  void figure(const char* name) {
    workload_.figure(name, over_live(exact_resident_kib(), base_kib_, needed_.bytes));
  }

  Workload& workload_;
  std::uint64_t base_kib_;
  Needed needed_;
  Series resident_{.name = "resident", .x = "seconds", .y = "KiB"};
  Series wanted_{.name = nullptr, .x = "seconds", .y = "KiB"};
};

}  // namespace bench

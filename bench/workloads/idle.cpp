// A program that had a peak and goes idle: it frees nearly everything, calls the allocator no more,
// and its resident size is sampled. What was allocated together stays or goes together, so that
// most pages are free in the end. What is timed is the peak. There is no warm-up: how the memory
// falls from there is the question.
#include <time.h>

#include <algorithm>

#include "rest.hpp"

namespace {

constexpr std::uint64_t kMost = 64U << 10U;

std::uint64_t g_mebibytes = 256;
std::uint64_t g_kept = 5;
std::uint64_t g_together = 5000;
std::uint64_t g_idle = 10'000;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"mebibytes", &g_mebibytes, 1, 100'000, "MiB at the peak"},
    {"kept", &g_kept, 1, 99, "percent of the blocks that stay"},
    {"together", &g_together, 1, 1'000'000, "blocks in a row that stay or go together"},
    {"idle", &g_idle, 1, 86'400'000, "milliseconds to be idle: 3600000 is an hour"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the sizes, and of which blocks stay"},
};
bench::Workload g_workload("idle", "resident size of an idle program after a peak", kParameters);

// What other threads used of the processors: while this one only samples, those of the allocator.
double milliseconds_of_others() {
  timespec all{};
  timespec mine{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mine);
  return static_cast<double>(all.tv_sec - mine.tv_sec) * 1e3 +
         static_cast<double>(all.tv_nsec - mine.tv_nsec) * 1e-6;
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  bench::Random random(g_seed);
  bench::Queue going;
  bench::Queue staying;
  std::uint64_t ops = 0;
  std::uint64_t live = 0;
  bool stays = true;
  const std::uint64_t base = bench::exact_resident_kib();
  g_workload.start();
  for (std::uint64_t bytes = 0; bytes < g_mebibytes << 20U; ++ops) {
    const std::uint64_t size = random.pareto(bench::Item::kLeast, kMost);
    // The first ones stay in any case: there is something alive.
    if (ops > 0 && ops % g_together == 0) {
      stays = random.below(100) < g_kept;
    }
    (stays ? staying : going).add(bench::make_item(size, ops));
    bytes += size;
    live += stays ? size : 0;
  }
  std::uint64_t sum = going.free_all();
  g_workload.stop();
  const double used = milliseconds_of_others();
  bench::Rest rest(g_workload, base, {"live", live});
  rest.run(g_idle, 1000, "resident over live after 1 s", "resident over live at the end");
  g_workload.figure("processor time of the allocator while idle",
                    std::max(0.0, milliseconds_of_others() - used), "ms");
  sum += staying.free_all();
  rest.report_series();
  g_workload.report(ops, sum);
}

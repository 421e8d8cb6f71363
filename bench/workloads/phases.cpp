// A program in phases: in each, another thread allocates some hundred MB and frees them again. All
// threads live until the end, so that nothing but the allocator can pass the memory on. What one
// phase needs is enough for all of them; more is blow-up (Berger et al., Hoard, 2000). There is no
// warm-up: how the memory grows is the question.
#include "harness.hpp"

namespace {

constexpr std::uint64_t kMost = 64U << 10U;
constexpr std::uint64_t kSamples = 40;  // of a phase

std::uint64_t g_phases = 4;
std::uint64_t g_megabytes = 300;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"phases", &g_phases, 2, 10, "phases, each with a thread of its own"},
    {"megabytes", &g_megabytes, 1, 100'000, "MB allocated in each phase"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the sizes"},
};
bench::Workload g_workload("phases", "phases, each with the memory of all", kParameters);

pthread_barrier_t g_turn;
bench::Series g_resident{.name = "resident", .x = "seconds", .y = "KiB"};
bench::Series g_live{.name = "live", .x = "seconds", .y = "KiB"};
std::uint64_t g_begin = 0;
std::uint64_t g_ops = 0;
std::uint64_t g_sum = 0;

void sample(std::uint64_t live) {
  const double at = static_cast<double>(bench::now() - g_begin) * 1e-9;
  g_resident.add(at, static_cast<double>(bench::resident_kib()));
  g_live.add(at, static_cast<double>(live) / 1024);
}

void run_phase(std::uint64_t phase) {
  const std::uint64_t bytes = g_megabytes * 1'000'000;
  const std::uint64_t step = 2 * bytes / kSamples;
  bench::Random random(g_seed + phase);
  bench::Queue queue;
  std::uint64_t live = 0;
  sample(live);
  for (std::uint64_t next = step; live < bytes; ++g_ops) {
    const std::uint64_t size = random.pareto(bench::Item::kLeast, kMost);
    queue.add(bench::make_item(size, g_ops));
    live += size;
    if (live >= next) {
      sample(live);
      next += step;
    }
  }
  for (std::uint64_t next = live - step; bench::Item* item = queue.take();) {
    live -= item->size;
    g_sum += bench::free_item(item);
    if (live <= next) {
      sample(live);
      next -= next < step ? next : step;
    }
  }
}

void work(std::size_t index) {
  bench::pass_gate();
  for (std::uint64_t phase = 0; phase < g_phases; ++phase) {
    if (phase == index) {
      run_phase(phase);
    }
    pthread_barrier_wait(&g_turn);
  }
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  if (pthread_barrier_init(&g_turn, nullptr, static_cast<unsigned>(g_phases)) != 0) {
    bench::die("phases: no barrier");
  }
  const std::uint64_t base = bench::exact_resident_kib();
  g_begin = bench::now();
  g_workload.run(g_phases, work);
  const std::uint64_t peak = bench::peak_resident_kib();
  const std::uint64_t end = bench::exact_resident_kib();
  g_workload.series(g_resident);
  g_workload.series(g_live);
  const std::uint64_t live = g_megabytes * 1'000'000;
  g_workload.figure("peak over live", bench::over_live(peak, base, live));
  g_workload.figure("at the end over live", bench::over_live(end, base, live));
  g_workload.report(g_ops, g_sum);
}

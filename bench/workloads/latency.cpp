// How long single calls take: a live set of mixed sizes is replaced at random, each malloc and each
// free is timed by the processor's counter, and a second thread does the same untimed. What reading
// the counter costs is measured and subtracted, and the same reading with nothing in between is
// reported beside: what it shows is the machine's, not the allocator's.
#include <algorithm>

#include "harness.hpp"
#include "histogram.hpp"

namespace {

constexpr std::uint64_t kLeast = 16;
constexpr std::uint64_t kMostBusy = 64;

std::uint64_t g_ops = 3'000'000;
std::uint64_t g_live = 20'000;
std::uint64_t g_most = 64U << 10U;
std::uint64_t g_busy = 1;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"ops", &g_ops, 1, 1'000'000'000'000, "timed pairs of malloc and free"},
    {"live", &g_live, 1, 100'000'000, "live blocks of each thread"},
    {"max", &g_most, kLeast, 1U << 24U, "largest size in bytes; the smallest is 16"},
    {"busy", &g_busy, 0, kMostBusy, "threads that do the same beside"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of sizes and order"},
};
bench::Workload g_workload("latency", "single calls of malloc and free", kParameters);

// The fences keep what is timed between the readings (Paoloni, 2010).
#if defined(__x86_64__)
[[gnu::always_inline]] inline std::uint64_t ticks() {
  std::uint32_t low;
  std::uint32_t high;
  asm volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
  return (std::uint64_t{high} << 32U) | low;
}
#elif defined(__aarch64__)
[[gnu::always_inline]] inline std::uint64_t ticks() {
  std::uint64_t value;
  asm volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(value) : : "memory");
  return value;
}
#endif

bench::Histogram g_malloc;
bench::Histogram g_free;
bench::Histogram g_nothing;
std::atomic<bool> g_end{false};

bench::Block* fill(bench::Random& random) {
  auto* blocks = bench::map_resident_array<bench::Block>(g_live);
  for (std::uint64_t i = 0; i < g_live; ++i) {
    blocks[i] = bench::make_block(random.pareto(kLeast, g_most), i);
  }
  return blocks;
}

std::uint64_t empty(const bench::Block* blocks) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_live; ++i) {
    sum += bench::free_block(blocks[i]);
  }
  return sum;
}

std::uint64_t cost_of_the_clock() {
  bench::Histogram pairs;
  for (unsigned i = 0; i < 10'000; ++i) {
    const std::uint64_t before = ticks();
    pairs.add(ticks() - before);
  }
  return pairs.at(50'000);
}

[[gnu::noinline]] std::uint64_t run(bench::Block* blocks, bench::Random& random, std::uint64_t ops,
                                    std::uint64_t clock) {
  const auto spent = [clock](std::uint64_t from, std::uint64_t to) {
    return to - from > clock ? to - from - clock : 0;
  };
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < ops; ++i) {
    bench::Block& block = blocks[random.below(g_live)];
    const std::uint64_t size = random.pareto(kLeast, g_most);
    sum += bench::verify(block);
    const std::uint64_t begin = ticks();
    std::free(block.at);
    const std::uint64_t freed = ticks();
    void* const fresh = std::malloc(size);
    const std::uint64_t end = ticks();
    const std::uint64_t nothing = ticks();
    if (fresh == nullptr) [[unlikely]] {
      bench::die("malloc(%zu) failed", static_cast<std::size_t>(size));
    }
    g_free.add(spent(begin, freed));
    g_malloc.add(spent(freed, end));
    g_nothing.add(spent(end, nothing));
    block = {static_cast<unsigned char*>(fresh), static_cast<std::uint32_t>(size),
             static_cast<std::uint32_t>(i)};
    bench::touch(block);
  }
  return sum;
}

void* be_busy(void* argument) {
  bench::Random random(g_seed + 1 + reinterpret_cast<std::uintptr_t>(argument));
  bench::Block* blocks = fill(random);
  for (std::uint64_t i = 0; !g_end.load(std::memory_order_relaxed); ++i) {
    bench::Block& block = blocks[random.below(g_live)];
    bench::free_block(block);
    block = bench::make_block(random.pareto(kLeast, g_most), i);
  }
  empty(blocks);
  return nullptr;
}

void report(const char* name, const bench::Histogram& histogram, double nanoseconds_of_tick) {
  double values[bench::kPercentileCount];
  for (std::size_t i = 0; i < bench::kPercentileCount; ++i) {
    values[i] = static_cast<double>(histogram.at(bench::kPercentiles[i])) * nanoseconds_of_tick;
  }
  g_workload.percentiles(name, values);
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  bench::Random random(g_seed);
  bench::Block* blocks = fill(random);
  pthread_t threads[kMostBusy] = {};
  for (std::uint64_t i = 0; i < g_busy; ++i) {
    threads[i] = bench::start_thread(be_busy, reinterpret_cast<void*>(i));
  }
  std::uint64_t sum = run(blocks, random, g_ops / 10 + 1, 0);
  g_malloc = g_free = g_nothing = {};
  const std::uint64_t clock = cost_of_the_clock();
  g_workload.start();
  const std::uint64_t first_tick = ticks();
  const std::uint64_t first_time = bench::now();
  sum = bench::mix(sum, run(blocks, random, g_ops, clock));
  const std::uint64_t last_tick = ticks();
  const std::uint64_t last_time = bench::now();
  g_workload.stop();
  g_end.store(true, std::memory_order_relaxed);
  for (std::uint64_t i = 0; i < g_busy; ++i) {
    pthread_join(threads[i], nullptr);
  }
  sum += empty(blocks);

  const double scale = static_cast<double>(last_time - first_time) /
                       static_cast<double>(std::max<std::uint64_t>(1, last_tick - first_tick));
  report("malloc", g_malloc, scale);
  report("free", g_free, scale);
  report("nothing", g_nothing, scale);
  g_workload.report(g_ops, sum);
}

// Many more threads than processors, as servers have that give each connection one. Each works a
// little and then waits: what it holds while it is idle is the first question, and how much all of
// them together get done is the second.
#include "harness.hpp"

namespace {

constexpr std::uint64_t kLeast = 16;
constexpr std::uint64_t kMost = 4096;
constexpr std::uint64_t kStack = 32U << 10U;

std::uint64_t g_threads = 100;
std::uint64_t g_ops = 40'000'000;
std::uint64_t g_live = 64;
std::uint64_t g_once = 1'000;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"threads", &g_threads, 2, bench::kMostThreads, "threads"},
    {"ops", &g_ops, 1, 1'000'000'000'000, "measured replacements, of all threads together"},
    {"live", &g_live, 1, 1'000'000, "live blocks of each thread"},
    {"once", &g_once, 1, 1'000'000'000, "replacements of each thread before it waits"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of sizes and order"},
};
bench::Workload g_workload("many_threads", "many threads on few processors", kParameters);

struct alignas(128) Worker {
  bench::Block* blocks;
  std::uint64_t sum;
};
Worker g_workers[bench::kMostThreads];
pthread_barrier_t g_meeting;
std::uint64_t g_before = 0;
std::uint64_t g_after = 0;

// All wait while the first one measures.
void measure_idle(std::size_t index, std::uint64_t& kib) {
  pthread_barrier_wait(&g_meeting);
  if (index == 0) {
    kib = bench::exact_resident_kib();
  }
  pthread_barrier_wait(&g_meeting);
}

// The pages of the stack that the work may need count as the program's, not the allocator's.
[[gnu::noinline]] void use_stack() {
  unsigned char stack[kStack];
  for (std::size_t at = 0; at < kStack; at += 1024) {
    bench::write_byte(stack + at, at);
  }
  bench::escape(stack);
}

std::uint64_t run(bench::Block* blocks, bench::Random& random, std::uint64_t ops) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_live; ++i) {
    blocks[i] = bench::make_block(random.pareto(kLeast, kMost), i);
  }
  for (std::uint64_t i = 0; i < ops; ++i) {
    bench::Block& block = blocks[random.below(g_live)];
    sum += bench::free_block(block);
    block = bench::make_block(random.pareto(kLeast, kMost), i);
  }
  for (std::uint64_t i = 0; i < g_live; ++i) {
    sum += bench::free_block(blocks[i]);
  }
  return sum;
}

void work(std::size_t index) {
  Worker& worker = g_workers[index];
  bench::Random random(g_seed + index);
  use_stack();
  measure_idle(index, g_before);
  const std::uint64_t once = run(worker.blocks, random, g_once);
  measure_idle(index, g_after);
  bench::pass_gate();
  worker.sum = bench::mix(once, run(worker.blocks, random, g_ops / g_threads));
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  if (g_ops < g_threads) {
    g_workload.refuse("--ops is below --threads");
  }
  if (pthread_barrier_init(&g_meeting, nullptr, static_cast<unsigned>(g_threads)) != 0) {
    bench::die("many_threads: no barrier");
  }
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    g_workers[i].blocks = bench::map_resident_array<bench::Block>(g_live);
  }
  g_workload.run(g_threads, work);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    sum = bench::mix(sum, g_workers[i].sum);
  }
  g_workload.figure("memory per idle thread", bench::over_live(g_after, g_before, g_threads) / 1024,
                    "KiB");
  g_workload.report(g_ops / g_threads * g_threads, sum);
}

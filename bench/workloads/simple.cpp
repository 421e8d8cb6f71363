// The patterns of the C library's own malloc benchmarks (glibc, benchtests/bench-malloc-simple.c by
// W. Dijkstra, 2018, and bench-malloc-thread.c by W. Newton, 2014). With a fixed size: batches of
// 25, 100, 400 and 1,600 blocks are allocated and then freed in the same order. With size 0: a
// random block of a working set of 1,024 is freed and another allocated, with sizes from 4 B to
// 32 KiB whose density falls with the square of the size.
#include "harness.hpp"

namespace {

constexpr std::size_t kTableSize = 1U << 14U;
constexpr std::uint64_t kLeast = 4;
constexpr std::uint64_t kMost = 32768;
constexpr std::uint64_t kBatches[] = {25, 100, 400, 1'600};
constexpr const char* kNames[] = {"25", "100", "400", "1600"};
constexpr std::size_t kKinds = sizeof kBatches / sizeof kBatches[0];
constexpr std::uint64_t kMostBatch = kBatches[kKinds - 1];
constexpr std::uint64_t kSet = 1'024;

std::uint64_t g_size = 256;
std::uint64_t g_rounds = 5'000;
std::uint64_t g_threads = 1;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"size", &g_size, 0, 1U << 24U, "size of each block in bytes, or 0 for random sizes"},
    {"rounds", &g_rounds, 1, 1'000'000'000, "times 6,400 blocks that each thread allocates"},
    {"threads", &g_threads, 1, bench::kMostThreads, "threads"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of sizes and order, and of what is written"},
};
bench::Workload g_workload("simple", "batches of a size, or random sizes", kParameters);

// What one round does, whatever the batch.
constexpr std::uint64_t kRound = kKinds * kMostBatch;

std::uint16_t g_sizes[kTableSize];

struct alignas(128) Worker {
  unsigned char** batch;
  bench::Block* set;
  std::uint64_t nanoseconds[kKinds];
  bench::Random random{0};
  std::uint64_t sum;
};
Worker g_workers[bench::kMostThreads];

[[gnu::noinline]] std::uint64_t run_batches(unsigned char** blocks, std::uint64_t batch,
                                            std::uint64_t count, std::uint64_t value) {
  std::uint64_t sum = 0;
  for (std::uint64_t n = 0; n < count; ++n) {
    for (std::uint64_t i = 0; i < batch; ++i) {
      blocks[i] = bench::allocate(g_size);
      bench::write_byte(blocks[i], value + i);
    }
    for (std::uint64_t i = 0; i < batch; ++i) {
      sum += bench::read_byte(blocks[i]) * (i + 1);
      std::free(blocks[i]);
    }
  }
  return sum;
}

void run_fixed(Worker& worker, std::uint64_t rounds) {
  const std::uint64_t value = worker.random.next();
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    const std::uint64_t before = bench::now();
    const std::uint64_t count = rounds * (kMostBatch / kBatches[kind]);
    worker.sum = bench::mix(worker.sum, run_batches(worker.batch, kBatches[kind], count, value));
    worker.nanoseconds[kind] = bench::now() - before;
  }
}

void run_random(Worker& worker, std::uint64_t ops) {
  for (std::uint64_t i = 0; i < ops; ++i) {
    const std::uint64_t number = worker.random.next();
    bench::Block& block = worker.set[(number >> 32U) % kSet];
    if (block.at != nullptr) {
      worker.sum = bench::mix(worker.sum, bench::free_block(block));
    }
    block = bench::make_block(g_sizes[(number >> 48U) % kTableSize], number >> 42U);
  }
}

void run(Worker& worker, std::uint64_t rounds) {
  if (g_size != 0) {
    run_fixed(worker, rounds);
  } else {
    run_random(worker, rounds * kRound);
  }
}

void work(std::size_t index) {
  run(g_workers[index], g_rounds / 10 + 1);
  bench::pass_gate();
  run(g_workers[index], g_rounds);
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  bench::Random random(g_seed);
  for (auto& size : g_sizes) {
    size = static_cast<std::uint16_t>(random.pareto(kLeast, kMost));
  }
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    g_workers[i].batch = bench::map_array<unsigned char*>(kMostBatch);
    g_workers[i].set = bench::map_array<bench::Block>(kSet);
    g_workers[i].random = bench::Random(g_seed * bench::kMostThreads + i);
  }
  g_workload.run(g_threads, work);

  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    sum = bench::mix(sum, g_workers[i].sum);
  }
  for (std::size_t kind = 0; g_size != 0 && kind < kKinds; ++kind) {
    std::uint64_t total = 0;
    for (std::uint64_t i = 0; i < g_threads; ++i) {
      total += g_workers[i].nanoseconds[kind];
    }
    g_workload.point(kNames[kind], static_cast<double>(total) /
                                       static_cast<double>(g_threads * g_rounds * kMostBatch));
  }
  g_workload.report(g_threads * g_rounds * kRound, sum);
}

// Blocks of several MiB, a few of them live at a time; each step frees one at random and allocates
// another, of which the first part is written, page by page, and the last byte. The pattern is that
// of malloc-large (Stolyarov and Leijen, mimalloc-bench, 2021).
#include "harness.hpp"

namespace {

constexpr std::uint64_t kPage = 4096;

std::uint64_t g_ops = 3'000;
std::uint64_t g_live = 20;
std::uint64_t g_least = 5;
std::uint64_t g_most = 25;
std::uint64_t g_part = 8;
std::uint64_t g_threads = 1;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"ops", &g_ops, 1, 1'000'000'000, "replacements of each thread"},
    {"live", &g_live, 1, 1000, "live blocks of each thread"},
    {"min", &g_least, 1, 1024, "smallest size in MiB"},
    {"max", &g_most, 1, 1024, "largest size in MiB"},
    {"part", &g_part, 1, 1024, "one page in so many is written, all of them at the start"},
    {"threads", &g_threads, 1, bench::kMostThreads, "threads, each doing all of it"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of sizes and order"},
};
bench::Workload g_workload("large", "blocks of several MiB", kParameters);

struct alignas(128) Worker {
  bench::Block* blocks;
  std::uint64_t sum;
};
Worker g_workers[bench::kMostThreads];

bench::Block allocate_large(bench::Random& random, std::uint64_t stamp) {
  const std::uint64_t size = random.between(g_least << 20U, g_most << 20U);
  const bench::Block block{bench::allocate(size), static_cast<std::uint32_t>(size),
                           static_cast<std::uint32_t>(stamp)};
  for (std::uint64_t at = 0; at < size / g_part; at += kPage) {
    bench::write_byte(block.at + at, stamp);
  }
  bench::write_byte(block.at + size - 1, stamp);
  return block;
}

std::uint64_t run(bench::Block* blocks, bench::Random& random, std::uint64_t ops) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < ops; ++i) {
    bench::Block& block = blocks[random.below(g_live)];
    sum += bench::free_block(block);
    block = allocate_large(random, i);
  }
  return sum;
}

void work(std::size_t index) {
  Worker& worker = g_workers[index];
  bench::Random random(g_seed + index);
  for (std::uint64_t i = 0; i < g_live; ++i) {
    worker.blocks[i] = allocate_large(random, i);
  }
  const std::uint64_t warm = run(worker.blocks, random, g_ops / 10 + 1);
  bench::pass_gate();
  worker.sum = bench::mix(warm, run(worker.blocks, random, g_ops));
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  if (g_least > g_most) {
    g_workload.refuse("--min is above --max");
  }
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    g_workers[i].blocks = bench::map_resident_array<bench::Block>(g_live);
  }
  g_workload.run(g_threads, work);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    sum = bench::mix(sum, g_workers[i].sum);
    for (std::uint64_t block = 0; block < g_live; ++block) {
      sum += bench::free_block(g_workers[i].blocks[block]);
    }
  }
  g_workload.report(g_threads * g_ops, sum);
}

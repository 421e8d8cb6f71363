// Thousands of equal blocks are allocated, then all are freed: in the order of allocation, in
// reverse, and in random order. Every thread has blocks of its own.
#include "harness.hpp"

namespace {

constexpr std::size_t kOrders = 3;
constexpr const char* kOrderNames[kOrders] = {"same", "reverse", "random"};

std::uint64_t g_size = 64;
std::uint64_t g_count = 5'000;
std::uint64_t g_rounds = 1'500;
std::uint64_t g_threads = 1;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"size", &g_size, 1, 1U << 24U, "size of each block in bytes"},
    {"count", &g_count, 1, 100'000'000, "blocks allocated before the first is freed"},
    {"rounds", &g_rounds, 1, 1'000'000'000, "rounds of each order"},
    {"threads", &g_threads, 1, bench::kMostThreads, "threads, each doing all of it"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the random order"},
};
bench::Workload g_workload("bulk", "equal blocks, allocated and freed in bulk", kParameters);

std::uint32_t* g_free_order[kOrders];

struct alignas(128) Worker {
  unsigned char** blocks;
  std::uint64_t nanoseconds[kOrders];
  std::uint64_t sum;
};
Worker g_workers[bench::kMostThreads];

void choose_orders() {
  for (auto*& order : g_free_order) {
    order = bench::map_array<std::uint32_t>(g_count);
  }
  bench::Random random(g_seed);
  for (std::uint32_t i = 0; i < g_count; ++i) {
    g_free_order[0][i] = i;
    g_free_order[1][i] = static_cast<std::uint32_t>(g_count - 1 - i);
    // Shuffled as it grows (Durstenfeld's form of the Fisher-Yates shuffle, inside out).
    const std::uint64_t place = random.below(i + 1U);
    g_free_order[2][i] = g_free_order[2][place];
    g_free_order[2][place] = i;
  }
}

std::uint64_t run(unsigned char** blocks, const std::uint32_t* order, std::uint64_t rounds) {
  std::uint64_t sum = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (std::uint64_t i = 0; i < g_count; ++i) {
      blocks[i] = bench::allocate(g_size);
      bench::write_byte(blocks[i], i);
    }
    for (std::uint64_t i = 0; i < g_count; ++i) {
      unsigned char* block = blocks[order[i]];
      sum += bench::read_byte(block) * (i + 1);
      std::free(block);
    }
  }
  return sum;
}

void work(Worker& worker, std::uint64_t rounds) {
  for (std::size_t order = 0; order < kOrders; ++order) {
    const std::uint64_t before = bench::now();
    worker.sum = bench::mix(worker.sum, run(worker.blocks, g_free_order[order], rounds));
    worker.nanoseconds[order] = bench::now() - before;
  }
}

void run_worker(std::size_t index) {
  work(g_workers[index], g_rounds / 10 + 1);
  bench::pass_gate();
  work(g_workers[index], g_rounds);
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  choose_orders();
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    g_workers[i].blocks = bench::map_array<unsigned char*>(g_count);
  }
  g_workload.run(g_threads, run_worker);

  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    sum = bench::mix(sum, g_workers[i].sum);
  }
  for (std::size_t order = 0; order < kOrders; ++order) {
    std::uint64_t total = 0;
    for (std::uint64_t i = 0; i < g_threads; ++i) {
      total += g_workers[i].nanoseconds[order];
    }
    g_workload.point(kOrderNames[order], static_cast<double>(total) /
                                             static_cast<double>(g_threads * g_rounds * g_count));
  }
  g_workload.report(kOrders * g_threads * g_rounds * g_count, sum);
}

// Some threads only allocate, others only free, after C. Lever and D. Boreham, "malloc()
// Performance in a Multithreaded Linux Environment", 2000, and xmalloc-test of B. Kuszmaul's
// SuperMalloc, 2015. Blocks are handed over in batches, which are blocks themselves, on a stack
// behind a lock: what arrives is not in the order in which it was made.
#include <pthread.h>

#include "harness.hpp"

namespace {

constexpr std::uint16_t kSizes[] = {8,   12,  16,  24,  32,  48,   64,   96,  128,
                                    192, 256, 384, 512, 768, 1024, 1536, 2048};
constexpr std::size_t kTableSize = 1U << 12U;
constexpr std::uint64_t kMostProducers = bench::kMostThreads / 2;

std::uint64_t g_producers = 1;
std::uint64_t g_consumers = 1;
std::uint64_t g_batches = 10'000;
std::uint64_t g_batch = 1'000;
std::uint64_t g_waiting = 32;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"producers", &g_producers, 1, kMostProducers, "threads that allocate"},
    {"consumers", &g_consumers, 1, bench::kMostThreads - kMostProducers, "threads that free"},
    {"batches", &g_batches, 1, 1'000'000'000, "batches that each producer hands over"},
    {"batch", &g_batch, 1, 1'000'000, "blocks in a batch"},
    {"waiting", &g_waiting, 1, 1'000'000, "batches on the stack at most"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the sizes"},
};
bench::Workload g_workload("xmalloc", "some threads allocate, others free", kParameters);

struct Batch {
  Batch* below;
  bench::Block blocks[];
};

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t g_grown = PTHREAD_COND_INITIALIZER;
pthread_cond_t g_shrunk = PTHREAD_COND_INITIALIZER;
// Behind the lock:
Batch* g_top = nullptr;
std::uint64_t g_depth = 0;
std::uint64_t g_taken = 0;

std::uint16_t g_sizes[kTableSize];
std::uint64_t g_sums[bench::kMostThreads];

void push(Batch* batch) {
  pthread_mutex_lock(&g_lock);
  while (g_depth == g_waiting) {
    pthread_cond_wait(&g_shrunk, &g_lock);
  }
  batch->below = g_top;
  g_top = batch;
  ++g_depth;
  pthread_cond_signal(&g_grown);
  pthread_mutex_unlock(&g_lock);
}

// Null when `end` batches have been taken, by all consumers together.
Batch* pop(std::uint64_t end) {
  pthread_mutex_lock(&g_lock);
  while (g_top == nullptr && g_taken < end) {
    pthread_cond_wait(&g_grown, &g_lock);
  }
  Batch* batch = g_top;
  if (batch != nullptr) {
    g_top = batch->below;
    --g_depth;
    ++g_taken;
    pthread_cond_signal(&g_shrunk);
  }
  if (g_taken == end) {
    pthread_cond_broadcast(&g_grown);
  }
  pthread_mutex_unlock(&g_lock);
  return batch;
}

void produce(std::uint64_t producer, std::uint64_t first, std::uint64_t end) {
  for (std::uint64_t n = first; n < end; ++n) {
    auto* batch =
        reinterpret_cast<Batch*>(bench::allocate(sizeof(Batch) + g_batch * sizeof(bench::Block)));
    const std::uint64_t number = (n * g_producers + producer) * g_batch;
    for (std::uint64_t i = 0; i < g_batch; ++i) {
      batch->blocks[i] = bench::make_block(g_sizes[(number + i) % kTableSize], number + i);
    }
    push(batch);
  }
}

std::uint64_t consume(std::uint64_t end) {
  std::uint64_t sum = 0;
  while (Batch* batch = pop(end)) {
    for (std::uint64_t i = 0; i < g_batch; ++i) {
      const bench::Block block = batch->blocks[i];
      sum += bench::free_block(block) * (block.stamp | 1U);  // in any order
    }
    std::free(batch);
  }
  return sum;
}

void work(std::size_t index) {
  const std::uint64_t warm = g_batches / 10 + 1;
  if (index < g_producers) {
    produce(index, 0, warm);
    bench::pass_gate();
    produce(index, warm, warm + g_batches);
  } else {
    g_sums[index] = consume(g_producers * warm);
    bench::pass_gate();
    g_sums[index] += consume(g_producers * (warm + g_batches));
  }
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  bench::Random random(g_seed);
  for (auto& size : g_sizes) {
    size = kSizes[random.below(sizeof kSizes / sizeof kSizes[0])];
  }
  g_workload.run(g_producers + g_consumers, work);
  std::uint64_t sum = 0;
  for (const std::uint64_t part : g_sums) {
    sum += part;
  }
  g_workload.report(g_producers * g_batches * g_batch, sum);
}

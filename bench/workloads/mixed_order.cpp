// Many blocks of mixed sizes, freed in mixed orders, in the manner of MicroQuill's SmartHeap
// benchmarks sh6bench and sh8bench. In every round a thread allocates some thousand blocks, most of
// them small. A quarter goes as a parcel to the next thread, which frees it some rounds later; the
// rest is freed at once, a third each in the order of allocation, in reverse and at random. A
// single thread sends the parcels to itself.
#include <semaphore.h>

#include <algorithm>

#include "harness.hpp"

namespace {

constexpr std::size_t kTableSize = 1U << 14U;
constexpr std::uint64_t kLater = 4;             // rounds until a parcel is freed
constexpr std::uint64_t kParcels = 2 * kLater;  // parcels that a mailbox holds

std::uint64_t g_blocks = 4'000;
std::uint64_t g_rounds = 5'000;
std::uint64_t g_most = 1'000;
std::uint64_t g_threads = 1;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"blocks", &g_blocks, 12, 10'000'000, "blocks in a round"},
    {"rounds", &g_rounds, 1, 1'000'000'000, "rounds"},
    {"max", &g_most, 1, 65535, "largest size in bytes"},
    {"threads", &g_threads, 1, bench::kMostThreads, "threads, each doing all of it"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of sizes and order"},
};
bench::Workload g_workload("mixed-order", "mixed sizes, freed in mixed orders", kParameters);

using bench::Block;

// From one thread to the next; parcel n lies in place n % kParcels.
struct Mailbox {
  Block* blocks;
  sem_t full;
  sem_t empty;
};

struct alignas(128) Worker {
  Block* blocks;
  std::uint64_t sum;
  Mailbox from_before;
};
Worker g_workers[bench::kMostThreads];
const std::uint16_t* g_sizes;
std::uint32_t* g_shuffled;  // the order of what is freed at random
std::uint64_t g_parcel;     // blocks in a parcel
std::uint64_t g_third;

void wait_for(sem_t& semaphore) {
  while (sem_wait(&semaphore) != 0) {
  }
}

Block make(std::uint64_t number) { return bench::make_block(g_sizes[number % kTableSize], number); }

// The rest of a round lies in the first three thirds; a few blocks may be left over.
std::uint64_t drop_rest(const Block* blocks) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_third; ++i) {
    sum = bench::mix(sum, bench::free_block(blocks[i]));
  }
  for (std::uint64_t i = g_third; i-- > 0;) {
    sum = bench::mix(sum, bench::free_block(blocks[g_third + i]));
  }
  for (std::uint64_t i = 0; i < g_third; ++i) {
    sum = bench::mix(sum, bench::free_block(blocks[2 * g_third + g_shuffled[i]]));
  }
  for (std::uint64_t i = 3 * g_third; i < g_blocks - g_parcel; ++i) {
    sum = bench::mix(sum, bench::free_block(blocks[i]));
  }
  return sum;
}

void run(std::size_t index, std::uint64_t first, std::uint64_t end) {
  Worker& worker = g_workers[index];
  Mailbox& inbox = worker.from_before;
  Mailbox& outbox = g_workers[(index + 1) % g_threads].from_before;
  for (std::uint64_t round = first; round < end; ++round) {
    if (round >= kLater) {
      wait_for(inbox.full);
      const Block* parcel = inbox.blocks + (round - kLater) % kParcels * g_parcel;
      for (std::uint64_t i = 0; i < g_parcel; ++i) {
        worker.sum = bench::mix(worker.sum, bench::free_block(parcel[i]));
      }
      sem_post(&inbox.empty);
    }
    wait_for(outbox.empty);
    Block* parcel = outbox.blocks + round % kParcels * g_parcel;
    for (std::uint64_t i = 0, rest = 0, sent = 0; i < g_blocks; ++i) {
      // Every fourth block is sent, so that neighbours part.
      const bool send = i % 4 == 3 && sent < g_parcel;
      (send ? parcel[sent++] : worker.blocks[rest++]) =
          make((round * g_threads + index) * g_blocks + i);
    }
    sem_post(&outbox.full);
    worker.sum = bench::mix(worker.sum, drop_rest(worker.blocks));
  }
}

void work(std::size_t index) {
  const std::uint64_t warm = g_rounds / 10 + kLater;
  run(index, 0, warm);
  bench::pass_gate();
  run(index, warm, warm + g_rounds);
}

// Half of the sizes are drawn from all, a quarter from the lowest eighth, and so on downwards.
void choose_sizes() {
  auto* sizes = bench::map_array<std::uint16_t>(kTableSize);
  bench::Random random(g_seed);
  for (std::size_t i = 0; i < kTableSize; ++i) {
    std::uint64_t most = g_most;
    while (most >= 128 && (random.next() >> 63U) != 0) {
      most /= 8;
    }
    sizes[i] = static_cast<std::uint16_t>(1 + random.below(most));
  }
  g_sizes = sizes;
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  g_parcel = g_blocks / 4;
  g_third = (g_blocks - g_parcel) / 3;
  choose_sizes();
  g_shuffled = bench::map_array<std::uint32_t>(g_third);
  bench::Random random(g_seed);
  for (std::uint32_t i = 0; i < g_third; ++i) {
    // Shuffled as it grows, like the orders of `bulk`.
    const std::uint64_t place = random.below(i + 1U);
    g_shuffled[i] = g_shuffled[place];
    g_shuffled[place] = i;
  }
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    Worker& worker = g_workers[i];
    worker.blocks = bench::map_array<Block>(g_blocks);
    worker.from_before.blocks = bench::map_array<Block>(kParcels * g_parcel);
    sem_init(&worker.from_before.full, 0, 0);
    sem_init(&worker.from_before.empty, 0, kParcels);
  }
  g_workload.run(g_threads, work);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    sum = bench::mix(sum, g_workers[i].sum);
  }
  g_workload.report(g_threads * g_rounds * g_blocks, sum);
}

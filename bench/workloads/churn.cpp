// Threads that come and go. Each allocates some blocks, frees most of them, leaves some to its
// successor, which frees them when their thread has ended, and leaves one that stays until the end.
// What the process grows by for each thread that has ended should be little more than that block.
// The question is that of mleak (Leijen, mimalloc-bench, 2019).
#include "harness.hpp"

namespace {

constexpr std::uint64_t kLeast = 16;
constexpr std::uint64_t kMost = 8U << 10U;
constexpr std::uint64_t kStaying = 64;  // bytes
constexpr std::uint64_t kMostBlocks = 4096;
constexpr std::uint64_t kMostAtOnce = 64;

std::uint64_t g_threads = 20'000;
std::uint64_t g_at_once = 2;
std::uint64_t g_blocks = 200;
std::uint64_t g_left = 20;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"threads", &g_threads, 1, 10'000'000, "threads, rounded up to whole groups"},
    {"at-once", &g_at_once, 1, kMostAtOnce, "threads of a group, which run at once"},
    {"blocks", &g_blocks, 1, kMostBlocks, "blocks that each thread allocates"},
    {"left", &g_left, 0, kMostBlocks, "those of them that it leaves to its successor"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the sizes"},
};
bench::Workload g_workload("churn", "threads that come and go", kParameters);

struct alignas(128) Place {
  bench::Block* blocks;  // the first g_left are the predecessor's
  bench::Block* staying;
  std::uint64_t staying_count;
  std::uint64_t seed;
  std::uint64_t sum;
  bool has_predecessor;
};
Place g_places[kMostAtOnce];

void* live(void* argument) {
  auto& place = *static_cast<Place*>(argument);
  bench::Random random(place.seed);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; place.has_predecessor && i < g_left; ++i) {
    sum += bench::free_block(place.blocks[i]);
  }
  for (std::uint64_t i = 0; i < g_blocks; ++i) {
    place.blocks[i] = bench::make_block(random.pareto(kLeast, kMost), i);
  }
  place.staying[place.staying_count++] = bench::make_block(kStaying, place.seed);
  for (std::uint64_t i = g_left; i < g_blocks; ++i) {
    sum += bench::free_block(place.blocks[i]);
  }
  place.has_predecessor = true;
  place.sum = bench::mix(place.sum, sum);
  return nullptr;
}

void run(std::uint64_t first, std::uint64_t groups) {
  pthread_t threads[kMostAtOnce];
  for (std::uint64_t group = first; group < first + groups; ++group) {
    for (std::uint64_t i = 0; i < g_at_once; ++i) {
      g_places[i].seed = g_seed + group * g_at_once + i;
      threads[i] = bench::start_thread(live, &g_places[i]);
    }
    for (std::uint64_t i = 0; i < g_at_once; ++i) {
      pthread_join(threads[i], nullptr);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  if (g_left > g_blocks) {
    g_workload.refuse("--left is above --blocks");
  }
  const std::uint64_t groups = (g_threads + g_at_once - 1) / g_at_once;
  const std::uint64_t warm = groups / 10 + 1;
  for (std::uint64_t i = 0; i < g_at_once; ++i) {
    g_places[i].blocks = bench::map_resident_array<bench::Block>(g_blocks);
    g_places[i].staying = bench::map_resident_array<bench::Block>(warm + groups);
  }
  run(0, warm);
  const std::uint64_t before = bench::exact_resident_kib();
  g_workload.start();
  run(warm, groups);
  g_workload.stop();
  const std::uint64_t after = bench::exact_resident_kib();

  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_at_once; ++i) {
    Place& place = g_places[i];
    sum = bench::mix(sum, place.sum);
    for (std::uint64_t block = 0; block < g_left; ++block) {
      sum += bench::free_block(place.blocks[block]);
    }
    for (std::uint64_t block = 0; block < place.staying_count; ++block) {
      sum += bench::free_block(place.staying[block]);
    }
  }
  g_workload.figure("memory per thread ended", bench::over_live(after, before, groups * g_at_once),
                    "B");
  g_workload.report(groups * g_at_once, sum);
}

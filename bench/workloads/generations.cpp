// Generations of threads and of objects. The threads of a generation end before the next begins;
// each allocates objects, of which most die young, some are exchanged with whatever other threads
// left in a common table, and some are kept: the next generation's thread inherits and frees them.
// The pattern is that of mstress (Leijen, 2019).
#include "harness.hpp"

namespace {

using bench::Item;

constexpr std::size_t kNursery = 4096;
constexpr std::size_t kExchange = 1024;
constexpr std::uint64_t kLeast = bench::Item::kLeast;

std::uint64_t g_threads = 2;
std::uint64_t g_generations = 60;
std::uint64_t g_objects = 100'000;
std::uint64_t g_most = 256U << 10U;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"threads", &g_threads, 1, bench::kMostThreads, "threads of a generation"},
    {"generations", &g_generations, 1, 1'000'000, "measured generations"},
    {"objects", &g_objects, 1, 100'000'000, "objects that each thread allocates"},
    {"max", &g_most, kLeast, 1U << 24U, "largest size in bytes; the smallest is 24"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of sizes and order"},
};
bench::Workload g_workload("generations", "threads and objects that come and go", kParameters);

std::atomic<Item*> g_exchange[kExchange];

struct alignas(128) Worker {
  Item** nursery;
  Item** kept;       // by this generation, at most one in eight objects
  Item** inherited;  // from the generation before
  std::uint64_t kept_count;
  std::uint64_t inherited_count;
  std::uint64_t generation;
  std::uint64_t sum;
};
Worker g_workers[bench::kMostThreads];

// What is allocated depends on the seed alone; who frees an exchanged object depends on time, but
// everything is freed once, and the sum has no order.
void* live(void* argument) {
  auto& self = *static_cast<Worker*>(argument);
  const auto index = static_cast<std::uint64_t>(&self - g_workers);
  bench::Random random(g_seed + self.generation * g_threads + index);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_objects; ++i) {
    const std::uint64_t choice = random.next();
    Item*& place = self.nursery[(choice >> 32U) % kNursery];
    if (i % 8 == 7) {
      self.kept[self.kept_count++] = place;
    } else if ((choice >> 48U) % 4 == 0) {
      sum += bench::free_item(g_exchange[(choice >> 52U) % kExchange].exchange(place));
    } else {
      sum += bench::free_item(place);
    }
    place = bench::make_item(random.pareto(kLeast, g_most), random.next());
    if (self.inherited_count > 0) {
      sum += bench::free_item(self.inherited[--self.inherited_count]);
    }
  }
  for (std::size_t i = 0; i < kNursery; ++i) {
    sum += bench::free_item(self.nursery[i]);
    self.nursery[i] = nullptr;
  }
  self.sum += sum;
  return nullptr;
}

void run(std::uint64_t first, std::uint64_t count) {
  static pthread_t threads[bench::kMostThreads];
  for (std::uint64_t generation = first; generation < first + count; ++generation) {
    for (std::uint64_t i = 0; i < g_threads; ++i) {
      Worker& worker = g_workers[i];
      Item** empty = worker.inherited;
      worker.inherited = worker.kept;
      worker.inherited_count = worker.kept_count;
      worker.kept = empty;
      worker.kept_count = 0;
      worker.generation = generation;
      threads[i] = bench::start_thread(live, &worker);
    }
    for (std::uint64_t i = 0; i < g_threads; ++i) {
      pthread_join(threads[i], nullptr);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    g_workers[i].nursery = bench::map_resident_array<Item*>(kNursery);
    g_workers[i].kept = bench::map_resident_array<Item*>(g_objects / 8 + 1);
    g_workers[i].inherited = bench::map_resident_array<Item*>(g_objects / 8 + 1);
  }
  const std::uint64_t warm = g_generations / 10 + 1;
  run(0, warm);
  g_workload.start();
  run(warm, g_generations);
  g_workload.stop();
  std::uint64_t sum = 0;
  for (auto& slot : g_exchange) {
    sum += bench::free_item(slot.load());
  }
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    for (std::uint64_t kept = 0; kept < g_workers[i].kept_count; ++kept) {
      sum += bench::free_item(g_workers[i].kept[kept]);
    }
    sum += g_workers[i].sum;
  }
  g_workload.report(g_generations * g_threads * g_objects, sum);
}

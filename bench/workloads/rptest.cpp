// Threads that free and allocate blocks of random sizes scattered over their set, and every few
// rounds allocate blocks that another thread frees. Sizes are spread evenly, or fall off linearly
// or exponentially. The pattern is that of rpmalloc-benchmark (Jansson, 2017); there, nothing
// bounds the blocks that wait for their thread.
#include <algorithm>

#include "harness.hpp"

namespace {

using bench::Item;

constexpr std::size_t kTableSize = 1U << 14U;
constexpr std::uint64_t kLeast = bench::Item::kLeast;
constexpr std::uint64_t kMostWaiting = 8;  // lists

std::uint64_t g_threads = 2;
std::uint64_t g_rounds = 20'000;
std::uint64_t g_blocks = 5'000;
std::uint64_t g_ops = 100;
std::uint64_t g_cross = 2;
std::uint64_t g_falloff = 1;
std::uint64_t g_most = 16'000;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"threads", &g_threads, 1, bench::kMostThreads, "threads"},
    {"rounds", &g_rounds, 1, 1'000'000'000, "measured rounds of each thread"},
    {"blocks", &g_blocks, 1, 10'000'000, "places for blocks of each thread"},
    {"ops", &g_ops, 1, 1'000'000, "blocks freed and allocated in a round"},
    {"cross", &g_cross, 1, 1'000'000, "rounds from one hand-over to the next"},
    {"falloff", &g_falloff, 0, 2, "frequency of sizes: 0 even, 1 linear, 2 exponential"},
    {"max", &g_most, kLeast, 1U << 24U, "largest size in bytes; the smallest is 24"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of sizes and order"},
};
bench::Workload g_workload("rptest", "random sizes, freed by this thread or another", kParameters);

std::uint32_t g_sizes[kTableSize];

// Lists come in by compare-and-swap at the head, and the owner takes all at once.
struct alignas(128) Worker {
  std::atomic<Item*> inbox{nullptr};
  std::atomic<std::uint64_t> waiting{0};
  alignas(128) Item** blocks;
  std::uint64_t sum;
};
Worker g_workers[bench::kMostThreads];
std::atomic<std::uint64_t> g_finished{0};

void choose_sizes() {
  bench::Random random(g_seed);
  const std::uint64_t range = g_most - kLeast + 1;
  for (auto& size : g_sizes) {
    std::uint64_t above = random.below(range);
    if (g_falloff == 1) {
      above = std::min(above, random.below(range));
    } else if (g_falloff == 2) {
      // The density halves with each eighth of the range.
      const auto eighths = static_cast<unsigned>(__builtin_ctzll(random.next() | (1U << 7U)));
      above = (eighths * range + above) / 8;
    }
    size = static_cast<std::uint32_t>(kLeast + above);
  }
}

Item* create(bench::Random& random) {
  const std::uint64_t choice = random.next();
  return bench::make_item(g_sizes[(choice >> 32U) % kTableSize], choice);
}

void empty_inbox(Worker& self) {
  if (self.inbox.load(std::memory_order_relaxed) == nullptr) {
    return;
  }
  Item* item = self.inbox.exchange(nullptr, std::memory_order_acquire);
  std::uint64_t count = 0;
  for (; item != nullptr; ++count) {
    Item* const next = item->next;
    self.sum += bench::free_item(item);
    item = next;
  }
  self.waiting.fetch_sub(count, std::memory_order_relaxed);
}

// A sender that waits keeps its own inbox empty, so that threads in a circle do not block.
void hand_over(Worker& self, Worker& other, bench::Random& random) {
  Item* const last = create(random);
  Item* first = last;
  for (std::uint64_t i = 1; i < g_ops; ++i) {
    Item* const item = create(random);
    item->next = first;
    first = item;
  }
  bench::wait_until([&] {
    empty_inbox(self);
    return other.waiting.load(std::memory_order_relaxed) < kMostWaiting * g_ops;
  });
  other.waiting.fetch_add(g_ops, std::memory_order_relaxed);
  Item* head = other.inbox.load(std::memory_order_relaxed);
  do {
    last->next = head;
  } while (!other.inbox.compare_exchange_weak(head, first, std::memory_order_release));
}

void run(Worker& self, Worker& other, bench::Random& random, std::uint64_t rounds) {
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (std::uint64_t i = 0; i < g_ops; ++i) {
      Item*& place = self.blocks[random.below(g_blocks)];
      self.sum += bench::free_item(place);
      place = nullptr;
    }
    for (std::uint64_t i = 0; i < g_ops; ++i) {
      Item*& place = self.blocks[random.below(g_blocks)];
      self.sum += bench::free_item(place);
      place = create(random);
    }
    if (round % g_cross == 0) {
      hand_over(self, other, random);
    }
    empty_inbox(self);
  }
}

// Until every thread has sent its last blocks, someone may wait for this inbox.
void finish(Worker& self, std::uint64_t threads) {
  g_finished.fetch_add(1, std::memory_order_acq_rel);
  bench::wait_until([&] {
    empty_inbox(self);
    return g_finished.load(std::memory_order_acquire) == threads;
  });
  empty_inbox(self);
}

void work(std::size_t index) {
  Worker& self = g_workers[index];
  Worker& other = g_workers[(index + 1) % g_threads];
  bench::Random random(g_seed + index);
  run(self, other, random, g_rounds / 10 + 1);
  finish(self, g_threads);
  bench::pass_gate();
  run(self, other, random, g_rounds);
  finish(self, 2 * g_threads);
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  choose_sizes();
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    g_workers[i].blocks = bench::map_resident_array<Item*>(g_blocks);
  }
  g_workload.run(g_threads, work);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    for (std::uint64_t place = 0; place < g_blocks; ++place) {
      sum += bench::free_item(g_workers[i].blocks[place]);
    }
    sum += g_workers[i].sum;
  }
  const std::uint64_t handed_over = (g_rounds + g_cross - 1) / g_cross;
  g_workload.report(g_threads * g_ops * (g_rounds + handed_over), sum);
}

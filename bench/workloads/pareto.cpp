// Random replacement in which few blocks are large and few live long: sizes are distributed after
// Pareto, and four fifths of the choices fall on the first fifth of the slots, within that again,
// and so on. A chosen slot is emptied if it holds a block and filled if not, so that half of the
// operations are a malloc and half a free. The pattern is that of alloc-test (OLogN Technologies,
// 2018).
#include "harness.hpp"

namespace {

constexpr std::uint64_t kLeast = 8;
constexpr unsigned kLevels = 6;

std::uint64_t g_ops = 16'000'000;
std::uint64_t g_slots = 200'000;
std::uint64_t g_most = 64U << 10U;
std::uint64_t g_threads = 1;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"ops", &g_ops, 1, 1'000'000'000'000, "operations of each thread"},
    {"slots", &g_slots, 1, 100'000'000, "slots of each thread"},
    {"max", &g_most, kLeast, 1U << 24U, "largest size in bytes; the smallest is 8"},
    {"threads", &g_threads, 1, bench::kMostThreads, "threads, each doing all of it"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of sizes and order"},
};
bench::Workload g_workload("pareto", "sizes and lifetimes distributed after Pareto", kParameters);

struct alignas(128) Worker {
  bench::Block* slots;
  std::uint64_t sum;
};
Worker g_workers[bench::kMostThreads];

std::uint64_t pick(bench::Random& random) {
  std::uint64_t choices = random.next();
  std::uint64_t end = g_slots;
  for (unsigned level = 0; level < kLevels && end >= 10; ++level) {
    const std::uint64_t fifth = end / 5;
    if ((choices >>= 8U) % 256 < 51) {
      return fifth + random.below(end - fifth);
    }
    end = fifth;
  }
  return random.below(end);
}

[[gnu::noinline]] std::uint64_t run(bench::Block* slots, bench::Random& random, std::uint64_t ops) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < ops; ++i) {
    bench::Block& slot = slots[pick(random)];
    if (slot.at != nullptr) {
      sum += bench::free_block(slot);
      slot.at = nullptr;
    } else {
      slot = bench::make_block(random.pareto(kLeast, g_most), i);
    }
  }
  return sum;
}

void work(std::size_t index) {
  Worker& worker = g_workers[index];
  bench::Random random(g_seed + index);
  // Half of the slots hold a block in the long run, those that are rarely chosen as well.
  for (std::uint64_t i = 0; i < g_slots; i += 2) {
    worker.slots[i] = bench::make_block(random.pareto(kLeast, g_most), i);
  }
  const std::uint64_t warm = run(worker.slots, random, g_ops / 10 + 1);
  bench::pass_gate();
  worker.sum = bench::mix(warm, run(worker.slots, random, g_ops));
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    g_workers[i].slots = bench::map_resident_array<bench::Block>(g_slots);
  }
  g_workload.run(g_threads, work);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    sum = bench::mix(sum, g_workers[i].sum);
    for (std::uint64_t slot = 0; slot < g_slots; ++slot) {
      if (g_workers[i].slots[slot].at != nullptr) {
        sum += bench::free_block(g_workers[i].slots[slot]);
      }
    }
  }
  g_workload.report(g_threads * g_ops, sum);
}

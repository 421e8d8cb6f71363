// A long-running program whose sizes shift: as many bytes as ever are alive, every new block takes
// the place of blocks chosen at random, and from epoch to epoch the new blocks are four times as
// large, until they are small again. Holes that old sizes leave are of use to new ones only if the
// allocator can join or give back what is free (Johnstone and Wilson, 1998). There is no warm-up
// but the first filling: how the memory grows is the question.
#include <cstring>

#include "harness.hpp"

namespace {

constexpr std::uint64_t kLeast = 32;
constexpr std::uint64_t kMost = 128U << 10U;
constexpr std::uint64_t kRanges = 6;  // 32 to 128 bytes, 128 to 512, up to 128 KiB
constexpr std::uint64_t kSamples = 400;

std::uint64_t g_mebibytes = 48;
std::uint64_t g_epochs = 18;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"mebibytes", &g_mebibytes, 1, 100'000, "MiB alive"},
    {"epochs", &g_epochs, 1, 1'000'000, "epochs, in each of which as many MiB are allocated"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of sizes and order"},
};
bench::Workload g_workload("fragmentation", "random replacement with shifting sizes", kParameters);

bench::Series g_series{.name = "resident over live", .x = "MiB allocated", .y = ""};

class Population {
 public:
  explicit Population(std::uint64_t bytes)
      : items_(bench::map_array<bench::Item*>(bytes / kLeast + 1)), bytes_(bytes) {
    // Of the table, only what blocks of the smallest range need is resident, and that from now on.
    std::memset(items_, 0, bytes / (2 * kLeast) * sizeof *items_);
  }

  std::uint64_t live() const { return live_; }
  std::uint64_t ops() const { return ops_; }

  // Allocates an item; others make place for it.
  void replace(bench::Random& random, std::uint64_t size) {
    while (live_ + size > bytes_ && count_ > 0) {
      remove(random.below(count_));
    }
    items_[count_++] = bench::make_item(size, ops_++);
    live_ += size;
  }

  std::uint64_t free_all() {
    while (count_ > 0) {
      remove(count_ - 1);
    }
    return sum_;
  }

 private:
  void remove(std::uint64_t which) {
    live_ -= items_[which]->size;
    sum_ += bench::free_item(items_[which]);
    items_[which] = items_[--count_];
  }

  bench::Item** items_;
  std::uint64_t bytes_;
  std::uint64_t count_ = 0;
  std::uint64_t live_ = 0;
  std::uint64_t ops_ = 0;
  std::uint64_t sum_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  const std::uint64_t bytes = g_mebibytes << 20U;
  bench::Random random(g_seed);
  Population population(bytes);
  const std::uint64_t base = bench::exact_resident_kib();
  for (std::uint64_t allocated = 0; allocated < bytes;) {
    const std::uint64_t size = random.pareto(kLeast, kMost);
    population.replace(random, size);
    allocated += size;
  }

  const std::uint64_t first = population.ops();
  const std::uint64_t total = g_epochs * bytes;
  std::uint64_t allocated = 0;
  std::uint64_t samples = 0;
  double sum_of_samples = 0;
  g_workload.start();
  while (allocated < total) {
    const std::uint64_t range = allocated / bytes % kRanges;
    const std::uint64_t size = random.between(kLeast << (2 * range), 4 * kLeast << (2 * range));
    population.replace(random, size);
    allocated += size;
    if (allocated >= (samples + 1) * (total / kSamples)) {
      const double ratio = bench::over_live(bench::resident_kib(), base, population.live());
      g_series.add(static_cast<double>(allocated >> 20U), ratio);
      sum_of_samples += ratio;
      ++samples;
    }
  }
  g_workload.stop();
  const std::uint64_t end = bench::exact_resident_kib();
  g_workload.series(g_series);
  g_workload.figure("resident over live, mean", sum_of_samples / static_cast<double>(samples));
  g_workload.figure("resident over live at the end",
                    bench::over_live(end, base, population.live()));
  const std::uint64_t ops = population.ops() - first;
  g_workload.report(ops, population.free_all());
}

// Random replacement of blocks from posix_memalign, for alignments from a cache line to a huge
// page. The sizes go up to the alignment, or to 1 KiB if that is more.
#include <algorithm>
#include <cstdio>

#include "harness.hpp"

namespace {

struct Alignment {
  const char* name;
  std::uint64_t bytes;
  std::uint64_t live;
  std::uint64_t fewer;  // operations are divided by this, where many allocators call the system
};
constexpr Alignment kAlignments[] = {
    {"64", 64, 1000, 1},           {"256", 256, 1000, 1},          {"4096", 4096, 1000, 1},
    {"65536", 64U << 10U, 200, 8}, {"2097152", 2U << 20U, 16, 64},
};
constexpr std::uint64_t kMostLive = 1000;

std::uint64_t g_ops = 2'000'000;
std::uint64_t g_least = 64;
std::uint64_t g_most = 2U << 20U;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"ops", &g_ops, 64, 1'000'000'000'000, "replacements, fewer from 64 KiB on"},
    {"min", &g_least, 64, 2U << 20U, "smallest alignment in bytes"},
    {"max", &g_most, 64, 2U << 20U, "largest alignment in bytes"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of sizes and order"},
};
bench::Workload g_workload("aligned", "aligned allocation", kParameters);

bench::Block g_blocks[kMostLive];

bench::Block make_aligned(const Alignment& alignment, bench::Random& random, std::uint64_t stamp) {
  const std::uint64_t size = 1 + random.below(std::max<std::uint64_t>(alignment.bytes, 1024));
  void* at = nullptr;
  if (posix_memalign(&at, alignment.bytes, size) != 0) [[unlikely]] {
    bench::die("posix_memalign(%s) failed", alignment.name);
  }
  if (reinterpret_cast<std::uintptr_t>(at) % alignment.bytes != 0) [[unlikely]] {
    bench::die("a block is not aligned to %s", alignment.name);
  }
  const bench::Block block{static_cast<unsigned char*>(at), static_cast<std::uint32_t>(size),
                           static_cast<std::uint32_t>(stamp)};
  bench::write_byte(block.at, stamp);
  bench::write_byte(block.at + size - 1, stamp);
  return block;
}

std::uint64_t run(const Alignment& alignment, bench::Random& random, std::uint64_t ops) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < ops; ++i) {
    bench::Block& block = g_blocks[random.below(alignment.live)];
    sum += bench::free_block(block);
    block = make_aligned(alignment, random, i);
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  if (g_least > g_most) {
    g_workload.refuse("--min is above --max");
  }
  bench::Random random(g_seed);
  std::uint64_t sum = 0;
  std::uint64_t total = 0;
  for (const Alignment& alignment : kAlignments) {
    if (alignment.bytes < g_least || alignment.bytes > g_most) {
      continue;
    }
    const std::uint64_t ops = g_ops / alignment.fewer;
    for (std::uint64_t i = 0; i < alignment.live; ++i) {
      g_blocks[i] = make_aligned(alignment, random, i);
    }
    sum = bench::mix(sum, run(alignment, random, ops / 10 + 1));
    g_workload.start();
    const std::uint64_t before = bench::now();
    sum = bench::mix(sum, run(alignment, random, ops));
    const std::uint64_t spent = bench::now() - before;
    g_workload.stop();
    g_workload.point(alignment.name, static_cast<double>(spent) / static_cast<double>(ops));
    for (std::uint64_t i = 0; i < alignment.live; ++i) {
      sum += bench::free_block(g_blocks[i]);
    }
    total += ops;
  }
  if (total == 0) {
    g_workload.refuse("no alignment between --min and --max: 64, 256, 4096, 65536, 2097152");
  }
  g_workload.report(total, sum);
}

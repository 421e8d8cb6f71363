// One thread allocates a small block, touches it and frees it at once. Sizes come from a table,
// so that the loop holds little but the two calls.
#include "harness.hpp"

namespace {

constexpr std::size_t kTableSize = 1U << 14U;

std::uint64_t g_ops = 50'000'000;
std::uint64_t g_least = 1;
std::uint64_t g_most = 1024;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"ops", &g_ops, 1, 1'000'000'000'000, "pairs of malloc and free"},
    {"min", &g_least, 1, 65535, "smallest size in bytes"},
    {"max", &g_most, 1, 65535, "largest size in bytes"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the sizes"},
};
bench::Workload g_workload("immediate", "malloc, touch, free at once", kParameters);

[[gnu::noinline]] std::uint64_t run(const std::uint16_t* sizes, std::uint64_t ops) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < ops; ++i) {
    const std::size_t size = sizes[i % kTableSize];
    unsigned char* block = bench::allocate(size);
    bench::write_byte(block, i);
    sum += bench::read_byte(block) + size;
    std::free(block);
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  if (g_least > g_most) {
    g_workload.refuse("--min is above --max");
  }
  const std::uint16_t* sizes = bench::size_table(kTableSize, g_least, g_most, g_seed);
  const std::uint64_t warm = run(sizes, g_ops / 10 + 1);
  g_workload.start();
  const std::uint64_t sum = run(sizes, g_ops);
  g_workload.stop();
  g_workload.report(g_ops, bench::mix(warm, sum));
}

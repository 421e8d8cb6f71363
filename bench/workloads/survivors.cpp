// Many small blocks are allocated, and of these every n-th stays; then larger ones are allocated
// until as many bytes live as before. A hole between survivors is too small for them, so what is
// resident in the end depends on whether survivors can keep whole pages in use. The bad case of any
// allocator that does not move blocks (Robson, 1971) in its everyday form. There is no warm-up: how
// the memory grows is the question.
#include "harness.hpp"

namespace {

constexpr std::uint64_t kSmallMost = 512;
constexpr std::uint64_t kLargeMost = 4096;

std::uint64_t g_mebibytes = 256;
std::uint64_t g_every = 16;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"mebibytes", &g_mebibytes, 1, 100'000, "MiB alive at most"},
    {"every", &g_every, 2, 1'000'000, "every n-th small block stays"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the sizes"},
};
bench::Workload g_workload("survivors", "every n-th block survives", kParameters);

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  const std::uint64_t most = g_mebibytes << 20U;
  bench::Random random(g_seed);
  bench::Queue going;
  bench::Queue staying;
  std::uint64_t ops = 0;
  std::uint64_t live = 0;
  const std::uint64_t base = bench::exact_resident_kib();
  g_workload.start();
  for (std::uint64_t bytes = 0; bytes < most; ++ops) {
    const std::uint64_t size = random.between(bench::Item::kLeast, kSmallMost);
    const bool stays = ops % g_every == 0;
    (stays ? staying : going).add(bench::make_item(size, ops));
    bytes += size;
    live += stays ? size : 0;
  }
  std::uint64_t sum = going.free_all();
  g_workload.stop();
  const double after_free = bench::over_live(bench::exact_resident_kib(), base, live);
  g_workload.start();
  for (; live < most; ++ops) {
    const std::uint64_t size = random.between(kSmallMost + 1, kLargeMost);
    staying.add(bench::make_item(size, ops));
    live += size;
  }
  g_workload.stop();
  const double at_the_end = bench::over_live(bench::exact_resident_kib(), base, live);
  sum += staying.free_all();
  g_workload.figure("resident over live after freeing", after_free);
  g_workload.figure("resident over live with other sizes", at_the_end);
  g_workload.report(ops, sum);
}

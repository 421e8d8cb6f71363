// A live set of blocks of mixed sizes; each step frees one at random and allocates another in its
// place. The freed block is not read first: whether free itself has to fetch a cold line is a
// property of the allocator that this measures. The contents are verified during the warm-up and
// once more after the measured part.
#include "harness.hpp"

namespace {

struct Slot {
  unsigned char* block;
  std::uint32_t size;
  std::uint32_t stamp;
};

std::uint64_t g_ops = 5'000'000;
std::uint64_t g_live = 100'000;
std::uint64_t g_most = 1024;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"ops", &g_ops, 1, 1'000'000'000'000, "replacements"},
    {"live", &g_live, 1, 100'000'000, "blocks in the live set"},
    {"max", &g_most, 1, 1U << 24U, "largest size in bytes"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of sizes and order"},
};
bench::Workload g_workload("replace", "random replacement in a live set", kParameters);

[[gnu::always_inline]] inline void fill(Slot& slot, std::uint64_t size, std::uint64_t stamp) {
  slot.block = bench::allocate(size);
  slot.size = static_cast<std::uint32_t>(size);
  slot.stamp = static_cast<std::uint32_t>(stamp);
  bench::write_byte(slot.block, stamp);
  bench::write_byte(slot.block + size - 1, stamp);
}

void verify(const Slot& slot) {
  const std::uint64_t expected = slot.stamp & 0xFFU;
  if (bench::read_byte(slot.block) != expected ||
      bench::read_byte(slot.block + slot.size - 1) != expected) {
    bench::die("replace: a block of %u bytes was overwritten", slot.size);
  }
}

template <bool Verified>
[[gnu::noinline]] std::uint64_t run(Slot* slots, bench::Random& random, std::uint64_t ops) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < ops; ++i) {
    // One random number serves both: its upper half picks the slot, its lower half the size.
    const std::uint64_t number = random.next();
    Slot& slot = slots[((number >> 32U) * g_live) >> 32U];
    const std::uint64_t size = 1 + (((number & 0xFFFFFFFFU) * g_most) >> 32U);
    if constexpr (Verified) {
      verify(slot);
    }
    std::free(slot.block);
    fill(slot, size, i);
    sum += size;
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  auto* slots = bench::map_array<Slot>(g_live);
  bench::Random random(g_seed);
  for (std::uint64_t i = 0; i < g_live; ++i) {
    fill(slots[i], 1 + random.below(g_most), i);
  }
  std::uint64_t sum = run<true>(slots, random, g_live + g_ops / 10);
  g_workload.start();
  sum = bench::mix(sum, run<false>(slots, random, g_ops));
  g_workload.stop();
  for (std::uint64_t i = 0; i < g_live; ++i) {
    verify(slots[i]);
    sum = bench::mix(sum, bench::read_byte(slots[i].block) + slots[i].size);
    std::free(slots[i].block);
  }
  g_workload.report(g_ops, sum);
}

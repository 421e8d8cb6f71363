// calloc of memory that the process has never used, and of memory that it has: an allocator that
// knows which is which need not clear the first. Every block is written after it was looked at,
// page by page.
#include <cstdio>
#include <cstring>

#include "harness.hpp"

namespace {

constexpr std::uint64_t kSizes[] = {64, 1U << 10U, 16U << 10U, 256U << 10U, 4U << 20U};
constexpr std::size_t kSizeCount = sizeof kSizes / sizeof kSizes[0];
constexpr std::uint64_t kMember = 16;

std::uint64_t g_mebibytes = 32;
std::uint64_t g_rounds = 4;

constexpr bench::Parameter kParameters[] = {
    {"mebibytes", &g_mebibytes, 4, 100'000, "MiB of each size"},
    {"rounds", &g_rounds, 1, 1'000'000, "measured rounds with recycled memory"},
};
bench::Workload g_workload("calloc", "calloc of fresh and of recycled memory", kParameters);

unsigned char** g_blocks[kSizeCount];

std::uint64_t count_of(std::size_t which) { return (g_mebibytes << 20U) / kSizes[which]; }

void expect_zero(const unsigned char* at) {
  if (bench::read_byte(at) != 0) [[unlikely]] {
    bench::die("calloc: a block was not cleared");
  }
}

// Allocates all blocks of a size; returns the nanoseconds.
std::uint64_t fill(std::size_t which) {
  const std::uint64_t size = kSizes[which];
  const std::uint64_t before = bench::now();
  for (std::uint64_t i = 0; i < count_of(which); ++i) {
    auto* block = static_cast<unsigned char*>(std::calloc(size / kMember, kMember));
    if (block == nullptr) [[unlikely]] {
      bench::die("calloc of %zu bytes failed", static_cast<std::size_t>(size));
    }
    for (std::uint64_t at = 0; at < size; at += 4096) {
      expect_zero(block + at);
      bench::write_byte(block + at, i);
    }
    expect_zero(block + size - 1);
    g_blocks[which][i] = block;
  }
  return bench::now() - before;
}

// Every byte is zero, but for those that fill() wrote.
void verify(std::size_t which) {
  for (std::uint64_t i = 0; i < count_of(which); ++i) {
    for (std::uint64_t at = 0; at < kSizes[which]; at += 1) {
      if (at % 4096 != 0) {
        expect_zero(g_blocks[which][i] + at);
      }
    }
  }
}

void soil_and_free(std::size_t which) {
  for (std::uint64_t i = 0; i < count_of(which); ++i) {
    std::memset(g_blocks[which][i], 0xA5, kSizes[which]);
    bench::escape(g_blocks[which][i]);
    std::free(g_blocks[which][i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  std::uint64_t fresh[kSizeCount];
  std::uint64_t recycled[kSizeCount] = {};
  for (std::size_t which = 0; which < kSizeCount; ++which) {
    g_blocks[which] = bench::map_resident_array<unsigned char*>(count_of(which));
  }
  g_workload.start();
  for (std::size_t which = 0; which < kSizeCount; ++which) {
    fresh[which] = fill(which);
  }
  g_workload.stop();
  for (std::size_t which = 0; which < kSizeCount; ++which) {
    soil_and_free(which);
  }
  // The first round of all warms up, and looks at every byte.
  for (std::uint64_t round = 0; round <= g_rounds; ++round) {
    for (std::size_t which = 0; which < kSizeCount; ++which) {
      if (round == 0) {
        fill(which);
        verify(which);
      } else {
        g_workload.start();
        recycled[which] += fill(which);
        g_workload.stop();
      }
      soil_and_free(which);
    }
  }

  std::uint64_t blocks = 0;
  for (std::size_t which = 0; which < kSizeCount; ++which) {
    char name[32];
    const auto count = static_cast<double>(count_of(which));
    const auto size = static_cast<unsigned long long>(kSizes[which]);
    std::snprintf(name, sizeof name, "%llu fresh", size);
    g_workload.point(name, static_cast<double>(fresh[which]) / count);
    std::snprintf(name, sizeof name, "%llu recycled", size);
    g_workload.point(
        name, static_cast<double>(recycled[which]) / (count * static_cast<double>(g_rounds)));
    blocks += count_of(which);
  }
  const std::uint64_t ops = blocks * (g_rounds + 1);
  g_workload.report(ops, bench::mix(blocks, ops));
}

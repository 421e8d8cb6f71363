// Buffers that grow by realloc: by one byte, by 64 bytes, by doubling, and several that double in
// turn, so that none can grow in place. What is new is written, page by page, and what was there
// must have come along.
#include "harness.hpp"

namespace {

struct Growth {
  const char* name;
  std::uint64_t buffers;  // which grow in turn
  std::uint64_t first;
  std::uint64_t last;
  std::uint64_t step;    // 0: doubles
  std::uint64_t weight;  // times that a round repeats it, so that each takes about as long
};
constexpr Growth kGrowths[] = {
    {"by 1 B to 4 KiB", 1, 1, 4U << 10U, 1, 8},
    {"by 64 B to 1 MiB", 1, 64, 1U << 20U, 64, 1},
    {"doubling to 8 MiB", 1, 16, 8U << 20U, 0, 1},
    {"16 in turn, doubling to 256 KiB", 16, 16, 256U << 10U, 0, 1},
};
constexpr std::size_t kGrowthCount = sizeof kGrowths / sizeof kGrowths[0];
constexpr std::uint64_t kMostBuffers = 16;

std::uint64_t g_rounds = 400;

constexpr bench::Parameter kParameters[] = {
    {"rounds", &g_rounds, 1, 1'000'000, "measured rounds"},
};
bench::Workload g_workload("realloc", "growth by realloc", kParameters);

// What stands at a place follows from the place.
std::uint64_t content(std::uint64_t at) { return at * 7 + 1; }

void write_part(unsigned char* buffer, std::uint64_t from, std::uint64_t to) {
  for (std::uint64_t at = from; at < to; at += 4096) {
    bench::write_byte(buffer + at, content(at));
  }
  bench::write_byte(buffer + to - 1, content(to - 1));
}

unsigned char* grow(unsigned char* buffer, std::uint64_t from, std::uint64_t to) {
  auto* grown = static_cast<unsigned char*>(std::realloc(buffer, to));
  if (grown == nullptr) [[unlikely]] {
    bench::die("realloc to %zu bytes failed", static_cast<std::size_t>(to));
  }
  if (bench::read_byte(grown) != (content(0) & 0xFFU) ||
      bench::read_byte(grown + from - 1) != (content(from - 1) & 0xFFU)) [[unlikely]] {
    bench::die("realloc to %zu bytes lost the content", static_cast<std::size_t>(to));
  }
  write_part(grown, from, to);
  return grown;
}

// Returns how often it called realloc.
std::uint64_t run(const Growth& growth, std::uint64_t rounds) {
  std::uint64_t calls = 0;
  for (std::uint64_t round = 0; round < rounds * growth.weight; ++round) {
    unsigned char* buffers[kMostBuffers];
    for (std::uint64_t i = 0; i < growth.buffers; ++i) {
      buffers[i] = bench::allocate(growth.first);
      write_part(buffers[i], 0, growth.first);
    }
    for (std::uint64_t size = growth.first; size < growth.last;) {
      const std::uint64_t next = size + (growth.step != 0 ? growth.step : size);
      for (std::uint64_t i = 0; i < growth.buffers; ++i) {
        buffers[i] = grow(buffers[i], size, next);
      }
      calls += growth.buffers;
      size = next;
    }
    for (std::uint64_t i = 0; i < growth.buffers; ++i) {
      std::free(buffers[i]);
    }
  }
  return calls;
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  std::uint64_t nanoseconds[kGrowthCount];
  std::uint64_t calls[kGrowthCount];
  std::uint64_t total = 0;
  std::uint64_t sum = 0;
  for (const Growth& growth : kGrowths) {
    sum = bench::mix(sum, run(growth, g_rounds / 10 + 1));
  }
  g_workload.start();
  for (std::size_t i = 0; i < kGrowthCount; ++i) {
    const std::uint64_t before = bench::now();
    calls[i] = run(kGrowths[i], g_rounds);
    nanoseconds[i] = bench::now() - before;
  }
  g_workload.stop();
  for (std::size_t i = 0; i < kGrowthCount; ++i) {
    g_workload.point(kGrowths[i].name,
                     static_cast<double>(nanoseconds[i]) / static_cast<double>(calls[i]));
    total += calls[i];
    sum = bench::mix(sum, calls[i]);
  }
  g_workload.report(total, sum);
}

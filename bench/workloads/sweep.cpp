// Allocate and free at once, for sizes that grow geometrically, eight to a doubling; optionally
// with the first byte of every page touched. Reports for each size the median over several short
// batches: a batch that was interrupted does not count.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "harness.hpp"

namespace {

constexpr std::size_t kMostSizes = 8 * 26 + 1;  // up to 64 MiB
constexpr std::size_t kMostBatches = 99;
constexpr std::size_t kMostSweepThreads = 64;
constexpr std::uint64_t kPlainBytes = 4U << 20U;     // the largest size of which all pairs are done
constexpr std::uint64_t kTouchedBytes = 16U << 20U;  // in one batch, about

std::uint64_t g_most = 4U << 20U;
std::uint64_t g_pairs = 1000;
std::uint64_t g_batches = 15;
std::uint64_t g_touch = 0;
std::uint64_t g_threads = 1;
std::uint64_t g_markers = 0;

constexpr bench::Parameter kParameters[] = {
    {"max", &g_most, 1, 64U << 20U, "largest size in bytes"},
    {"pairs", &g_pairs, 1, 1'000'000,
     "pairs of malloc and free in a batch, fewer above 4 MiB or if they touch much"},
    {"batches", &g_batches, 1, kMostBatches, "measured batches of each size"},
    {"touch", &g_touch, 0, 1, "1: write the first byte of each page"},
    {"threads", &g_threads, 1, kMostSweepThreads, "threads, each doing all of it"},
    {"markers", &g_markers, 0, 1, "1: mark each size for strace by a failing write (one thread)"},
};
bench::Workload g_workload("sweep", "malloc and free over all sizes", kParameters);

std::uint64_t g_sizes[kMostSizes];
std::size_t g_size_count = 0;
std::uint64_t g_page = 4096;

struct alignas(128) Worker {
  double nanoseconds[kMostSizes];
  std::uint64_t sum;
};
Worker g_workers[kMostSweepThreads];

// Rounded powers of 2^(1/8); exact integers, so that every machine measures the same sizes.
void choose_sizes() {
  constexpr std::uint64_t kRoots[8] = {1'048'576, 1'143'480, 1'246'974, 1'359'835,
                                       1'482'910, 1'617'125, 1'763'488, 1'923'097};
  for (std::uint64_t i = 0; i < kMostSizes; ++i) {
    const std::uint64_t size = ((kRoots[i % 8] << (i / 8)) + (1U << 19U)) >> 20U;
    if (size <= g_most && (g_size_count == 0 || size > g_sizes[g_size_count - 1])) {
      g_sizes[g_size_count++] = size;
    }
  }
}

// Above 4 MiB a pair costs most allocators system calls, and what is touched costs page faults:
// what is done there shrinks with the size.
std::uint64_t pairs_of(std::uint64_t size) {
  const std::uint64_t most = std::max<std::uint64_t>(1, g_pairs * kPlainBytes / size);
  const std::uint64_t touched = std::max<std::uint64_t>(1, kTouchedBytes / size);
  return std::min({g_pairs, most, g_touch != 0 ? touched : g_pairs});
}

template <bool Touched>
[[gnu::noinline]] std::uint64_t run_batch(std::uint64_t size, std::uint64_t pairs) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < pairs; ++i) {
    unsigned char* block = bench::allocate(size);
    bench::escape(block);
    if constexpr (Touched) {
      for (std::uint64_t at = 0; at < size; at += g_page) {
        bench::write_byte(block + at, i + at);
      }
      sum += bench::read_byte(block);
    } else {
      sum += size;
    }
    std::free(block);
  }
  return sum;
}

void mark(const char* what, std::uint64_t size, std::uint64_t pairs) {
  if (g_markers != 0) {
    char text[96];
    const int length = std::snprintf(text, sizeof text, "sweep %s size=%llu pairs=%llu", what,
                                     static_cast<unsigned long long>(size),
                                     static_cast<unsigned long long>(pairs));
    if (write(-1, text, static_cast<std::size_t>(length)) >= 0) {
      bench::die("sweep: a marker was written");
    }
  }
}

void sweep_size(Worker& worker, std::size_t which) {
  double samples[kMostBatches];
  const std::uint64_t size = g_sizes[which];
  const std::uint64_t pairs = pairs_of(size);
  auto* const batch = g_touch != 0 ? run_batch<true> : run_batch<false>;
  worker.sum = bench::mix(worker.sum, batch(size, pairs));
  mark("begin", size, pairs * g_batches);
  for (std::uint64_t i = 0; i < g_batches; ++i) {
    const std::uint64_t before = bench::now();
    const std::uint64_t sum = batch(size, pairs);
    samples[i] = static_cast<double>(bench::now() - before) / static_cast<double>(pairs);
    worker.sum = bench::mix(worker.sum, sum);
  }
  mark("end", size, pairs * g_batches);
  std::nth_element(samples, samples + g_batches / 2, samples + g_batches);
  worker.nanoseconds[which] = samples[g_batches / 2];
}

void work(std::size_t index) {
  bench::pass_gate();
  for (std::size_t which = 0; which < g_size_count; ++which) {
    sweep_size(g_workers[index], which);
  }
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  if (g_markers != 0 && g_threads != 1) {
    g_workload.refuse("--markers needs one thread");
  }
  g_page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  choose_sizes();
  g_workload.run(g_threads, work);

  std::uint64_t ops = 0;
  std::uint64_t sum = 0;
  for (std::size_t which = 0; which < g_size_count; ++which) {
    double total = 0;
    for (std::uint64_t i = 0; i < g_threads; ++i) {
      total += g_workers[i].nanoseconds[which];
    }
    ops += g_threads * (g_batches + 1) * pairs_of(g_sizes[which]);
    char name[24];
    std::snprintf(name, sizeof name, "%llu", static_cast<unsigned long long>(g_sizes[which]));
    g_workload.point(name, total / static_cast<double>(g_threads));
  }
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    sum = bench::mix(sum, g_workers[i].sum);
  }
  g_workload.report(ops, sum);
}

// Threads that write small blocks of their own over and over, after the cache-scratch and
// cache-thrash of E. Berger, K. McKinley, R. Blumofe and P. Wilson, "Hoard: A Scalable Memory
// Allocator for Multithreaded Applications", 2000. If two threads' blocks share a cache line, the
// line goes to and fro between the processors. An allocator brings that about actively when it
// gives parts of a line to several threads, and passively when a thread that frees a part which it
// was handed gets just that part again. With `handed` every thread begins by freeing a block that
// the main thread made beside those of the others.
#include "harness.hpp"

namespace {

std::uint64_t g_threads = 2;
std::uint64_t g_blocks = 2'000'000;
std::uint64_t g_writes = 200;
std::uint64_t g_size = 8;
std::uint64_t g_handed = 0;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"threads", &g_threads, 1, bench::kMostThreads, "threads"},
    {"blocks", &g_blocks, 1, 1'000'000'000'000, "blocks that each thread has, one at a time"},
    {"writes", &g_writes, 1, 1'000'000'000, "times that a block is read and written"},
    {"size", &g_size, 1, 1U << 20U, "size of each block in bytes"},
    {"handed", &g_handed, 0, 1, "whether the main thread makes the first blocks"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of what is written"},
};
bench::Workload g_workload("scratch", "passive and active false sharing", kParameters);

struct alignas(128) Worker {
  unsigned char* first;
  std::uint64_t sum;
};
Worker g_workers[bench::kMostThreads];

std::uint64_t write_often(unsigned char* block, std::uint64_t value) {
  for (std::uint64_t i = 0; i < g_size; ++i) {
    bench::write_byte(block + i, value + i);
  }
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < g_writes; ++i) {
    bench::write_byte(block + at, bench::read_byte(block + at) * 5 + i);
    at = at + 1 == g_size ? 0 : at + 1;
  }
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_size; ++i) {
    sum = bench::mix(sum, bench::read_byte(block + i));
  }
  return sum;
}

std::uint64_t run(std::uint64_t blocks, std::uint64_t first) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    unsigned char* block = bench::allocate(g_size);
    sum = bench::mix(sum, write_often(block, first + i));
    std::free(block);
  }
  return sum;
}

void work(std::size_t index) {
  Worker& worker = g_workers[index];
  const std::uint64_t first = bench::Random(g_seed + index).next();
  std::uint64_t sum = 0;
  if (worker.first != nullptr) {
    sum = write_often(worker.first, first);
    std::free(worker.first);
  }
  sum = bench::mix(sum, run(g_blocks / 10 + 1, first));
  bench::pass_gate();
  worker.sum = bench::mix(sum, run(g_blocks, first));
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  if (g_handed != 0) {
    for (std::uint64_t i = 0; i < g_threads; ++i) {
      g_workers[i].first = bench::allocate(g_size);
    }
  }
  g_workload.run(g_threads, work);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    sum = bench::mix(sum, g_workers[i].sum);
  }
  g_workload.report(g_threads * g_blocks, sum);
}

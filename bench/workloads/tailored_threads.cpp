// Threads in a ring: each frees what the one before it has made, from a composed heap with
// magazines for each thread, and from the malloc of the process. The composed heap is the same
// under every malloc.
#include <allod.hpp>

#include "harness.hpp"

namespace {

constexpr std::uint64_t kSize = 64;
constexpr std::uint64_t kDepth = 16;  // batches on their way between two threads
constexpr std::size_t kMostThreads = 64;

std::uint64_t g_threads = 4;
std::uint64_t g_batches = 20'000;
std::uint64_t g_batch = 100;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"threads", &g_threads, 1, kMostThreads, "threads in the ring"},
    {"batches", &g_batches, 1, 1'000'000'000, "batches that each thread makes"},
    {"batch", &g_batch, 1, 10'000, "objects of a batch"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of what is written"},
};
bench::Workload g_workload("tailored_threads", "a composed heap in a ring of threads", kParameters);

struct SharedParts : allod::Parts {
  using Sizes = allod::FixedClasses<kSize>;
  using Threads = allod::ThreadCaching<>;
};
constinit allod::Tailored<SharedParts> g_heap{"ring"};

struct Composed {
  static void* make() { return g_heap.allocate<kSize>(); }
  static void destroy(void* object) { g_heap.deallocate<kSize>(object); }
};
struct Process {
  static void* make() { return std::malloc(kSize); }
  static void destroy(void* object) { std::free(object); }
};

// To the next thread.
struct alignas(128) Way {
  std::atomic<std::uint64_t> sent{0};
  alignas(128) std::atomic<std::uint64_t> received{0};
  unsigned char** objects;
};
Way g_ways[kMostThreads];
std::uint64_t g_sums[kMostThreads];

template <class Heap>
void work(std::size_t self) {
  Way& out = g_ways[self];
  Way& in = g_ways[(self + g_threads - 1) % g_threads];
  std::uint64_t sum = 0;
  bench::pass_gate();
  for (std::uint64_t n = 0; n < g_batches; ++n) {
    bench::wait_until([&] { return n - out.received.load(std::memory_order_acquire) < kDepth; });
    unsigned char** const made = out.objects + n % kDepth * g_batch;
    for (std::uint64_t i = 0; i < g_batch; ++i) {
      made[i] = static_cast<unsigned char*>(Heap::make());
      if (made[i] == nullptr) [[unlikely]] {
        bench::die("a heap refused");
      }
      bench::write_byte(made[i], g_seed + i);
    }
    out.sent.store(n + 1, std::memory_order_release);
    bench::wait_until([&] { return in.sent.load(std::memory_order_acquire) > n; });
    unsigned char** const got = in.objects + n % kDepth * g_batch;
    for (std::uint64_t i = 0; i < g_batch; ++i) {
      sum += bench::read_byte(got[i]);
      Heap::destroy(got[i]);
    }
    in.received.store(n + 1, std::memory_order_release);
  }
  g_sums[self] = sum;
}

// Nanoseconds for each object.
template <class Heap>
double run(std::uint64_t& sum) {
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    g_ways[i].sent = 0;
    g_ways[i].received = 0;
  }
  const std::uint64_t before = bench::now();
  g_workload.run(g_threads, work<Heap>);
  const auto spent = static_cast<double>(bench::now() - before);
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    sum = bench::mix(sum, g_sums[i]);
  }
  return spent / static_cast<double>(g_threads * g_batches * g_batch);
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    g_ways[i].objects = bench::map_resident_array<unsigned char*>(kDepth * g_batch);
  }
  std::uint64_t sum = 0;
  constexpr int kRounds = 3;
  double composed = 0;
  double process = 0;
  for (int round = 0; round < kRounds; ++round) {
    composed += run<Composed>(sum);
    process += run<Process>(sum);
  }
  g_workload.point("composed", composed / kRounds);
  g_workload.point("malloc", process / kRounds);
  g_workload.report(2 * kRounds * g_threads * g_batches * g_batch, sum);
}

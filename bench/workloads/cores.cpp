// A free and a malloc at a time, by threads that share little but the allocator: for counting the
// cache lines that travel between their processors (bench/lines). So nothing else of the program
// is shared within the measured part, as far as its pattern allows.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness.hpp"

namespace {

constexpr std::uint64_t kSet = 256;  // blocks
constexpr std::uint64_t kRing = 64;
constexpr std::size_t kApart = 128;  // bytes; processors fetch lines in pairs

enum : std::uint64_t { kOwn, kPassOn, kChangeHands };

std::uint64_t g_pattern = kOwn;
std::uint64_t g_threads = 8;
std::uint64_t g_ops = 4096;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"pattern", &g_pattern, kOwn, kChangeHands,
     "0: each thread frees its own blocks, 1: those of the thread before, 2: sets change hands"},
    {"threads", &g_threads, 1, 256, "threads"},
    {"ops", &g_ops, kSet, 1'000'000'000, "operations of each thread, a free and a malloc"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the sizes and the order"},
};
bench::Workload g_workload("cores", "threads that share the allocator", kParameters);

struct alignas(kApart) Slot {
  std::atomic<void*> block;
};
struct alignas(kApart) Set {
  void* blocks[kSet];
};
struct alignas(kApart) Sum {
  std::uint64_t bytes;
};

Slot* g_slots;  // kRing for each thread
Set* g_sets;
Sum g_sums[256];
pthread_barrier_t g_meeting;

// One in five is large: there are some forty size classes.
void* make_block(bench::Random& random, std::uint64_t& bytes) {
  const std::uint64_t size =
      random.below(5) == 0 ? random.between(16, 2015) : random.between(16, 255);
  unsigned char* block = bench::allocate(size);
  bench::write_byte(block, 1);
  bytes += size;
  return block;
}

void fill(Set& set, bench::Random& random, std::uint64_t& bytes) {
  for (void*& block : set.blocks) {
    block = make_block(random, bytes);
  }
}

void replace_some(Set& set, std::uint64_t count, bench::Random& random, std::uint64_t& bytes) {
  for (; count > 0; --count) {
    void*& block = set.blocks[random.below(kSet)];
    std::free(block);
    block = make_block(random, bytes);
  }
}

void pass_on(std::size_t index, bench::Random& random, std::uint64_t& bytes) {
  Slot* const put = g_slots + index * kRing;
  Slot* const get = g_slots + (index + g_threads - 1) % g_threads * kRing;
  for (std::uint64_t sent = 0, freed = 0; sent < g_ops || freed < g_ops;) {
    const std::uint64_t before = sent + freed;
    std::atomic<void*>& room = put[sent % kRing].block;
    if (sent < g_ops && room.load() == nullptr) {
      room.store(make_block(random, bytes));
      ++sent;
    }
    std::atomic<void*>& received = get[freed % kRing].block;
    void* const block = freed < g_ops ? received.load() : nullptr;
    if (block != nullptr) {
      received.store(nullptr);
      ++freed;
      std::free(block);
    }
    if (sent + freed == before) {
      sched_yield();
    }
  }
}

void change_hands(std::size_t index, bench::Random& random, std::uint64_t& bytes) {
  for (std::uint64_t round = 0; round < g_ops / kSet; ++round) {
    pthread_barrier_wait(&g_meeting);
    replace_some(g_sets[(index + round) % g_threads], kSet, random, bytes);
  }
}

// For the counter: see bench/lines/lines.c. Nowhere else is it a call that does something.
void mark(std::size_t index, bool is_begin) {
  pthread_barrier_wait(&g_meeting);
  if (index == 0) {
    syscall(SYS_write, -1L, nullptr, is_begin ? 1L : 0L);
  }
  pthread_barrier_wait(&g_meeting);
}

void work(std::size_t index) {
  constexpr std::uint64_t kWarmUp = 2'000;
  bench::Random random(bench::mix(g_seed, index));
  std::uint64_t bytes = 0;
  Set* const mine = static_cast<Set*>(std::aligned_alloc(kApart, sizeof(Set)));
  fill(*mine, random, bytes);
  replace_some(*mine, kWarmUp, random, bytes);
  bench::pass_gate();
  mark(index, true);
  if (g_pattern == kOwn) {
    replace_some(*mine, g_ops, random, bytes);
  } else if (g_pattern == kPassOn) {
    pass_on(index, random, bytes);
  } else {
    change_hands(index, random, bytes);
  }
  mark(index, false);
  g_sums[index].bytes = bytes;
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  if (pthread_barrier_init(&g_meeting, nullptr, static_cast<unsigned>(g_threads)) != 0) {
    bench::die("cores: no barrier");
  }
  g_slots = bench::map_array<Slot>(g_threads * kRing);
  g_sets = bench::map_array<Set>(g_threads);
  bench::Random random(g_seed);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    fill(g_sets[i], random, sum);
  }
  g_workload.run(g_threads, work);
  for (std::uint64_t i = 0; i < g_threads; ++i) {
    sum = bench::mix(sum, g_sums[i].bytes);
  }
  g_workload.report(g_ops * g_threads, sum);
}

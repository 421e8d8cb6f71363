// Heaps of a program's own: an arena in which blocks are replaced at random, and one with many
// blocks that goes at once. An allocator without heaps shows its malloc and free, beside the two
// resources of the C++ library that stand in for heaps.
#include <dlfcn.h>

#include <memory_resource>

#include "harness.hpp"

namespace {

constexpr std::size_t kLive = 1U << 12U;
constexpr std::size_t kTableSize = 1U << 14U;

std::uint64_t g_ops = 20'000'000;
std::uint64_t g_blocks = 1'000'000;
std::uint64_t g_rounds = 5;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"ops", &g_ops, 1000, 1'000'000'000'000, "replacements of a block"},
    {"blocks", &g_blocks, 1, 100'000'000, "blocks of 64 bytes that go at once"},
    {"rounds", &g_rounds, 1, 1000, "how often they do"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the sizes"},
};
bench::Workload g_workload("heaps", "heaps of a program's own, and what stands in for them",
                           kParameters);

// The heap functions of the allocator under test, by its names for them.
struct Names {
  const char* make;
  const char* take;
  const char* give;  // takes the block alone
  const char* end;
};
constexpr Names kNames[] = {
    {"allod_heap_new", "allod_heap_malloc", "allod_free", "allod_heap_destroy"},
    {"mi_heap_new", "mi_heap_malloc", "mi_free", "mi_heap_destroy"},
};

struct Heap {
  void* (*make)();
  void* (*take)(void* heap, std::size_t bytes);
  void (*give)(void* block);
  void (*end)(void* heap);
  void* heap;

  void* allocate(std::size_t bytes) { return take(heap, bytes); }
  void deallocate(void* block, std::size_t) { give(block); }
};
template <class F>
F find(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
}
// False when the allocator has no heaps: its malloc and free take their place.
bool find_heap(Heap& heap) {
  heap = {nullptr, [](void*, std::size_t bytes) { return std::malloc(bytes); }, std::free, nullptr,
          nullptr};
  for (const Names& names : kNames) {
    if (dlsym(RTLD_DEFAULT, names.make) == nullptr) continue;
    heap = {find<void* (*)()>(names.make), find<void* (*)(void*, std::size_t)>(names.take),
            find<void (*)(void*)>(names.give), find<void (*)(void*)>(names.end), nullptr};
    return true;
  }
  return false;
}

struct Resource {
  std::pmr::memory_resource& memory;

  void* allocate(std::size_t bytes) { return memory.allocate(bytes); }
  void deallocate(void* block, std::size_t bytes) { memory.deallocate(block, bytes); }
};

// Sizes of 16 to 512 bytes; every block carries a byte that is looked at when it goes.
template <class Arena>
[[gnu::noinline]] std::uint64_t replace(Arena arena, std::uint64_t ops,
                                        const std::uint16_t* sizes) {
  static bench::Block blocks[kLive];
  bench::Random random(g_seed);
  std::uint64_t sum = 0;
  const auto drop = [&](bench::Block& block) {
    if (block.at == nullptr) return;
    sum += bench::verify(block);
    arena.deallocate(block.at, block.size);
    block.at = nullptr;
  };
  for (std::uint64_t i = 0; i < ops; ++i) {
    bench::Block& block = blocks[random.below(kLive)];
    drop(block);
    const std::uint32_t size = sizes[i % kTableSize];
    block = {static_cast<unsigned char*>(arena.allocate(size)), size,
             static_cast<std::uint32_t>(i)};
    if (block.at == nullptr) bench::die("no memory");
    bench::touch(block);
  }
  for (bench::Block& block : blocks) drop(block);
  return sum;
}

template <class Arena>
std::uint64_t measure(const char* name, Arena arena, std::uint64_t ops,
                      const std::uint16_t* sizes) {
  std::uint64_t sum = replace(arena, ops / 10 + 1, sizes);
  g_workload.start();
  const std::uint64_t before = bench::now();
  sum = bench::mix(sum, replace(arena, ops, sizes));
  const std::uint64_t spent = bench::now() - before;
  g_workload.stop();
  g_workload.point(name, static_cast<double>(spent) / static_cast<double>(ops));
  return sum;
}

// Fills a heap, and frees its blocks one by one or, where there are heaps, all at once.
double fill_and_end(Heap heap, bool at_once, void** blocks) {
  double spent = 0;
  for (std::uint64_t round = 0; round < g_rounds; ++round) {
    if (heap.make != nullptr) heap.heap = heap.make();
    for (std::uint64_t i = 0; i < g_blocks; ++i) {
      auto* const block = static_cast<unsigned char*>(heap.allocate(64));
      if (block == nullptr) bench::die("no memory");
      bench::write_byte(block, i);
      blocks[i] = block;
    }
    g_workload.start();
    const std::uint64_t before = bench::now();
    if (!at_once) {
      for (std::uint64_t i = 0; i < g_blocks; ++i) heap.give(blocks[i]);
    }
    if (heap.end != nullptr && at_once) heap.end(heap.heap);
    spent += static_cast<double>(bench::now() - before);
    g_workload.stop();
    if (heap.end != nullptr && !at_once) heap.end(heap.heap);
  }
  return spent / static_cast<double>(g_rounds);
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  const std::uint16_t* sizes = bench::size_table(kTableSize, 16, 512, g_seed);
  Heap heap;
  const bool has_heaps = find_heap(heap);
  if (has_heaps) heap.heap = heap.make();
  std::uint64_t sum = measure("replace in a heap", heap, g_ops, sizes);
  if (has_heaps) heap.end(heap.heap);
  {
    std::pmr::unsynchronized_pool_resource pool;
    sum = bench::mix(sum, measure("in a pool resource", Resource{pool}, g_ops, sizes));
  }
  // It never reuses what is freed: as many blocks as it can be expected to hold.
  {
    std::pmr::monotonic_buffer_resource buffer;
    const std::uint64_t ops = g_ops < 1'000'000 ? g_ops : 1'000'000;
    sum = bench::mix(sum, measure("in a monotonic resource", Resource{buffer}, ops, sizes));
  }
  void** const blocks = bench::map_array<void*>(g_blocks);
  const double one_by_one = fill_and_end(heap, false, blocks);
  g_workload.point("free one by one, each block", one_by_one / static_cast<double>(g_blocks));
  if (has_heaps) {
    const double at_once = fill_and_end(heap, true, blocks);
    g_workload.figure("one by one, against all at once", one_by_one / at_once, "times", "more");
  }
  g_workload.report(2 * g_ops, sum);
}

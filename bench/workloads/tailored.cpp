// A heap that was composed for the program, beside the standard's pools and the malloc of the
// process: objects of three sizes that the compiler knows, replaced at random among many, or made
// and destroyed in batches. The pools and the composed heaps are the same under every malloc.
#include <allod.hpp>
#include <memory_resource>

#include "harness.hpp"

namespace {

constexpr std::size_t kSmall = 32;
constexpr std::size_t kMiddle = 64;
constexpr std::size_t kLarge = 256;
constexpr std::uint64_t kKinds = 4;    // of heaps
constexpr std::uint64_t kRounds = 10;  // each kind has its turn in each

std::uint64_t g_ops = 20'000'000;
std::uint64_t g_objects = 1'000;
std::uint64_t g_batch = 100;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"ops", &g_ops, 1'000, 1'000'000'000'000, "objects that each kind of heap makes, both ways"},
    {"objects", &g_objects, 1, 10'000'000,
     "objects of each size that live at a time, in replacement"},
    {"batch", &g_batch, 1, 1'000'000, "objects of a batch"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the order"},
};
bench::Workload g_workload("tailored", "a heap composed for the program", kParameters);

struct ArenaParts : allod::Parts {
  using Sizes = allod::FixedClasses<kSmall, kMiddle, kLarge>;
};
struct HugeParts : ArenaParts {
  using Pages = allod::TransparentHuge<allod::SystemPages<std::size_t{2} << 20>>;
};

template <class Parts>
struct Composed {
  allod::Tailored<Parts> heap;
  template <std::size_t kSize>
  [[gnu::always_inline]] void* make() {
    return heap.template allocate<kSize>();
  }
  template <std::size_t kSize>
  [[gnu::always_inline]] void destroy(void* object) {
    heap.template deallocate<kSize>(object);
  }
};
template <class Resource>
struct Standard {
  Resource resource;
  template <std::size_t kSize>
  [[gnu::always_inline]] void* make() {
    return resource.allocate(kSize, 16);
  }
  template <std::size_t kSize>
  [[gnu::always_inline]] void destroy(void* object) {
    resource.deallocate(object, kSize, 16);
  }
};
struct Process {
  template <std::size_t kSize>
  [[gnu::always_inline]] void* make() {
    return std::malloc(kSize);
  }
  template <std::size_t kSize>
  [[gnu::always_inline]] void destroy(void* object) {
    std::free(object);
  }
};

unsigned char** g_slots[3];  // by size
unsigned char** g_objects_of_batch;

template <std::size_t kSize, class Heap>
[[gnu::always_inline]] inline unsigned char* make(Heap& heap, std::uint64_t value) {
  void* const object = heap.template make<kSize>();
  if (object == nullptr) [[unlikely]] {
    bench::die("a heap refused");
  }
  bench::write_byte(static_cast<unsigned char*>(object), value);
  return static_cast<unsigned char*>(object);
}
template <std::size_t kSize, class Heap>
[[gnu::always_inline]] inline std::uint64_t destroy(Heap& heap, unsigned char* object) {
  const std::uint64_t value = bench::read_byte(object);
  heap.template destroy<kSize>(object);
  return value;
}
template <std::size_t kSize, class Heap>
[[gnu::always_inline]] inline std::uint64_t replace_one(Heap& heap, unsigned char*& slot,
                                                        std::uint64_t value) {
  const std::uint64_t sum = destroy<kSize>(heap, slot);
  slot = make<kSize>(heap, value);
  return sum;
}

// Each part of the program knows the size of its objects.
template <class Heap>
[[gnu::noinline]] std::uint64_t replace(Heap& heap, bench::Random& random, std::uint64_t ops) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_objects; ++i) {
    g_slots[0][i] = make<kSmall>(heap, i);
    g_slots[1][i] = make<kMiddle>(heap, i);
    g_slots[2][i] = make<kLarge>(heap, i);
  }
  for (std::uint64_t i = 0; i < ops; i += 3) {
    const std::uint64_t number = random.next();
    sum += replace_one<kSmall>(heap, g_slots[0][((number >> 32U) * g_objects) >> 32U], number);
    sum += replace_one<kMiddle>(heap, g_slots[1][((number & 0xFFFF'FFFFU) * g_objects) >> 32U],
                                number);
    sum += replace_one<kLarge>(
        heap, g_slots[2][((number >> 16U & 0xFFFF'FFFFU) * g_objects) >> 32U], number);
  }
  for (std::uint64_t i = 0; i < g_objects; ++i) {
    sum += destroy<kSmall>(heap, g_slots[0][i]) + destroy<kMiddle>(heap, g_slots[1][i]) +
           destroy<kLarge>(heap, g_slots[2][i]);
  }
  return sum;
}

template <class Heap>
[[gnu::noinline]] std::uint64_t batches(Heap& heap, std::uint64_t ops) {
  std::uint64_t sum = 0;
  for (std::uint64_t n = 0; n < ops / g_batch; ++n) {
    for (std::uint64_t i = 0; i < g_batch; ++i) {
      g_objects_of_batch[i] = make<kMiddle>(heap, i);
    }
    for (std::uint64_t i = 0; i < g_batch; ++i) {
      sum += destroy<kMiddle>(heap, g_objects_of_batch[i]);
    }
  }
  return sum;
}

struct Times {
  std::uint64_t replace = 0;
  std::uint64_t batches = 0;
};

template <class Heap>
std::uint64_t run(Heap& heap, Times& times, std::uint64_t seed, std::uint64_t ops) {
  bench::Random random(seed);
  const std::uint64_t start = bench::now();
  std::uint64_t sum = replace(heap, random, ops);
  const std::uint64_t middle = bench::now();
  sum += batches(heap, ops);
  times.replace += middle - start;
  times.batches += bench::now() - middle;
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  for (auto& slots : g_slots) {
    slots = bench::map_resident_array<unsigned char*>(g_objects);
  }
  g_objects_of_batch = bench::map_resident_array<unsigned char*>(g_batch);
  static Composed<ArenaParts> arena;
  static Composed<HugeParts> huge;
  static Standard<std::pmr::unsynchronized_pool_resource> pool;
  Process process;

  Times times[kKinds];
  std::uint64_t sum = 0;
  const std::uint64_t ops = g_ops / kRounds;
  for (std::uint64_t round = 0; round <= kRounds; ++round) {
    if (round == 1) {
      for (Times& time : times) {
        time = {};
      }
      g_workload.start();
    }
    sum = bench::mix(sum, run(arena, times[0], g_seed + round, ops));
    sum = bench::mix(sum, run(huge, times[1], g_seed + round, ops));
    sum = bench::mix(sum, run(pool, times[2], g_seed + round, ops));
    sum = bench::mix(sum, run(process, times[3], g_seed + round, ops));
  }
  g_workload.stop();

  const char* const names[][2] = {
      {"composed, replaced", "composed, in batches"},
      {"composed on huge pages, replaced", "composed on huge pages, in batches"},
      {"pmr pool, replaced", "pmr pool, in batches"},
      {"malloc, replaced", "malloc, in batches"}};
  const auto made = static_cast<double>(ops * kRounds);
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    g_workload.point(names[kind][0], static_cast<double>(times[kind].replace) / made);
    g_workload.point(names[kind][1], static_cast<double>(times[kind].batches) / made);
  }
  g_workload.report(2 * ops * kRounds * (kKinds), sum);
}

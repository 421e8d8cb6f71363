// Threads that allocate in each other's heaps and free from anywhere, while heaps come and go;
// every block is verified. load SEED THREADS OPERATIONS
#include <allod.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_{seed * 0x9e3779b97f4a7c15 + 1} {}
  std::size_t below(std::size_t bound) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ % bound;
  }

 private:
  std::uint64_t state_;
};

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "load: %s\n", what);
  std::abort();
}

// Its size and its address, at both ends.
struct Mark {
  std::size_t size;
  std::uintptr_t self;
};

void write_marks(void* block, std::size_t size) {
  const Mark mark{size, reinterpret_cast<std::uintptr_t>(block)};
  std::memcpy(block, &mark, sizeof mark);
  std::memcpy(static_cast<char*>(block) + size - sizeof mark, &mark, sizeof mark);
}
std::size_t verified(const void* block) {
  Mark first;
  Mark last;
  std::memcpy(&first, block, sizeof first);
  require(first.self == reinterpret_cast<std::uintptr_t>(block), "a block's start is lost");
  std::memcpy(&last, static_cast<const char*>(block) + first.size - sizeof last, sizeof last);
  require(std::memcmp(&first, &last, sizeof first) == 0, "a block's end is lost");
  return first.size;
}
void* allocate(allod_heap_t* heap, Random& random) {
  const std::size_t size = 2 * sizeof(Mark) + random.below(random.below(200) == 0 ? 300'000 : 400);
  void* const block = allod_heap_malloc(heap, size);
  if (block != nullptr) write_marks(block, size);
  return block;
}

constexpr std::size_t kSlots = 64;

// A heap that comes and goes. Others take blocks out of its slots and free them.
struct Station {
  std::atomic<void*> slots[kSlots] = {};
  std::atomic<int> visitors{0};
};

struct World {
  std::vector<allod_heap_t*> shared;  // the last two in buffers, that may be full
  std::vector<Station> stations;
};

bool is_in_buffer(const World& world, const allod_heap_t* heap) {
  return heap == world.shared.back() || heap == world.shared.end()[-2];
}
allod_heap_t* new_heap(bool hardened) {
  allod_heap_options_t options{};
  options.struct_size = sizeof options;
  options.hardened = hardened ? 1 : 0;
  return allod_heap_new_ex(&options);
}
allod_heap_t* heap_in(unsigned char* memory, std::size_t bytes) {
  allod_heap_options_t options{};
  options.struct_size = sizeof options;
  options.memory = memory;
  options.memory_bytes = bytes;
  return allod_heap_new_ex(&options);
}

void visit(Station& station, Random& random) {
  ++station.visitors;
  if (void* const block = station.slots[random.below(kSlots)].exchange(nullptr)) {
    verified(block);
    allod_free(block);
  }
  --station.visitors;
}

// Ends a heap in one way or the other and begins a new one.
allod_heap_t* renew(allod_heap_t* heap, Station& station, Random& random) {
  std::vector<void*> left;
  for (std::atomic<void*>& slot : station.slots) {
    if (void* const block = slot.exchange(nullptr)) left.push_back(block);
  }
  // A visitor may still hold one.
  while (station.visitors.load() != 0) std::this_thread::yield();
  if (random.below(2) == 0) {
    allod_heap_destroy(heap);
  } else {
    allod_heap_delete(heap);
    for (void* const block : left) verified(block);
    for (void* const block : left) allod_free(block);
  }
  return new_heap(random.below(2) == 0);
}

void work(World& world, std::size_t self, std::uint64_t seed, std::size_t operations) {
  Random random{seed};
  Station& station = world.stations[self];
  allod_heap_t* own = new_heap(self % 2 == 1);
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < operations; ++i) {
    allod_heap_t* const heap = world.shared[random.below(world.shared.size())];
    switch (random.below(8)) {
      case 0:
      case 1:
        if (void* const block = allocate(heap, random)) {
          blocks.push_back(block);
        } else {
          require(is_in_buffer(world, heap), "no memory");
        }
        break;
      case 2:
        if (void* const old = station.slots[random.below(kSlots)].exchange(allocate(own, random))) {
          verified(old);
          allod_heap_free(own, old);
        }
        break;
      case 3:
        visit(world.stations[random.below(world.stations.size())], random);
        break;
      case 4:
        if (random.below(200) == 0) own = renew(own, station, random);
        if (random.below(500) == 0) allod_heap_collect(heap);
        if (random.below(2000) == 0) {
          std::size_t told = 0;
          const auto count = [](void*, size_t, void* context) {
            return ++*static_cast<std::size_t*>(context) > 100'000 ? 1 : 0;
          };
          require(allod_heap_walk(heap, count, &told) >= 0, "no memory");
        }
        break;
      case 5:
        if (!blocks.empty()) {
          void*& block = blocks[random.below(blocks.size())];
          const std::size_t size = verified(block) / 2 + random.below(600) + 2 * sizeof(Mark);
          if (void* const moved = allod_realloc(block, size)) write_marks(block = moved, size);
        }
        break;
      default:
        if (!blocks.empty()) {
          std::swap(blocks[random.below(blocks.size())], blocks.back());
          verified(blocks.back());
          allod_free(blocks.back());
          blocks.pop_back();
        }
    }
  }
  for (void* const block : blocks) {
    verified(block);
    allod_free(block);
  }
  for (std::atomic<void*>& slot : station.slots) slot.store(nullptr);
  while (station.visitors.load() != 0) std::this_thread::yield();
  allod_heap_destroy(own);
}

}  // namespace

int main(int count, char** arguments) {
  require(count == 4, "load SEED THREADS OPERATIONS");
  const std::uint64_t seed = std::strtoull(arguments[1], nullptr, 10);
  const std::size_t threads = std::strtoull(arguments[2], nullptr, 10);
  const std::size_t operations = std::strtoull(arguments[3], nullptr, 10);
  World world{{}, std::vector<Station>(threads)};
  for (int i = 0; i < 4; ++i) world.shared.push_back(new_heap(i == 3));
  static unsigned char small[777'777];
  static unsigned char large[20 << 20];
  world.shared.push_back(heap_in(small + 33, sizeof small - 33));
  world.shared.push_back(heap_in(large, sizeof large));
  std::vector<std::thread> running;
  for (std::size_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] { work(world, t, seed * 1000 + t, operations); });
  }
  for (std::thread& thread : running) thread.join();
  allod_check();
  for (allod_heap_t* const heap : world.shared) {
    allod_heap_stats_t stats;
    allod_heap_stats_get(heap, &stats, sizeof stats);
    require(stats.live_blocks == 0, "blocks are left");
    allod_heap_destroy(heap);
  }
  allod_check();
  return 0;
}

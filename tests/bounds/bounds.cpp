// Which block an address lies in.
#include <allod.h>
#include <malloc.h>
#include <sys/mman.h>

#include <allod/api/bounds.hpp>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "cases.h"

namespace {

// Do blocks end with what was asked for, and are freed ones known at once?
bool is_exact() {
  void* const block = malloc(100);
  const bool exact = malloc_usable_size(block) == 100;
  free(block);
  return exact || strstr(getenv("TEST_LIBRARY"), "-debug") != nullptr;
}

struct Found {
  char* start;
  std::size_t size;
  bool is_there;
};
Found find(const void* address) {
  void* start = nullptr;
  std::size_t size = 0;
  const bool is_there = allod_bounds(hidden(const_cast<void*>(address)), &start, &size) != 0;
  return {static_cast<char*>(start), size, is_there};
}
void must_find(const char* block, std::size_t size, std::size_t offset) {
  const Found found = find(block + offset);
  CHECK(found.is_there, "nothing %zu bytes into a block of %zu", offset, size);
  CHECK(found.start == block, "%zu bytes into a block of %zu", offset, size);
  const bool is_right = is_exact() ? found.size == size : found.size >= size;
  CHECK(is_right, "a block of %zu bytes has %zu", size, found.size);
}
void must_not_find(const void* address) {
  void* start = &start;
  std::size_t size = 77;
  CHECK(allod_bounds(address, &start, &size) == 0, "%p", address);
  CHECK(start == &start && size == 77, "something was written for %p", address);
  CHECK(allod_room(address, 1234) == 1234, "no room at %p", address);
}

CASE(a_block_is_found_by_every_address_in_it) {
  enum { kSizes = 1024 };
  std::size_t sizes[kSizes];
  const std::size_t count = interesting_sizes(sizes, kSizes, 12 * MIB);
  std::vector<char*> blocks;
  for (std::size_t i = 0; i < count; ++i) blocks.push_back(static_cast<char*>(obtain(sizes[i])));
  for (std::size_t i = 0; i < count; ++i) {
    if (sizes[i] == 0) continue;
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, sizes[i] / 3, sizes[i] / 2,
                                     sizes[i] - sizes[i] / 7 - 1, sizes[i] - 1}) {
      if (offset < sizes[i]) must_find(blocks[i], sizes[i], offset);
    }
  }
  for (char* block : blocks) free(block);
}

CASE(room_ends_with_the_block) {
  for (const std::size_t size : {24, 100, 5000, 700'000, 10 * MIB}) {
    auto* const block = static_cast<char*>(obtain(size));
    const std::size_t all = find(block).size;
    CHECK(allod_room(block, all) == all && allod_room(block, all + 1) == all, "%zu", size);
    CHECK(allod_room(block + 7, SIZE_MAX) == all - 7, "%zu", size);
    CHECK(allod_room(block + all - 1, 2) == 1, "%zu", size);
    free(block);
  }
}

// Whether a place was used before, never, or lies behind the last: a copy that begins there is not
// to reach a block that is in use.
CASE(room_where_no_block_is_ends_before_the_next) {
  constexpr std::uintptr_t kSlice = 64 * KIB;
  std::vector<char*> blocks;
  for (int i = 0; i < 60; ++i) blocks.push_back(static_cast<char*>(obtain(1000)));
  for (std::size_t i = 0; i < blocks.size(); i += 2) free(blocks[i]);
  allod_collect(0);
  auto* const from =
      reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(blocks[31]) & -kSlice);
  char* next = from + kSlice;
  std::size_t seen = 0;
  for (char* at = next - 16; at >= from; at -= 16) {
    if (const Found found = find(at); found.is_there) {
      next = found.start;
    } else {
      ++seen;
      CHECK(allod_room(at, SIZE_MAX) <= static_cast<std::size_t>(next - at), "at %p", at);
    }
  }
  CHECK(seen > 0, "every place is in use");
  for (std::size_t i = 1; i < blocks.size(); i += 2) free(blocks[i]);
}

CASE(what_is_no_block_is_not_found) {
  static char fixed[100];
  char local[100];
  void* const mapped =
      mmap(nullptr, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = 33;
  for (const void* address : {static_cast<const void*>(fixed), static_cast<const void*>(local),
                              const_cast<const void*>(mapped),
                              static_cast<const void*>(static_cast<char*>(mapped) + 70000),
                              reinterpret_cast<const void*>(&must_find)}) {
    must_not_find(address);
  }
  for (const std::uintptr_t number :
       {std::uintptr_t{0}, std::uintptr_t{1}, std::uintptr_t{0x10000}, std::uintptr_t{1} << 46,
        std::uintptr_t{0x7ffffffff000}, std::uintptr_t{1} << 63, ~std::uintptr_t{0}}) {
    must_not_find(reinterpret_cast<const void*>(number));
  }
  CHECK(errno == 33, "errno is %d", errno);
}

CASE(either_result_may_be_left_out) {
  void* const block = obtain(50);
  void* start = nullptr;
  std::size_t size = 0;
  CHECK(allod_bounds(block, nullptr, nullptr) == 1, "neither");
  CHECK(allod_bounds(block, &start, nullptr) == 1 && start == block, "start");
  CHECK(allod_bounds(block, nullptr, &size) == 1 && size >= 50, "size");
  free(block);
}

CASE(a_freed_block_is_not_found) {
  for (const std::size_t size : {16, 100, 5000, 40'000, 700'000, 10 * MIB}) {
    std::vector<char*> blocks;
    for (int i = 0; i < 20; ++i) blocks.push_back(static_cast<char*>(obtain(size)));
    for (char* block : blocks) free(block);
    // Until then, the default library has some at hand.
    if (!is_exact()) allod_collect(0);
    for (char* block : blocks) {
      CHECK(!find(block).is_there && !find(block + size / 2).is_there, "size %zu", size);
    }
  }
}

CASE(the_size_follows_realloc) {
  auto* block = static_cast<char*>(obtain(10));
  for (const std::size_t size : {20, 100, 90, 5000, 100'000, 6 * MIB, 9 * MIB, 5 * MIB, 300}) {
    block = static_cast<char*>(hidden(realloc(block, size)));
    CHECK(block != nullptr, "realloc to %zu", size);
    must_find(block, size, 0);
    must_find(block, size, size - 1);
  }
  free(block);
}

CASE(blocks_of_heaps_are_found) {
  static char memory[4 * MIB];
  for (int kind = 0; kind < 3; ++kind) {
    allod_heap_options_t options{};
    options.struct_size = sizeof options;
    options.hardened = kind == 1 ? 1 : 0;
    if (kind == 2) {
      options.memory = memory;
      options.memory_bytes = sizeof memory;
    }
    allod_heap_t* const heap = allod_heap_new_ex(&options);
    CHECK(heap != nullptr, "heap %d", kind);
    const std::size_t sizes[] = {1, 16, 100, 3000, 70'000, 600'000, 6 * MIB + 5};
    for (const std::size_t size : std::span{sizes, kind == 2 ? 6U : 7U}) {
      auto* const block = static_cast<char*>(allod_heap_malloc(heap, size));
      CHECK(block != nullptr, "heap %d, size %zu", kind, size);
      for (const std::size_t offset : {std::size_t{0}, size / 2, size - 1}) {
        const Found found = find(block + offset);
        CHECK(found.is_there && found.start == block, "heap %d, size %zu", kind, size);
        CHECK(kind == 1 ? found.size == size : found.size >= size, "heap %d: %zu is %zu", kind,
              size, found.size);
      }
      allod_heap_free(heap, block);
      CHECK(!find(block).is_there, "heap %d, size %zu, freed", kind, size);
    }
    allod_heap_destroy(heap);
  }
}

// The slices at the ends of a buffer are the heap's in part only.
CASE(what_lies_beside_the_buffer_of_a_heap_is_in_no_block) {
  enum { kMargin = 100'000, kBytes = 200'000 };
  static char memory[kMargin + kBytes + kMargin];
  for (std::size_t shift = 0; shift < 64 * KIB; shift += 5003) {
    char* const buffer = memory + kMargin - shift;
    allod_heap_options_t options{};
    options.struct_size = sizeof options;
    options.memory = buffer;
    options.memory_bytes = kBytes;
    allod_heap_t* const heap = allod_heap_new_ex(&options);
    CHECK(heap != nullptr, "errno %d", errno);
    // Full, so that blocks lie at its very ends.
    for (std::size_t size = 3000; size > 0; size /= 2) {
      while (auto* const block = static_cast<char*>(allod_heap_malloc(heap, size))) {
        must_find(block, find(block).size, size - 1);
        CHECK(allod_room(block + 1, SIZE_MAX) < kBytes, "the block ends");
      }
    }
    for (const char* at = memory; at < memory + sizeof memory; at += 7) {
      if (at >= buffer && at < buffer + kBytes) continue;
      must_not_find(at);
      CHECK(allod_room(at, SIZE_MAX) == SIZE_MAX, "%td bytes from the buffer", at - buffer);
    }
    allod_heap_destroy(heap);
  }
}

CASE(a_block_of_no_bytes_has_none) {
  void* const block = malloc(hidden_size(0));
  const Found found = find(block);
  CHECK(found.is_there && found.start == block, "malloc(0)");
  CHECK(!is_exact() || found.size == 0, "malloc(0) has %zu bytes", found.size);
  free(block);
  CHECK(!is_exact() || !find(block).is_there, "free of malloc(0)");
}

CASE(in_cpp_it_is_a_span) {
  auto* const block = static_cast<std::byte*>(obtain(100));
  const auto found = allod::bounds(block + 50);
  CHECK(found.has_value() && found->data() == block && found->size() >= 100, "a span");
  CHECK(!allod::bounds(&block).has_value(), "nothing");
  free(block);
}

// A guarded block, when the test asks for them: exact in each library.
CASE(guarded_blocks_are_found) {
  auto* const block = static_cast<char*>(obtain(100));
  const Found found = find(block + 99);
  CHECK(found.is_there && found.start == block && found.size == 100, "%zu", found.size);
  CHECK(allod_room(block + 60, 41) == 40, "room");
  free(block);
  CHECK(!find(block).is_there && allod_room(block, 1) == 0, "freed");
}

// Whatever is asked, the answer agrees with what the program knows.
CASE(answers_agree_with_a_model) {
  const bool exact = is_exact();
  std::mt19937_64 random{4};
  std::map<char*, std::size_t> live;
  char* low = reinterpret_cast<char*>(UINTPTR_MAX);
  char* high = nullptr;
  for (int step = 0; step < 60'000; ++step) {
    if (random() % 2 == 0 || live.empty()) {
      const std::size_t size = 1 + (random() % 50 == 0 ? random() % 300'000 : random() % 600);
      auto* const block = static_cast<char*>(obtain(size));
      live[block] = size;
      if (block < low) low = block;
      if (block + size > high) high = block + size;
    } else {
      auto it = live.lower_bound(low + random() % static_cast<std::size_t>(high - low));
      if (it == live.end()) it = live.begin();
      free(it->first);
      live.erase(it);
    }
    // Near a block, and anywhere.
    auto near = live.lower_bound(low + random() % static_cast<std::size_t>(high - low));
    char* const base = near != live.end() ? near->first : low;
    char* const address = base + static_cast<std::ptrdiff_t>(random() % 2000) - 1000;
    const Found found = find(address);
    auto next = live.upper_bound(address);
    const bool has_before = next != live.begin();
    if (has_before) --next;
    const bool is_in = has_before && address < next->first + next->second;
    if (is_in) {
      CHECK(found.is_there && found.start == next->first, "a live block is not found");
      CHECK(exact ? found.size == next->second : found.size >= next->second, "size");
    } else if (found.is_there && found.start <= address && address < found.start + found.size) {
      // Freed and at hand, or rounded up, or somebody else's: it holds none of ours but its own.
      CHECK(!has_before || found.start == next->first || found.start >= next->first + next->second,
            "two blocks hold an address");
    }
  }
  for (const auto& [block, size] : live) free(block);
}

// Threads ask about their own blocks, each other's, and what has just gone.
CASE(threads_may_ask_while_others_free) {
  enum { kThreads = 4, kBlocks = 64 };
  static std::atomic<char*> shown[kThreads * kBlocks];
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < kThreads; ++number) {
    threads.emplace_back([number] {
      std::minstd_rand random{number + 1};
      char* own[kBlocks] = {};
      for (int step = 0; step < 30'000; ++step) {
        const std::size_t at = random() % kBlocks;
        free(own[at]);
        const std::size_t size = step % 97 == 0 ? 600'000 : 1 + random() % 3000;
        own[at] = static_cast<char*>(obtain(size));
        shown[number * kBlocks + at] = own[at];
        const Found found = find(own[at] + size / 2);
        CHECK(found.is_there && found.start == own[at] && found.size >= size, "size %zu", size);
        const char* const other = shown[random() % (kThreads * kBlocks)];
        if (other != nullptr) static_cast<void>(find(other + random() % 5000));
      }
      for (char* block : own) free(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The same where slabs themselves go: what described one describes another then, or a large block.
CASE(threads_may_ask_while_slabs_go) {
  enum { kAsking = 2, kFreeing = 2, kShown = 256, kRounds = 6000 };
  static std::atomic<char*> shown[kShown];
  static std::atomic<int> freeing{kFreeing};
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < kFreeing; ++number) {
    threads.emplace_back([number] {
      std::minstd_rand random{number + 1};
      std::vector<char*> own;
      for (int round = 0; round < kRounds; ++round) {
        // One size after the other, so that nothing else stays in their slabs.
        const std::size_t size = std::size_t{64} << random() % 14;
        for (std::size_t bytes = 0; bytes < 200 * KIB; bytes += size) {
          own.push_back(static_cast<char*>(obtain(size - random() % (size / 4))));
          shown[random() % kShown] = own.back();
        }
        for (char* block : own) free(block);
        own.clear();
        allod_collect(0);
      }
      --freeing;
    });
  }
  for (unsigned number = 0; number < kAsking; ++number) {
    threads.emplace_back([number] {
      std::minstd_rand random{number + 100};
      while (freeing != 0) {
        const char* const other = shown[random() % kShown];
        const std::size_t offset = random() % 4 == 0 ? random() % MIB : random() % 600;
        if (other != nullptr) static_cast<void>(find(other + offset));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The same in first-class heaps, where the memory itself goes, with its addresses, and others are
// guarded later. A hardened heap has what was asked for in the block, or beside it.
void ask_while_blocks_go(bool is_hardened, std::size_t size, std::size_t together, int rounds) {
  enum { kShown = 16 };
  static std::atomic<char*> shown[kShown];
  static std::atomic<bool> is_over;
  is_over = false;
  allod_heap_options_t options{};
  options.struct_size = sizeof options;
  options.hardened = is_hardened ? 1 : 0;
  allod_heap_t* const heap = allod_heap_new_ex(&options);
  CHECK(heap != nullptr, "errno %d", errno);
  std::thread changing{[&] {
    std::vector<char*> own(together);
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < together; ++i) {
        own[i] = static_cast<char*>(allod_heap_malloc(heap, size));
        CHECK(own[i] != nullptr, "%zu bytes", size);
        shown[i % kShown] = own[i];
        const Found found = find(own[i]);
        CHECK(found.is_there && found.start == own[i], "a live block of %zu bytes", size);
        CHECK(is_hardened ? found.size == size : found.size >= size, "%zu is %zu", size,
              found.size);
      }
      for (char* block : own) allod_heap_free(heap, block);
      // Nothing has so much: free regions go before that is said.
      if (together > 1) CHECK(malloc(hidden_size(std::size_t{1} << 46)) == nullptr, "64 TiB");
    }
    is_over = true;
  }};
  std::size_t asked = 0;
  while (!is_over) {
    const char* const block = shown[asked++ % (together == 1 ? 1 : kShown)];
    if (block != nullptr) static_cast<void>(find(block + asked % size));
    if (block != nullptr) static_cast<void>(allod_room(block + asked % size, 100));
  }
  changing.join();
  allod_heap_destroy(heap);
}
CASE(threads_may_ask_while_large_blocks_of_heaps_go) {
  for (const bool is_hardened : {false, true}) ask_while_blocks_go(is_hardened, 100 * MIB, 1, 4000);
}
CASE(threads_may_ask_while_slabs_of_heaps_go) {
  for (const bool is_hardened : {false, true}) {
    for (const std::size_t size : {100, 3'000'007}) {
      ask_while_blocks_go(is_hardened, size, size < 1000 ? 1000 : 40, 60);
    }
  }
}

}  // namespace

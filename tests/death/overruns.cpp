// Writes where the program must not write, and deletes of the wrong kind: what the hardened library
// sees when the block comes back.
#include <errno.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <thread>

#include "functions.h"

// Of the library, if it is there.
extern "C" [[gnu::weak]] int allod_profile_start(std::size_t interval);
extern "C" [[gnu::weak]] long allod_leaks_check();
extern "C" [[gnu::weak]] void* allod_heap_new();
extern "C" [[gnu::weak]] void* allod_heap_realloc(void* heap, void* block, std::size_t size);

namespace {

std::size_t size() { return parameter("TEST_SIZE"); }
std::size_t offset() { return parameter("TEST_OFFSET"); }

void flip(void* block, std::ptrdiff_t at) {
  volatile unsigned char* const byte = static_cast<unsigned char*>(hidden(block)) + at;
  *byte = *byte ^ 1;
}

// As many frees as a block waits for in quarantine, and more.
void free_many() {
  for (int i = 0; i < 200; ++i) misusing_function(allocating_function(100));
}

}  // namespace

extern "C" {

OWN_FRAME void* using_new(std::size_t bytes) { return hidden(::operator new(bytes)); }
OWN_FRAME void* using_array_new(std::size_t bytes) { return hidden(::operator new[](bytes)); }
OWN_FRAME void using_delete(void* block) {
  ::operator delete(block);
  KEEP_FRAME();
}
OWN_FRAME void using_array_delete(void* block) {
  ::operator delete[](block);
  KEEP_FRAME();
}
OWN_FRAME void asking_for_usable_size(void* block) {
  CHECK(malloc_usable_size(block) == size(), "usable size");
  KEEP_FRAME();
}

}  // extern "C"

CASE(write_behind_a_block) {
  void* block = tell_block(allocating_function(size()));
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
  misusing_function(block);
  survive();
}

// Alignments leave much room behind what was asked for.
CASE(write_behind_an_aligned_block) {
  void* block = aligned_alloc(parameter("TEST_ALIGNMENT"), size());
  CHECK(block != nullptr, "no block");
  CHECK(malloc_usable_size(block) == size(), "more than was asked for");
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
  freeing_function(block);
  survive();
}

CASE(write_far_behind_an_aligned_block) {
  void* block = tell_block(aligned_alloc(parameter("TEST_ALIGNMENT"), size()));
  CHECK(block != nullptr, "no block");
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
}

CASE(write_behind_a_block_that_is_resized) {
  void* block = tell_block(allocating_function(size()));
  flip(block, static_cast<std::ptrdiff_t>(size()));
  freeing_function(misusing_realloc(block, 3 * size()));
  survive();
}

// Where it is, if its class or its pages allow.
CASE(write_behind_a_block_that_has_changed_a_little) {
  void* block = allocating_function(size() - 16);
  std::memset(block, 1, size() - 16);
  for (const std::size_t next : {size() + 16, size() - 8, size()}) {
    block = std::realloc(block, next);
    CHECK(block != nullptr && malloc_usable_size(block) == next, "%zu bytes", next);
    const auto* byte = static_cast<unsigned char*>(block);
    CHECK(byte[0] == 1 && byte[size() - 17] == 1, "content");
    std::memset(block, 1, next);
  }
  tell_block(block);
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
  misusing_function(block);
  survive();
}

CASE(write_behind_a_block_that_is_asked_about) {
  void* block = tell_block(allocating_function(size()));
  flip(block, static_cast<std::ptrdiff_t>(size()));
  asking_for_usable_size(block);
  flip(block, static_cast<std::ptrdiff_t>(size()));
  freeing_function(block);
  survive();
}

// The block before, in the same slab, is the one that is damaged.
CASE(write_before_a_block) {
  enum { kBlocks = 256 };
  static char* blocks[kBlocks];
  for (char*& block : blocks) block = static_cast<char*>(allocating_function(size()));
  for (char* first : blocks) {
    for (char* second : blocks) {
      if (second != first + parameter("TEST_CLASS")) continue;
      tell_block(first);
      flip(second, -static_cast<std::ptrdiff_t>(offset()));
      misusing_function(second);
      flip(first, static_cast<std::ptrdiff_t>(parameter("TEST_CLASS") - offset()));
      freeing_function(first);
      return survive();
    }
  }
  CHECK(false, "no two blocks are neighbours");
}

CASE(write_behind_a_block_until_the_end) {
  void* block = tell_block(allocating_function(size()));
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
}

// By every function that gives a block, and from there to any size.
CASE(writes_up_to_the_usable_size) {
  const auto use = [](void* block, std::size_t asked_for) {
    const std::size_t usable = malloc_usable_size(block);
    CHECK(block != nullptr && usable >= asked_for, "%zu of %zu bytes", usable, asked_for);
    std::memset(hidden(block), 0x5a, usable);
    return block;
  };
  for (std::size_t bytes = 1; bytes < 6 * MIB; bytes = bytes * 3 + 1) {
    std::free(use(std::malloc(bytes), bytes));
    std::free(use(std::calloc(bytes, 1), bytes));
    for (const std::size_t alignment : {16, 64, 4096, 1 << 17}) {
      std::free(use(aligned_alloc(alignment, bytes), bytes));
    }
    ::operator delete(use(::operator new(bytes), bytes));
    void* block = use(std::malloc(bytes / 2), bytes / 2);
    for (const std::size_t next : {bytes, 2 * bytes, bytes / 3 + 1}) {
      block = use(std::realloc(block, next), next);
    }
    std::free(block);
  }
  std::free(use(std::malloc(0), 0));
  survive();
}

CASE(write_after_free) {
  void* block = tell_block(allocating_function(size()));
  freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(offset()));
  free_many();
  survive();
}

CASE(write_after_free_until_the_end) {
  void* block = tell_block(allocating_function(size()));
  freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(offset()));
}

CASE(double_free_after_the_quarantine) {
  void* block = tell_block(allocating_function(size()));
  freeing_function(block);
  for (int i = 0; i < 200; ++i) freeing_function(allocating_function(3000));
  misusing_function(block);
  survive();
}

// These end by a signal.
CASE(write_to_a_block_of_no_bytes) { flip(allocating_function(0), 0); }
// Of the places for these, some are in use, one behind the other.
CASE(write_to_one_more_block_of_no_bytes) {
  constexpr std::size_t kPlaces = std::size_t{1} << 20;
  std::size_t i = 0;
  for (; i < parameter("TEST_KEPT"); ++i) hidden(malloc(0));
  for (; i < kPlaces; ++i) free(hidden(malloc(0)));
  void* block = tell_block(allocating_function(0));
  flip(block, 0);
  misusing_function(block);
}
CASE(write_to_a_large_block_after_free) {
  void* block = allocating_function(size());
  freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(offset()));
}
// Nearly all of it is in memory.
CASE(write_to_a_used_large_block_after_free) {
  void* block = tell_block(allocating_function(size()));
  std::memset(block, 1, size());
  freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(offset()));
}
CASE(write_far_behind_a_large_block) {
  flip(allocating_function(size()), static_cast<std::ptrdiff_t>(size() + offset()));
}

// The size looks like about that of the block to whoever counts slices in 32 bits.
CASE(write_behind_a_large_block_after_realloc_has_failed) {
  void* block = tell_block(allocating_function(size()));
  const std::size_t impossible = (std::size_t{1} << 48) + size() + 60000;
  CHECK(realloc(hidden(block), hidden_size(impossible)) == nullptr, "realloc");
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
}

CASE(double_free_of_a_block_of_no_bytes) {
  void* block = tell_block(allocating_function(0));
  freeing_function(block);
  misusing_function(block);
  survive();
}

CASE(new_and_free) {
  misusing_function(tell_block(using_new(size())));
  survive();
}
CASE(new_and_realloc) {
  static_cast<void>(misusing_realloc(tell_block(using_new(size())), size() + 1));
  survive();
}
CASE(new_and_realloc_and_delete) {
  void* const block = using_new(size());
  CHECK(realloc(hidden(block), size() + 1) == nullptr && errno == ENOMEM, "realloc");
  ::operator delete(block);
}
CASE(new_and_heap_realloc_and_delete) {
  void* const block = using_new(size());
  void* const moved = allod_heap_realloc(allod_heap_new(), block, size() + 1);
  CHECK(moved == nullptr && errno == ENOMEM, "realloc");
  ::operator delete(block);
}
CASE(usable_sizes_are_those_asked_for) {
  for (std::size_t alignment = 8; alignment <= 8192; alignment *= 2) {
    for (std::size_t bytes = 1; bytes < 3000; bytes += bytes < 300 ? 1 : 67) {
      void* const block = alignment == 8 ? malloc(bytes) : aligned_alloc(alignment, bytes);
      CHECK(malloc_usable_size(block) == bytes, "%zu for %zu aligned to %zu",
            malloc_usable_size(block), bytes, alignment);
      free(block);
    }
  }
}
CASE(malloc_and_delete) {
  using_delete(tell_block(allocating_function(size())));
  survive();
}
CASE(new_and_array_delete) {
  using_array_delete(tell_block(using_new(size())));
  survive();
}
CASE(array_new_and_delete) {
  using_delete(tell_block(using_array_new(size())));
  survive();
}

// Until there is a fault.
CASE(write_on_behind_a_block) {
  void* const block = tell_block(allocating_function(size()));
  constexpr std::ptrdiff_t kFar = 4 << 20;
  for (std::ptrdiff_t i = 0; i < kFar; ++i) flip(block, static_cast<std::ptrdiff_t>(size()) + i);
}
// Of many slabs those that the block's slab may run into.
CASE(write_on_behind_slabs) {
  constexpr int kBlocks = 2000;
  static void* blocks[kBlocks];
  for (void*& block : blocks) block = allocating_function(size());
  // All others are behind it.
  void* const first = *std::min_element(blocks, blocks + kBlocks, std::less<>{});
  constexpr std::ptrdiff_t kFar = 4 << 20;
  for (std::ptrdiff_t i = 0; i < kFar; ++i) flip(first, static_cast<std::ptrdiff_t>(size()) + i);
}
// Slabs come and go, with guards and without, and all blocks can be used throughout.
CASE(slabs_come_and_go) {
  constexpr int kBlocks = 3000;
  static char* blocks[kBlocks];
  for (std::size_t round = 0; round < 12; ++round) {
    const std::size_t bytes = std::size_t{24} << round;
    const int count = bytes > 8192 ? kBlocks / 30 : kBlocks;
    for (int i = 0; i < count; ++i) {
      blocks[i] = static_cast<char*>(allocating_function(bytes));
      for (std::size_t at = 0; at < bytes; at += 512) blocks[i][at] = 1;
      blocks[i][bytes - 1] = 1;
    }
    for (int i = 0; i < count; ++i) freeing_function(blocks[i]);
  }
  survive();
}

namespace {

void use_all_of(void* block, std::size_t bytes) {
  auto* const byte = static_cast<unsigned char*>(block);
  for (std::size_t at = 0; at < bytes; at += 512) byte[at] = 1;
  byte[bytes - 1] = 1;
}
void use_blocks_from(std::size_t least, int steps, std::uint32_t seed) {
  constexpr int kBlocks = 24;
  struct {
    void* block;
    std::size_t bytes;
  } held[kBlocks] = {};
  for (int step = 0; step < steps; ++step) {
    seed = seed * 1'664'525 + 1'013'904'223;
    auto& [block, bytes] = held[(seed >> 8) % kBlocks];
    const std::size_t size = (least << (seed >> 14) % 6) + (seed >> 17) % 30'000;
    switch ((seed >> 24) % 4) {
      case 0:
        block = hidden(std::realloc(block, size));
        break;
      case 1:
        freeing_function(block);
        block = std::aligned_alloc(std::size_t{4096} << (seed >> 28), size / 65536 * 65536);
        block = hidden(block != nullptr ? block : allocating_function(size));
        break;
      case 2:
        freeing_function(block);
        block = hidden(std::calloc(1, size));
        for (std::size_t at = 0; at < size; at += 512) {
          CHECK(static_cast<unsigned char*>(block)[at] == 0, "calloc gives zeros");
        }
        break;
      default:
        freeing_function(block);
        block = allocating_function(size);
    }
    CHECK(block != nullptr, "memory");
    bytes = malloc_usable_size(block);
    use_all_of(block, bytes);
    if (step % 200 == 0) malloc_trim(0);
  }
  for (auto& each : held) freeing_function(each.block);
}
void use_large_blocks(std::uint32_t seed) {
  use_blocks_from(100'000, 1500, seed);
  use_blocks_from(700'000, 60, seed);
}

}  // namespace

// However a large block comes, all of it can be used, and nothing keeps it closed.
CASE(large_blocks_come_and_go) {
  use_large_blocks(1);
  std::thread{use_large_blocks, 2}.join();
  const pid_t child = fork();
  if (child == 0) {
    use_large_blocks(3);
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended well");
  use_large_blocks(4);
  survive();
}
// Where the system refuses to close pages, some of the others may have been closed before.
CASE(large_blocks_that_are_locked_in_part) {
  for (const std::size_t bytes : {std::size_t{300'000}, std::size_t{10} << 20}) {
    for (int i = 0; i < 20; ++i) {
      auto* const block = static_cast<char*>(allocating_function(bytes));
      use_all_of(block, bytes);
      const bool is_locked = i < 4 && mlock(block + 65'536, 4096) == 0;
      tell("locked", is_locked ? 1 : 0);
      freeing_function(block);
    }
  }
  survive();
}
// One of many, long after its time in quarantine; perhaps nearly all of it is in memory.
CASE(write_long_after_the_free_of_a_large_block) {
  constexpr int kBlocks = 64;
  const bool is_used = parameter("TEST_USED") != 0;
  static void* blocks[kBlocks];
  for (void*& block : blocks) block = allocating_function(size());
  if (is_used) std::memset(blocks[kBlocks / 2], 1, size());
  freeing_function(tell_block(blocks[kBlocks / 2]));
  free_many();
  flip(blocks[kBlocks / 2], static_cast<std::ptrdiff_t>(offset()));
}
// The heap keeps those above 4 MiB, once it has a helper that gives them back.
CASE(touch_a_huge_block_long_after_its_free) {
  for (int i = 0; i < 100; ++i) {
    void* const block = allocating_function(size());
    use_all_of(block, size());
    freeing_function(block);
  }
  void* const block = tell_block(allocating_function(size()));
  std::memset(block, 1, size());
  freeing_function(block);
  free_many();
  if (parameter("TEST_AGAIN") != 0) return freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(offset()));
}
// Large ones are not what the number of guards is limited for.
CASE(write_on_behind_slabs_after_large_blocks) {
  for (int i = 0; i < 300; ++i) freeing_function(allocating_function(300'000));
  write_on_behind_slabs();
}

namespace {

// A line of /proc/self/status, in KiB.
long kib_of(const char* name) {
  static char text[8192];
  FILE* const file = std::fopen("/proc/self/status", "r");
  CHECK(file != nullptr, "no status");
  text[std::fread(text, 1, sizeof text - 1, file)] = '\0';
  std::fclose(file);
  const char* const line = std::strstr(text, name);
  CHECK(line != nullptr, "%s", name);
  return std::strtol(line + std::strlen(name), nullptr, 10);
}

}  // namespace

// Closed pages have entries in page tables, whether they were ever touched or not.
CASE(free_of_a_huge_block_that_was_hardly_used) {
  constexpr std::size_t kBytes = std::size_t{8} << 30;
  const long before = kib_of("VmPTE:");
  for (int i = 0; i < 3; ++i) {
    void* const block = allocating_function(kBytes);
    CHECK(block != nullptr, "no addresses");
    flip(block, 100);
    freeing_function(block);
    CHECK(kib_of("VmPTE:") - before < 2048, "%ld KiB", kib_of("VmPTE:") - before);
  }
  survive();
}

// What waits in quarantine is bounded, also where it keeps its memory.
CASE(memory_of_large_blocks_in_quarantine) {
  constexpr std::size_t kBytes = 400'000;
  freeing_function(allocating_function(kBytes));
  const long before = kib_of("VmRSS:");
  for (int i = 0; i < 30; ++i) {
    void* const block = allocating_function(kBytes);
    use_all_of(block, kBytes);
    freeing_function(block);
  }
  malloc_trim(0);
  CHECK(kib_of("VmRSS:") - before < 2048, "%ld KiB", kib_of("VmRSS:") - before);
  survive();
}

namespace {

// Of pages that nobody has touched so far, mostly.
long faults() {
  struct rusage usage{};
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage");
  return usage.ru_minflt;
}
std::ptrdiff_t pages_in_memory(void* start, std::size_t bytes) {
  static unsigned char seen[std::size_t{64} << 8];
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t pages = bytes / page;
  CHECK(pages <= sizeof seen && mincore(start, pages * page, seen) == 0, "mincore");
  return std::count_if(seen, seen + pages, [](unsigned char it) { return (it & 1) != 0; });
}

}  // namespace

// A program that is done with blocks of one size, and goes on to the next one, needs no more memory
// than for a few sizes at a time. What waits in quarantine is of each of them 128 KiB.
CASE(sizes_one_after_the_other) {
  constexpr long kMostFaults = 450;
  const long before = faults();
  for (std::size_t bytes = 16; bytes <= 4000; bytes += bytes / 8) {
    for (int i = 0; i < 16'000; ++i) freeing_function(allocating_function(bytes));
  }
  CHECK(faults() - before < kMostFaults, "%ld faults", faults() - before);
  survive();
}

// Large blocks that are used again have the pages that they had, of which a part is used.
CASE(large_blocks_keep_their_pages) {
  constexpr long kRounds = 50;
  const std::size_t used = size() / parameter("TEST_SHARE");
  const auto use_one = [used] {
    void* const block = allocating_function(size());
    use_all_of(block, used);
    freeing_function(block);
  };
  for (int i = 0; i < 100; ++i) use_one();
  const long before = faults();
  for (long i = 0; i < kRounds; ++i) use_one();
  const long pages = static_cast<long>(used) / sysconf(_SC_PAGESIZE) * kRounds;
  CHECK(faults() - before < pages / 4, "%ld faults of %ld pages", faults() - before, pages);
  survive();
}

// Also where each block has another size, and an eighth of it is used.
CASE(huge_blocks_of_many_sizes_keep_their_pages) {
  constexpr std::size_t kShare = 8;
  constexpr int kBlocks = 10;
  void* held[kBlocks] = {};
  std::uint32_t random = 1;
  std::size_t used = 0;
  const auto replace_one = [&] {
    random = random * 1'664'525 + 1'013'904'223;
    void*& block = held[(random >> 8) % kBlocks];
    freeing_function(block);
    const std::size_t bytes = (std::size_t{5} << 20) + (random >> 4) % (std::size_t{12} << 20);
    block = allocating_function(bytes);
    use_all_of(block, bytes / kShare);
    used += bytes / kShare;
  };
  for (int i = 0; i < 200; ++i) replace_one();
  used = 0;
  const long before = faults();
  for (int i = 0; i < 200; ++i) replace_one();
  const long pages = static_cast<long>(used) / sysconf(_SC_PAGESIZE);
  CHECK(faults() - before < pages / 8, "%ld faults of %ld pages", faults() - before, pages);
  survive();
}

// Whoever wants zeros gets what is known to be zero, and nothing is written there.
CASE(zeros_of_large_blocks_that_are_used_again) {
  for (int i = 0; i < 50; ++i) {
    auto* const block = static_cast<unsigned char*>(hidden(std::calloc(1, size())));
    CHECK(block != nullptr && block[0] == 0 && block[size() - 1] == 0, "zeros");
    CHECK(pages_in_memory(block, size()) < 6, "%td pages", pages_in_memory(block, size()));
    freeing_function(block);
  }
  survive();
}

// And no more of them than were used.
CASE(large_blocks_get_no_pages_by_erasing) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kUsed = 910 * kPage;
  constexpr std::size_t kMore = 950 * kPage;  // of the same class
  const auto blocks = [](std::size_t bytes, std::size_t used) {
    for (int i = 0; i < 20; ++i) {
      void* const block = allocating_function(bytes);
      if (used != 0) use_all_of(block, used);
      freeing_function(block);
    }
  };
  blocks(kUsed, kUsed);
  blocks(kMore, 0);
  void* const block = allocating_function(kMore);
  const auto present = pages_in_memory(block, kMore);
  CHECK(present >= 900 && present <= 912, "%td pages", present);
  survive();
}

// Whatever pages of a block were written, nothing of it is left. Only those in memory are looked
// at, or all would be.
CASE(large_blocks_are_erased_page_by_page) {
  constexpr std::size_t kPage = 4096;
  static unsigned char in_memory[(8 << 20) / kPage];
  std::uint32_t random = 1;
  const auto draw = [&random](std::uint32_t bound) {
    random = random * 1'664'525 + 1'013'904'223;
    return (random >> 8) % bound;
  };
  const std::size_t pages = size() / kPage;
  for (std::size_t round = 0; round < 60; ++round) {
    auto* const block = static_cast<unsigned char*>(allocating_function(size()));
    CHECK(mincore(block, pages * kPage, in_memory) == 0, "mincore");
    for (std::size_t at = 0; at < pages * kPage; at += 512) {
      CHECK((in_memory[at / kPage] & 1) == 0 || block[at] == 0, "byte %zu", at);
    }
    // Runs of pages, few and long or many and short, near to each other or far.
    const std::uint32_t longest = std::uint32_t{1} << draw(8);
    const std::uint32_t farthest = std::uint32_t{1} << draw(8);
    for (std::size_t at = draw(farthest); at < pages;) {
      const std::size_t end = std::min(pages, at + 1 + draw(longest));
      std::memset(block + at * kPage, 0xa5, (end - at) * kPage);
      at = end + 1 + draw(farthest);
    }
    freeing_function(block);
    if (round % 4 == 0) free_many();
  }
  survive();
}

// The guard of a block lies behind what was asked for this time, more or less than the last time.
CASE(guards_follow_blocks_that_are_used_again) {
  constexpr int kBlocks = 12;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto can_be_read = [](const char* address) {
    static int ends[2];
    if (ends[1] == 0) CHECK(pipe(ends) == 0, "pipe");
    char byte;
    return write(ends[1], address, 1) == 1 && read(ends[0], &byte, 1) == 1;
  };
  void* held[kBlocks] = {};
  std::uint32_t random = 1;
  for (int step = 0; step < 600; ++step) {
    random = random * 1'664'525 + 1'013'904'223;
    void*& block = held[(random >> 8) % kBlocks];
    freeing_function(block);
    const std::size_t bytes = size() - (random >> 12) % 8 * 2000;
    block = allocating_function(bytes);
    const auto* const start = static_cast<char*>(block);
    if ((random >> 20) % 2 == 0) use_all_of(block, bytes);
    CHECK(can_be_read(start) && can_be_read(start + bytes - 1), "a block is closed");
    const std::size_t behind =
        (reinterpret_cast<uintptr_t>(start) + bytes + 8 + page - 1) & ~(page - 1);
    CHECK(!can_be_read(reinterpret_cast<const char*>(behind)), "no guard behind %zu bytes", bytes);
  }
  survive();
}

// What a block was cut down by goes to others.
CASE(realloc_to_less_leaves_nothing) {
  constexpr std::size_t kMost = std::size_t{100} << 20;
  constexpr std::size_t kLess = std::size_t{5} << 20;
  auto* const block = static_cast<unsigned char*>(allocating_function(kMost));
  for (std::size_t at = 0; at < kMost; at += 8) block[at] = 0xA5;
  auto* const less = static_cast<unsigned char*>(reallocating_function(block, kLess + 100));
  CHECK(less != nullptr && less[kLess] == 0xA5, "kept");
  for (int i = 0; i < 900; ++i) {
    constexpr std::size_t kBytes = 100'000;
    const auto* const other = static_cast<unsigned char*>(allocating_function(kBytes));
    for (std::size_t at = 0; at < kBytes; at += 8) CHECK(other[at] == 0, "byte %zu", at);
  }
  auto* const again = static_cast<unsigned char*>(hidden(std::realloc(less, kLess + 60'000)));
  for (std::size_t at = kLess + 104; at < kLess + 60'000; at += 8) CHECK(again[at] == 0, "%zu", at);
  survive();
}

OWN_FRAME void overwrite_old_stack() {
  unsigned char old[1 << 15];
  memset(old, 1, sizeof old);
  KEEP_FRAME();
  CHECK(old[parameter("TEST_SIZE") % sizeof old] == 1, "not overwritten");
}

// What only a free block leads to leaks, also where that is kept as it was.
CASE(leaks_behind_a_block_that_is_kept) {
  for (int i = 0; i < 100; ++i) freeing_function(allocating_function(size()));
  CHECK(allod_profile_start(1) == 0, "no profile");
  auto** const holder = static_cast<void**>(allocating_function(size()));
  use_all_of(holder, size());
  for (int i = 1; i <= 20; ++i) holder[i] = allocating_function(1000);
  freeing_function(holder);
  overwrite_old_stack();
  tell("leaks", static_cast<uintptr_t>(allod_leaks_check()));
  survive();
}

// Of large blocks one is led to, one leaks, and two have been freed and wait.
CASE(leaks_of_large_blocks_are_looked_for) {
  static void* kept;
  CHECK(allod_profile_start(1) == 0, "no profile");
  kept = allocating_function(size());
  CHECK(allocating_function(size()) != nullptr, "no block");
  freeing_function(allocating_function(size()));
  freeing_function(allocating_function(100));
  static unsigned char overwritten[1 << 16];
  use_all_of(overwritten, sizeof overwritten);
  tell("leaks", static_cast<uintptr_t>(allod_leaks_check()));
  freeing_function(kept);
  survive();
}

// A search for leaks reads what guards lie between.
CASE(leaks_are_looked_for) {
  constexpr int kBlocks = 3000;
  static void* blocks[kBlocks];
  for (void*& block : blocks) block = allocating_function(size());
  freeing_function(allocating_function(300'000));
  void* const large = allocating_function(200'000);
  CHECK(allod_profile_start(1) == 0, "no profile");
  tell("leaks", static_cast<uintptr_t>(allod_leaks_check()));
  freeing_function(large);
  for (void* block : blocks) freeing_function(block);
  survive();
}

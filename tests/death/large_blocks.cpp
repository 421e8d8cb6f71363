// Large blocks that are freed and used again: the memory that they take, and what is left in it.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "blocks.hpp"

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
// than for a few sizes at a time. What waits in quarantine is of each of them 256 KiB.
CASE(sizes_one_after_the_other) {
  constexpr long kMostFaults = 900;
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

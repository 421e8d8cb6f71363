// What may differ between processors: the width of words, pages, the order of bytes, and the thread
// that the library starts by itself.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "numbers.h"

CASE(pages_are_as_large_as_the_system_says) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t size = 1; size < 3 * page; size += page / 3) {
    void* whole = hidden(pvalloc(size));
    CHECK(is_aligned(whole, page), "pvalloc(%zu) is %p", size, whole);
    CHECK(malloc_usable_size(whole) % page == 0, "pvalloc(%zu) has %zu bytes", size,
          malloc_usable_size(whole));
    void* aligned = hidden(valloc(size));
    CHECK(is_aligned(aligned, page), "valloc(%zu) is %p", size, aligned);
    free(whole);
    free(aligned);
  }
}

// Nothing but the library's own thread can give the memory back: this one only waits.
CASE(memory_goes_back_while_idle) {
  for (int round = 0; round < 3; ++round) {
    const uint64_t before = stats().purged;
    const size_t size = 32 * MIB;
    void* block = obtain(size);
    memset(block, 1, size);
    free(block);
    for (const uint64_t start = now_ms(); stats().purged < before + size;) {
      CHECK(now_ms() < start + 20000, "%zu KiB are back", (size_t)(stats().purged - before) / KIB);
      pass_a_millisecond();
    }
    unsigned char* again = hidden(calloc(1, size));
    CHECK(again != NULL && is_zero(again, size), "what went back is not zero");
    free(again);
  }
}

// Any number may come back to free() of a program with a defect: no address is out of the map.
CASE(addresses_of_nobody_are_foreign) {
  for (unsigned bit = 12; bit < 8 * sizeof(uintptr_t); ++bit) {
    const uintptr_t power = (uintptr_t)1 << bit;
    CHECK(malloc_usable_size(hidden((void*)(power - 16))) == 0, "below bit %u", bit);
    free(hidden((void*)(power - 16)));
  }
  free(hidden((void*)(UINTPTR_MAX - 15)));
  free(obtain(1));
}

// More than half of the addresses that 32 bits have: what is given is usable to its end, and what
// is not given leaves the heap as it was.
CASE(all_memory_can_be_asked_for) {
  enum { kBlocks = 64 };
  static unsigned char* blocks[kBlocks];
  for (int round = 0; round < 2; ++round) {
    const size_t size = (round == 0 ? 100 : 37) * (size_t)MIB;
    size_t got = 0;
    for (size_t i = 0; i < kBlocks; ++i) {
      blocks[i] = hidden(malloc(hidden_size(size)));
      if (blocks[i] == NULL) {
        CHECK(errno == ENOMEM, "errno is %d", errno);
        continue;
      }
      blocks[i][0] = blocks[i][size - 1] = (unsigned char)(i + 1);
      ++got;
    }
    CHECK(got >= 10, "there were %zu blocks of %zu bytes", got, size);
    CHECK(hidden(malloc(1000)) != NULL, "small blocks do not need new addresses");
    for (size_t i = 0; i < kBlocks; ++i) {
      if (blocks[i] == NULL) continue;
      CHECK(blocks[i][0] == i + 1 && blocks[i][size - 1] == i + 1, "block %zu has changed", i);
      free(blocks[i]);
    }
  }
}

// A gigabyte of small blocks: with 32 bits, the heap's own records and its regions must leave room.
CASE(small_blocks_can_fill_most_of_the_addresses) {
  if (sizeof(void*) > 4) skip_case("there are more addresses than memory");
  typedef struct Block {
    struct Block* next;
    char rest[4096 - 64 - sizeof(struct Block*)];
  } Block;
  Block* first = NULL;
  size_t bytes = 0;
  while (bytes < (size_t)1024 * MIB) {
    Block* block = hidden(malloc(sizeof(Block)));
    CHECK(block != NULL, "after %zu MiB there is no more", bytes / MIB);
    block->next = first;
    first = block;
    bytes += sizeof(Block);
  }
  while (first != NULL) {
    Block* next = first->next;
    free(first);
    first = next;
  }
}

// Hardened heaps in normal use.
#include <allod.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

static allod_heap_options_t hardened(void) {
  allod_heap_options_t options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.name = "hardened";
  options.hardened = 1;
  return options;
}
static allod_heap_t* new_heap(void) {
  const allod_heap_options_t options = hardened();
  allod_heap_t* heap = allod_heap_new_ex(&options);
  CHECK(heap != NULL, "no heap");
  return heap;
}
static allod_heap_stats_t stats_of(allod_heap_t* heap) {
  allod_heap_stats_t stats;
  CHECK(allod_heap_stats_get(heap, &stats, sizeof stats) == 0, "no statistics");
  return stats;
}

// In the hardened library, heaps are what all its blocks are, and the option changes nothing.
static bool is_all_hardened(void) {
  void* block = allod_malloc(100);
  const bool exact = allod_malloc_usable_size(block) == 100;
  allod_free(block);
  return exact;
}

CASE(every_size_holds_what_is_written) {
  enum { SIZES = 512 };
  size_t sizes[SIZES];
  const size_t count = interesting_sizes(sizes, SIZES, 12 * MIB);
  allod_heap_t* heap = new_heap();
  unsigned char* blocks[SIZES];
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < count; ++i) {
      blocks[i] = allod_heap_malloc(heap, sizes[i]);
      CHECK(blocks[i] != NULL, "size %zu", sizes[i]);
      CHECK(is_aligned(blocks[i], natural_alignment(sizes[i])), "size %zu", sizes[i]);
      CHECK(allod_malloc_usable_size(blocks[i]) == sizes[i], "size %zu", sizes[i]);
      CHECK(allod_heap_contains(heap, blocks[i]), "size %zu", sizes[i]);
      fill(blocks[i], sizes[i], i);
    }
    for (size_t i = 0; i < count; ++i) CHECK(holds(blocks[i], sizes[i], i), "size %zu", sizes[i]);
    CHECK(stats_of(heap).live_blocks == count, "%zu blocks", stats_of(heap).live_blocks);
    for (size_t i = 0; i < count; ++i) {
      i % 2 ? allod_free(blocks[i]) : allod_heap_free_sized(heap, blocks[i], sizes[i]);
    }
    CHECK(stats_of(heap).live == 0, "%zu bytes", stats_of(heap).live);
    allod_check();
  }
  allod_heap_collect(heap);
  CHECK(stats_of(heap).held == 0, "%zu bytes", stats_of(heap).held);
  allod_heap_delete(heap);
}

CASE(blocks_are_zero_whatever_was_there_before) {
  // Memory that the process has used.
  for (int i = 0; i < 64; ++i) {
    void* dirty = allod_malloc(60000);
    memset(dirty, 0xff, 60000);
    allod_free(dirty);
  }
  allod_heap_t* heap = new_heap();
  for (size_t size = 1; size < 6 * MIB; size = size * 3 + 1) {
    for (int round = 0; round < 300; ++round) {
      unsigned char* block = allod_heap_malloc(heap, size);
      if (size < 128 * KIB) CHECK(is_zero(block, size), "size %zu", size);
      memset(block, 0xff, size < 100000 ? size : 100000);
      allod_heap_free(heap, block);
      if (size > 100000 && round == 3) break;
    }
    void* zero = allod_heap_calloc(heap, 1, size);
    CHECK(zero != NULL && is_zero(zero, size), "size %zu", size);
    allod_free(zero);
  }
  allod_heap_destroy(heap);
}

// Blocks from 128 KiB on are not looked at when they come back.
CASE(zeros_where_a_stale_pointer_has_written) {
  if (is_all_hardened()) skip_case("the heap is as hardened as all blocks are");
  allod_heap_t* heap = new_heap();
  unsigned char* block = allod_heap_malloc(heap, 200000);
  memset(block, 1, 200000);
  allod_heap_free(heap, block);
  ((volatile unsigned char*)hidden(block))[100000] = 1;
  const unsigned char* zero = NULL;
  for (int i = 0; i < 2000 && zero != block; ++i) {
    zero = allod_heap_calloc(heap, 1, 200000);
    CHECK(zero != NULL && is_zero(zero, 200000), "block %d", i);
    if (i % 2 != 0) allod_free((void*)zero);
  }
  CHECK(zero == block, "the block is not used again");
  allod_heap_destroy(heap);
}

CASE(blocks_are_resized_and_aligned) {
  allod_heap_t* heap = new_heap();
  unsigned char* block = NULL;
  size_t before = 0;
  for (size_t size = 1; size < 9 * MIB; size = size * 2 + 3) {
    unsigned char* const moved = allod_heap_realloc(heap, block, size);
    CHECK(moved != NULL && (moved != block || is_all_hardened()), "size %zu", size);
    CHECK(before == 0 || holds(moved, before, 7), "size %zu", size);
    block = moved;
    fill(block, size, 7);
    before = size;
  }
  block = allod_realloc(block, 10);
  CHECK(block != NULL && holds(block, 10, 7), "what was kept");
  CHECK(allod_heap_contains(heap, block), "it has left its heap");
  for (size_t alignment = 1; alignment <= 256 * KIB; alignment *= 2) {
    void* aligned = allod_heap_aligned_alloc(heap, alignment, 100);
    CHECK(aligned != NULL && is_aligned(aligned, alignment), "alignment %zu", alignment);
    CHECK(allod_malloc_usable_size(aligned) == 100, "alignment %zu", alignment);
    allod_heap_free(heap, aligned);
  }
  allod_heap_destroy(heap);
}

CASE(a_block_of_no_bytes_can_grow) {
  allod_heap_t* heap = new_heap();
  allod_heap_t* other = new_heap();
  void* plain = allod_realloc(allod_heap_malloc(heap, 0), 100);
  CHECK(plain != NULL && allod_heap_contains(heap, plain), "by realloc");
  void* stays = allod_heap_realloc(heap, allod_heap_malloc(heap, 0), 100);
  CHECK(stays != NULL && allod_heap_contains(heap, stays), "in its heap");
  void* moves = allod_heap_realloc(other, allod_heap_malloc(heap, 0), 100);
  CHECK(moves != NULL && allod_heap_contains(other, moves), "into another heap");
  CHECK(stats_of(heap).live_blocks == 2, "%zu blocks", stats_of(heap).live_blocks);
  allod_heap_destroy(other);
  allod_heap_destroy(heap);
}

enum { SECRET = 0x5e };
static bool has_secret(const unsigned char* block, size_t size) {
  size_t in_a_row = 0;
  for (size_t i = 0; i < size && in_a_row < 16; ++i) {
    in_a_row = block[i] == SECRET ? in_a_row + 1 : 0;
  }
  return in_a_row == 16;
}

CASE(nobody_sees_what_a_destroyed_heap_held) {
  static const size_t kSizes[] = {40, 1000, 30000, 300000, 5 * MIB};
  enum { SIZES = sizeof kSizes / sizeof *kSizes, EACH = 100 };
  static void* later[SIZES][EACH];
  allod_heap_t* heap = new_heap();
  for (size_t s = 0; s < SIZES; ++s) {
    for (size_t i = 0; i < EACH; ++i) {
      const size_t size = kSizes[s] > MIB && i > 3 ? 1000 : kSizes[s];
      memset(allod_heap_malloc(heap, size), SECRET, size);
    }
  }
  allod_heap_destroy(heap);
  for (size_t s = SIZES; s-- > 0;) {
    for (size_t i = 0; i < (kSizes[s] > MIB ? 4 : EACH); ++i) {
      later[s][i] = allod_malloc(kSizes[s]);
      CHECK(!has_secret(later[s][i], kSizes[s]), "size %zu", kSizes[s]);
    }
  }
  for (size_t s = 0; s < SIZES; ++s) {
    for (size_t i = 0; i < EACH; ++i) allod_free(later[s][i]);
  }
}

static volatile sig_atomic_t faults;
static void count_fault(int signal) {
  (void)signal;
  if (++faults > 1) _exit(3);
}

// The first hardened heap watches faults, for its guards.
CASE(a_handler_that_is_to_be_called_once_is) {
  struct sigaction once;
  memset(&once, 0, sizeof once);
  once.sa_handler = count_fault;
  once.sa_flags = (int)SA_RESETHAND;
  CHECK(sigaction(SIGSEGV, &once, NULL) == 0, "no handler");
  allod_heap_t* heap = new_heap();
  const pid_t child = fork();
  if (child == 0) {
    *(volatile char*)hidden(NULL) = 1;
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child, "no child");
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "status %d", status);
  allod_heap_destroy(heap);
}

CASE(what_a_deleted_heap_leaves_can_be_used_to_its_end) {
  static const size_t sizes[] = {100, 5000, 200 * KIB, 10 * MIB};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  allod_heap_t* heap = new_heap();
  unsigned char* blocks[SIZES];
  for (size_t i = 0; i < SIZES; ++i) blocks[i] = allod_heap_malloc(heap, sizes[i]);
  CHECK(allod_heap_delete(heap) == 0, "it is not deleted");
  for (size_t i = 0; i < SIZES; ++i) {
    size_t bytes = allod_malloc_usable_size(blocks[i]);
    CHECK(bytes >= sizes[i], "%zu of %zu bytes", bytes, sizes[i]);
    memset(blocks[i], 1, bytes);
    blocks[i] = allod_realloc(blocks[i], 2 * bytes);
    memset(blocks[i], 2, 2 * bytes);
    allod_free(blocks[i]);
  }
  allod_check();
}

CASE(blocks_come_in_no_order_and_not_at_once_again) {
  enum { BLOCKS = 64 };
  if (is_all_hardened()) skip_case("the heap is as hardened as all blocks are");
  allod_heap_t* heap = new_heap();
  char* blocks[BLOCKS];
  int ascending = 0;
  for (int i = 0; i < BLOCKS; ++i) {
    blocks[i] = allod_heap_malloc(heap, 100);
    ascending += i > 0 && blocks[i] > blocks[i - 1];
  }
  CHECK(ascending > 5 && ascending < 58, "%d of 63 ascend", ascending);
  char* const freed = blocks[0];
  allod_free(freed);
  CHECK(!allod_heap_contains(heap, freed), "it is free");
  for (int i = 0; i < 60; ++i) {
    char* const other = allod_heap_malloc(heap, 100);
    CHECK(other != freed, "after %d", i);
    allod_free(other);
  }
  allod_heap_destroy(heap);
}

static int count_block(void* block, size_t bytes, void* context) {
  (void)block;
  CHECK(bytes == 100, "%zu bytes", bytes);
  ++*(size_t*)context;
  return 0;
}

CASE(a_walk_tells_what_is_in_use) {
  allod_heap_t* heap = new_heap();
  void* blocks[50];
  for (int i = 0; i < 50; ++i) blocks[i] = allod_heap_malloc(heap, 100);
  for (int i = 0; i < 20; ++i) allod_free(blocks[i]);
  size_t count = 0;
  CHECK(allod_heap_walk(heap, count_block, &count) == 0, "no walk");
  CHECK(count == 30, "%zu blocks", count);
  allod_heap_destroy(heap);
}

CASE(a_limit_counts_what_is_in_use) {
  allod_heap_options_t options = hardened();
  options.byte_limit = 100000;
  allod_heap_t* heap = allod_heap_new_ex(&options);
  for (int i = 0; i < 10000; ++i) {
    void* block = allod_heap_malloc(heap, 1000);
    CHECK(block != NULL, "what waits counts, after %d", i);
    allod_free(block);
  }
  allod_heap_destroy(heap);
}

CASE(blocks_outlive_a_heap_that_is_deleted) {
  allod_heap_t* heap = new_heap();
  unsigned char* blocks[200];
  for (size_t i = 0; i < 200; ++i) {
    blocks[i] = allod_heap_malloc(heap, 500);
    fill(blocks[i], 500, i);
  }
  for (size_t i = 0; i < 200; i += 2) allod_free(blocks[i]);
  CHECK(allod_heap_delete(heap) == 0, "it stays");
  for (size_t i = 1; i < 200; i += 2) {
    CHECK(holds(blocks[i], 500, i), "block %zu", i);
    allod_free(blocks[i]);
  }
  allod_check();
}

CASE(memory_of_the_program_cannot_be_hardened) {
  static char memory[256 * KIB];
  allod_heap_options_t options = hardened();
  options.memory = memory;
  options.memory_bytes = sizeof memory;
  CHECK(allod_heap_new_ex(&options) == NULL && errno == EINVAL, "it can");
}

static void* use_shared(void* heap) {
  void* blocks[64] = {NULL};
  unsigned random = (unsigned)(size_t)&random;
  for (int i = 0; i < 20000; ++i) {
    random = random * 1664525 + 1013904223;
    void** const place = &blocks[random >> 26];
    allod_free(*place);
    const size_t size = random >> 8 & 1023;
    *place = allod_heap_malloc(heap, size);
    memset(*place, 0xaa, size);
  }
  for (int i = 0; i < 64; ++i) allod_heap_free(heap, blocks[i]);
  return NULL;
}

CASE(threads_share_it) {
  allod_heap_t* heap = new_heap();
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, use_shared, heap);
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  CHECK(stats_of(heap).live_blocks == 0, "%zu blocks", stats_of(heap).live_blocks);
  allod_check();
  allod_heap_destroy(heap);
}

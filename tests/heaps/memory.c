// First-class heaps in memory that the program brings, and with pages of their own.
#include <allod.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

static allod_heap_options_t no_wishes(void) {
  allod_heap_options_t options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  return options;
}
static allod_heap_t* heap_in(void* memory, size_t bytes) {
  allod_heap_options_t options = no_wishes();
  options.memory = memory;
  options.memory_bytes = bytes;
  allod_heap_t* heap = allod_heap_new_ex(&options);
  CHECK(heap != NULL, "errno %d", errno);
  return heap;
}
static allod_heap_stats_t stats_of(allod_heap_t* heap) {
  allod_heap_stats_t stats;
  CHECK(allod_heap_stats_get(heap, &stats, sizeof stats) == 0, "no statistics");
  return stats;
}
static unsigned char* map_bytes(size_t bytes, int kind) {
  void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED, "no memory");
  return memory;
}

CASE(a_buffer_of_any_size_and_alignment_is_used_and_nothing_else) {
  enum { MARGIN = 5000, BYTES = 3 * MIB };
  static unsigned char space[BYTES + 2 * MARGIN];
  for (size_t bytes = 64 * KIB; bytes < BYTES; bytes = bytes * 7 / 3 + 13) {
    for (size_t offset = 0; offset < 3; ++offset) {
      memset(space, 0xee, sizeof space);
      unsigned char* buffer = space + MARGIN + offset * 1001;
      const size_t size = bytes < BYTES - 2002 ? bytes : BYTES - 2002;
      allod_heap_t* heap = heap_in(buffer, size);
      // Blocks of all sizes until it is full.
      enum { MOST = 4000 };
      static unsigned char* blocks[MOST];
      static size_t sizes[MOST];
      size_t count = 0, got = 0;
      for (size_t wanted = 100; count < MOST; wanted = (wanted * 37 + 11) % 5000 + 1) {
        errno = 0;
        blocks[count] = allod_heap_malloc(heap, wanted);
        if (blocks[count] == NULL) break;
        sizes[count] = wanted;
        got += wanted;
        fill(blocks[count], wanted, count);
        ++count;
      }
      CHECK(count < MOST && errno == ENOMEM, "%zu blocks, errno %d", count, errno);
      CHECK(got * 10 > size * 8, "%zu of %zu bytes", got, size);
      for (size_t i = 0; i < count; ++i) {
        CHECK(blocks[i] >= buffer && blocks[i] + sizes[i] <= buffer + size, "outside");
        CHECK(holds(blocks[i], sizes[i], i) && allod_heap_contains(heap, blocks[i]), "lost");
        CHECK(allod_malloc_usable_size(blocks[i]) >= sizes[i], "usable");
      }
      CHECK(stats_of(heap).live_blocks == count, "%zu", stats_of(heap).live_blocks);
      for (size_t i = 0; i < count; ++i) {
        i % 2 ? allod_free(blocks[i]) : allod_heap_free(heap, blocks[i]);
      }
      CHECK(stats_of(heap).live == 0, "%zu bytes are left", stats_of(heap).live);
      unsigned char* zeros = allod_heap_calloc(heap, 1, 30 * KIB);
      CHECK(zeros != NULL && is_zero(zeros, 30 * KIB), "not zero");
      allod_heap_destroy(heap);
      for (size_t i = 0; i < sizeof space; ++i) {
        const bool outside = space + i < buffer || space + i >= buffer + size;
        CHECK(!outside || space[i] == 0xee, "byte %zu was written to", i);
      }
    }
  }
  allod_check();
}

CASE(a_block_in_a_buffer_is_resized_within) {
  static unsigned char buffer[MIB];
  allod_heap_t* heap = heap_in(buffer, sizeof buffer);
  unsigned char* block = NULL;
  size_t before = 0;
  for (size_t size = 10; size < 300 * KIB; size = size * 2 + 5) {
    block = size % 3 ? allod_heap_realloc(heap, block, size)
                     : (block ? allod_realloc(block, size) : allod_heap_malloc(heap, size));
    CHECK(block != NULL && allod_heap_contains(heap, block), "size %zu", size);
    CHECK(before == 0 || holds(block, before, before), "size %zu", size);
    fill(block, size, size);
    before = size;
  }
  errno = 0;
  CHECK(allod_realloc(block, 2 * MIB) == NULL && errno == ENOMEM, "errno %d", errno);
  CHECK(holds(block, before, before), "a block that could not grow");
  CHECK(allod_heap_delete(heap) == EBUSY, "deleted with a block");
  CHECK(allod_heap_contains(heap, block), "gone");
  allod_free(block);
  CHECK(allod_heap_delete(heap) == 0, "not deleted");
}

// --- shared memory -----------------------------------------------------------------------------

CASE(another_process_reads_and_writes_blocks_in_shared_memory) {
  unsigned char* memory = map_bytes(MIB, MAP_SHARED);
  allod_heap_t* heap = heap_in(memory, MIB);
  unsigned char* blocks[50];
  for (size_t i = 0; i < 50; ++i) fill(blocks[i] = allod_heap_malloc(heap, 100 + i * 50), 100, i);
  const pid_t child = fork();
  CHECK(child >= 0, "no fork");
  if (child == 0) {
    for (size_t i = 0; i < 50; ++i) {
      if (!holds(blocks[i], 100, i)) _exit(1);
      fill(blocks[i], 100, i + 1000);
    }
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(status == 0, "the child saw something else");
  for (size_t i = 0; i < 50; ++i) CHECK(holds(blocks[i], 100, i + 1000), "block %zu", i);
  allod_heap_destroy(heap);
  munmap(memory, MIB);
}

// --- threads -----------------------------------------------------------------------------------

static void* use_buffer(void* argument) {
  allod_heap_t* heap = argument;
  unsigned char* blocks[64] = {NULL};
  for (size_t i = 0; i < 30000; ++i) {
    const size_t at = i * 7 % 64;
    if (blocks[at] != NULL) {
      CHECK(blocks[at][0] == (unsigned char)at, "overwritten");
      i % 3 ? allod_free(blocks[at]) : allod_heap_free(heap, blocks[at]);
    }
    blocks[at] = allod_heap_malloc(heap, i % 900 + 1);
    if (blocks[at] != NULL) blocks[at][0] = (unsigned char)at;
    if (blocks[at] != NULL) CHECK(allod_malloc_usable_size(blocks[at]) > i % 900, "usable");
  }
  for (size_t at = 0; at < 64; ++at) allod_free(blocks[at]);
  return NULL;
}

CASE(threads_share_a_buffer) {
  static unsigned char small[200 * KIB], large[8 * MIB];
  allod_heap_t* heaps[2] = {heap_in(small, sizeof small), heap_in(large, sizeof large)};
  for (int round = 0; round < 2; ++round) {
    pthread_t threads[3];
    for (int i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, use_buffer, heaps[round]);
    for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
    allod_check();
    CHECK(stats_of(heaps[round]).live == 0, "%zu bytes", stats_of(heaps[round]).live);
    CHECK(allod_heap_delete(heaps[round]) == 0, "blocks are left");
  }
}

// --- what cannot be had --------------------------------------------------------------------------

static int refusal_of(allod_heap_options_t options) {
  errno = 0;
  allod_heap_t* heap = allod_heap_new_ex(&options);
  if (heap == NULL) return errno;
  unsigned char* block = allod_heap_malloc(heap, 100 * KIB);
  CHECK(block != NULL, "errno %d", errno);
  memset(block, 1, 100 * KIB);
  allod_heap_destroy(heap);
  return 0;
}

CASE(options_that_do_not_go_together_are_refused) {
  static unsigned char buffer[MIB];
  allod_heap_options_t options = no_wishes();
  options.memory = buffer;
  CHECK(refusal_of(options) == EINVAL, "no size");
  options.memory_bytes = 64 * KIB - 1;
  CHECK(refusal_of(options) == EINVAL, "too small");
  options.memory_bytes = MIB;
  CHECK(refusal_of(options) == 0, "refused");
  options.locked = 1;
  CHECK(refusal_of(options) == EINVAL, "a buffer, locked");
  options.locked = 0;
  options.memory = (void*)(UINTPTR_MAX - 100000);
  CHECK(refusal_of(options) == EINVAL, "no such memory");
  options.memory = NULL;
  CHECK(refusal_of(options) == EINVAL, "no memory");
  options = no_wishes();
  options.pages = 4;
  CHECK(refusal_of(options) == EINVAL, "no such pages");
  options.pages = ALLOD_PAGES_2M;
  options.purge = ALLOD_PURGE_AT_ONCE;
  CHECK(refusal_of(options) == EINVAL, "pages that are never purged");
  options = no_wishes();
  options.purge = 4;
  CHECK(refusal_of(options) == EINVAL, "no such policy");
  allod_heap_t* heap = heap_in(buffer, sizeof buffer);
  options = no_wishes();
  options.memory = buffer + 300 * KIB;
  options.memory_bytes = 200 * KIB;
  CHECK(refusal_of(options) == EBUSY, "the same memory twice");
  allod_heap_destroy(heap);
  options.memory = allod_malloc(MIB);
  options.memory_bytes = MIB;
  CHECK(refusal_of(options) == EBUSY, "memory of Allod");
  // As a program says it that knows no more than names and limits.
  options = no_wishes();
  options.struct_size = offsetof(allod_heap_options_t, memory);
  CHECK(refusal_of(options) == 0, "errno %d", errno);
}

CASE(pages_and_nodes_are_had_or_refused_clearly) {
  for (unsigned pages = ALLOD_PAGES_USUAL; pages <= ALLOD_PAGES_1G; ++pages) {
    allod_heap_options_t options = no_wishes();
    options.pages = pages;
    const int refused = refusal_of(options);
    CHECK(refused == 0 || (pages >= ALLOD_PAGES_2M && (refused == ENOMEM || refused == EINVAL)),
          "pages %u: errno %d", pages, refused);
    options.locked = 1;
    const int locked = refusal_of(options);
    CHECK(locked == 0 || locked == ENOMEM || locked == EPERM || locked == refused,
          "pages %u, locked: errno %d", pages, locked);
  }
  allod_heap_options_t options = no_wishes();
  options.nodes = 1;
  const int first = refusal_of(options);
  CHECK(first == 0 || first == ENOSYS || first == EPERM, "node 0: errno %d", first);
  options.nodes = (uint64_t)1 << 63;
  const int last = refusal_of(options);
  CHECK(last == EINVAL || last == ENOSYS || last == EPERM, "node 63: errno %d", last);
  options = no_wishes();
  options.purge_delay_ms = 5;
  CHECK(refusal_of(options) == EINVAL, "a delay without its policy");
  options.purge = ALLOD_PURGE_AFTER_DELAY;
  options.locked = 1;
  CHECK(refusal_of(options) == EINVAL, "locked memory that goes");
  for (unsigned purge = ALLOD_PURGE_AS_PROCESS; purge <= ALLOD_PURGE_AFTER_DELAY; ++purge) {
    options = no_wishes();
    options.purge = purge;
    CHECK(refusal_of(options) == 0, "purge %u", purge);
  }
  allod_check();
}

CASE(memory_goes_back_as_the_heap_wants) {
  allod_heap_options_t options = no_wishes();
  enum { BLOCKS = 100 };
  void* blocks[BLOCKS];
  for (unsigned purge = ALLOD_PURGE_AT_ONCE; purge <= ALLOD_PURGE_NEVER; ++purge) {
    options.purge = purge;
    allod_heap_t* heap = allod_heap_new_ex(&options);
    for (int i = 0; i < BLOCKS; ++i) {
      memset(blocks[i] = allod_heap_malloc(heap, 600 * KIB), 1, 600 * KIB);
    }
    const size_t before = resident_bytes();
    for (int i = 0; i < BLOCKS; ++i) allod_heap_free(heap, blocks[i]);
    allod_heap_collect(heap);
    allod_malloc_trim(0);
    const size_t now = resident_bytes();
    const bool back = now + 40 * (size_t)MIB < before;
    CHECK(back == (purge == ALLOD_PURGE_AT_ONCE), "%zu of %zu bytes", now, before);
    allod_heap_destroy(heap);
    CHECK(resident_bytes() + 40 * (size_t)MIB < before, "the heap is gone");
  }
}

// Memory whose tags the processor compares with those of pointers: the hardened library with
// ALLOD_HARDENED=all,tags.
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allod.h"
#include "numbers.h"

enum { kBlocks = 2000 };

static unsigned tag_of(const void* pointer) { return (uintptr_t)pointer >> 56; }
static uintptr_t address_in(const void* pointer) { return (uintptr_t)pointer << 8 >> 8; }

static allod_heap_t* new_heap(void) {
  allod_heap_t* (*function)(void) = (allod_heap_t * (*)(void)) find_function("allod_heap_new");
  allod_heap_t* heap = function();
  CHECK(heap != NULL, "no heap");
  return heap;
}

// For the reader of the report.
static void tell(const char* name, const void* pointer) {
  printf("%s 0x%zx\n", name, (size_t)address_in(pointer));
  fflush(stdout);
}
static void read_byte(const void* at) {
  const volatile unsigned char* byte = hidden((void*)at);
  printf("read %d\n", *byte);
}
static void write_byte(void* at) {
  volatile unsigned char* byte = hidden(at);
  *byte = 1;
  printf("written\n");
}

CASE(blocks_have_tags_and_neighbours_have_others) {
  static unsigned char* blocks[kBlocks];
  static const size_t sizes[] = {1, 16, 40, 100, 1000, 5000, 60 * KIB};
  // What a block of each size takes, with its canary.
  static const size_t steps[] = {16, 32, 48, 112, 1024, 0, 0};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    const size_t count = sizes[s] > 10 * KIB ? 100 : kBlocks;
    size_t neighbours = 0;
    for (size_t i = 0; i < count; ++i) {
      blocks[i] = obtain(sizes[s]);
      CHECK(tag_of(blocks[i]) != 0 && tag_of(blocks[i]) < 16, "tag %u", tag_of(blocks[i]));
      fill(blocks[i], sizes[s], i);
    }
    for (size_t i = 0; i < count; ++i) {
      for (size_t k = 0; k < count && steps[s] != 0; ++k) {
        const uintptr_t distance = address_in(blocks[k]) - address_in(blocks[i]);
        if (distance != steps[s]) continue;
        ++neighbours;
        CHECK(tag_of(blocks[k]) != tag_of(blocks[i]), "neighbours have tag %u", tag_of(blocks[i]));
      }
    }
    CHECK(steps[s] == 0 || neighbours > count / 2, "%zu neighbours", neighbours);
    for (size_t i = 0; i < count; ++i) {
      CHECK(holds(blocks[i], sizes[s], i), "content");
      free(blocks[i]);
    }
  }
}

CASE(large_blocks_and_those_of_heaps_have_none) {
  void* large = obtain(200 * KIB);
  void* huge = obtain(10 * MIB);
  CHECK(tag_of(large) == 0 && tag_of(huge) == 0, "tags %u, %u", tag_of(large), tag_of(huge));
  void* (*allocate_in)(allod_heap_t*, size_t) =
      (void* (*)(allod_heap_t*, size_t))find_function("allod_heap_malloc");
  void (*destroy)(allod_heap_t*) = (void (*)(allod_heap_t*))find_function("allod_heap_destroy");
  allod_heap_t* heap = new_heap();
  for (size_t i = 0; i < kBlocks; ++i) {
    void* block = allocate_in(heap, 40);
    CHECK(block != NULL && tag_of(block) == 0, "tag %u", tag_of(block));
    memset(block, 1, 40);
  }
  // Their memory serves others now.
  destroy(heap);
  for (size_t i = 0; i < kBlocks; ++i) free(memset(obtain(40), 1, 40));
  free(large);
  free(huge);
}

CASE(every_function_takes_pointers_with_tags) {
  int (*find_bounds)(const void*, void**, size_t*) =
      (int (*)(const void*, void**, size_t*))find_function("allod_bounds");
  for (size_t size = 1; size < 100 * KIB; size += size / 3 + 1) {
    unsigned char* block = obtain(size);
    fill(block, size, size);
    CHECK(malloc_usable_size(block) == size, "size %zu", malloc_usable_size(block));
    void* start;
    size_t bytes;
    CHECK(find_bounds(block + size / 2, &start, &bytes) == 1, "no bounds");
    CHECK(start == block && bytes == size, "bounds of %zu bytes at %p", bytes, start);
    unsigned char* same = realloc(block, size + 1);
    CHECK(same != NULL && holds(same, size, size), "realloc to one more");
    block = realloc(same, 3 * size + 7);
    CHECK(block != NULL && holds(block, size, size), "realloc to three times");
    block = realloc(block, size / 2 + 1);
    CHECK(block != NULL && holds(block, size / 2 + 1, size), "realloc to a half");
    free(block);
    unsigned char* zeros = hidden(calloc(size, 1));
    for (size_t i = 0; i < size; ++i) CHECK(zeros[i] == 0, "byte %zu is %d", i, zeros[i]);
    free(zeros);
    void* aligned = NULL;
    CHECK(posix_memalign(&aligned, 256, size) == 0, "no memory");
    CHECK(address_in(aligned) % 256 == 0, "at %p", aligned);
    memset(aligned, 1, size);
    free(aligned);
    free(memset(hidden(strdup("text")), 'a', 4));
    // More than its slack can be told of.
    unsigned char* roomy = hidden(aligned_alloc(128, size));
    memset(roomy, 1, malloc_usable_size(roomy));
    free(hidden(realloc(roomy, 2 * size)));
  }
}

static void* use_and_free(void* block) {
  memset(block, 1, 40);
  free(block);
  return memset(obtain(50), 2, 50);
}

CASE(threads_and_children_take_them_too) {
  for (int i = 0; i < 20; ++i) {
    pthread_t thread;
    void* result;
    thread = start_thread(use_and_free, obtain(40));
    CHECK(pthread_join(thread, &result) == 0, "no end");
    unsigned char* block = obtain(100);
    const pid_t child = fork();
    if (child == 0) {
      memset(result, 1, 50);
      free(result);
      free(memset(block, 1, 100));
      _exit(tag_of(obtain(30)) == 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    free(result);
    free(block);
  }
}

CASE(tags_are_only_there_when_they_are_named) { CHECK(tag_of(obtain(40)) == 0, "there is one"); }

CASE(read_past_the_end) {
  unsigned char* block = obtain(32);
  tell("block", block);
  read_byte(block + 32);
}
CASE(write_past_the_end) {
  unsigned char* block = obtain(1000);
  tell("block", block);
  write_byte(block + 1008);
}
CASE(read_after_free) {
  unsigned char* block = obtain(40);
  free(block);
  tell("block", block);
  read_byte(block + 8);
}
CASE(write_after_free) {
  unsigned char* block = obtain(3000);
  free(block);
  tell("block", block);
  write_byte(block + 80);
}
CASE(read_when_all_is_free) {
  static unsigned char* blocks[kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) blocks[i] = obtain(3000);
  for (size_t i = 0; i < kBlocks; ++i) free(blocks[i]);
  read_byte(blocks[kBlocks / 2]);
}
CASE(read_after_realloc) {
  unsigned char* block = obtain(40);
  unsigned char* same = hidden(realloc(block, 38));
  CHECK(address_in(same) == address_in(block), "it has moved");
  tell("block", block);
  // Of fifteen tags it may get the same again.
  while (tag_of(same) == tag_of(block)) same = hidden(realloc(same, 38));
  read_byte(block);
}

// A pointer to a block that was handed out again.
static unsigned char* stale_pointer(void) {
  unsigned char* stale = obtain(40);
  free(stale);
  for (size_t i = 0; i < 1000000; ++i) {
    unsigned char* block = obtain(40);
    if (address_in(block) == address_in(stale) && tag_of(block) != tag_of(stale)) {
      tell("block", block);
      return stale;
    }
    free(block);
  }
  CHECK(0, "the block does not come again");
  return NULL;
}
CASE(read_after_reuse) { read_byte(stale_pointer() + 4); }
CASE(free_after_reuse) { free(stale_pointer()); }
CASE(realloc_after_reuse) { free(hidden(realloc(stale_pointer(), 100))); }
CASE(free_twice) {
  unsigned char* block = obtain(40);
  free(block);
  tell("block", block);
  free(hidden(block));
}
CASE(free_to_the_wrong_heap) {
  void (*free_to)(allod_heap_t*, void*) =
      (void (*)(allod_heap_t*, void*))find_function("allod_heap_free");
  void* block = obtain(40);
  tell("block", block);
  free_to(new_heap(), block);
}

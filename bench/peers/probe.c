// Exercises the preloaded allocator, and prints the file that every function of it comes from,
// once.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBlocks = 4000, kLargest = 100000 };

static const char* const kFunctions[] = {
    "malloc",         "calloc",        "realloc",  "free",
    "posix_memalign", "aligned_alloc", "memalign", "malloc_usable_size"};

static size_t size_of(size_t number) { return number * number * 31 % kLargest + 1; }

static void fail(const char* what) {
  fprintf(stderr, "probe: %s\n", what);
  _Exit(1);
}

// Each block is filled with its number, which any overlap of two blocks would spoil.
static void verify_and_free(void** blocks) {
  for (size_t i = 0; i < kBlocks; ++i) {
    const unsigned char* bytes = blocks[i];
    if (bytes[0] != (unsigned char)i || bytes[size_of(i) - 1] != (unsigned char)i) {
      fail("a block does not hold what was written to it");
    }
    if (malloc_usable_size(blocks[i]) < size_of(i)) {
      fail("a block is smaller than asked for");
    }
    free(blocks[i]);
  }
}

static void* allocate_all(void* unused) {
  (void)unused;
  void** blocks = malloc(kBlocks * sizeof(*blocks));
  for (size_t i = 0; i < kBlocks; ++i) {
    const size_t size = size_of(i);
    void* block = NULL;
    switch (i % 4) {
      case 0:
        block = malloc(size);
        break;
      case 1:
        block = calloc(1, size);
        break;
      case 2:
        block = realloc(malloc(1), size);
        break;
      default:
        if (posix_memalign(&block, 256, size) != 0 || (uintptr_t)block % 256 != 0) {
          fail("a block is not aligned");
        }
    }
    if (block == NULL) {
      fail("out of memory");
    }
    if (i % 4 == 1 && ((unsigned char*)block)[size / 2] != 0) {
      fail("calloc does not clear");
    }
    memset(block, (int)i, size);
    blocks[i] = block;
  }
  return blocks;
}

int main(void) {
  // What one thread allocates and another frees, and the other way round.
  pthread_t thread;
  void* theirs = NULL;
  if (pthread_create(&thread, NULL, allocate_all, NULL) != 0) {
    fail("no thread");
  }
  void** ours = allocate_all(NULL);
  if (pthread_join(thread, &theirs) != 0) {
    fail("no end of the thread");
  }
  verify_and_free(theirs);
  verify_and_free(ours);
  free(theirs);
  free(ours);

  for (size_t i = 0; i < sizeof(kFunctions) / sizeof(*kFunctions); ++i) {
    Dl_info found;
    void* function = dlsym(RTLD_DEFAULT, kFunctions[i]);
    if (function == NULL || dladdr(function, &found) == 0) {
      fail(kFunctions[i]);
    }
    printf("%s %s\n", kFunctions[i], found.dli_fname);
  }
  return 0;
}

// Blocks of which little is touched, as buffers for the worst case and stacks of coroutines are:
// what was never touched takes no memory when they are freed, used again, or resized. Pages that a
// child of a fork shares are not copied only to be zero. All of it is counted.
#include <allod.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "numbers.h"

enum { kAddresses = 256 * MIB, kMost = kAddresses / (8 * KIB) };
static unsigned char* blocks[kMost];

// From a few pages up to what is a block by itself.
static const size_t kSizes[] = {
    8 * KIB,   9000,      12 * KIB,  16000,     24 * KIB, 30000,   40000,   64 * KIB,
    100 * KIB, 128 * KIB, 200 * KIB, 512 * KIB, MIB,      3 * MIB, 5 * MIB,
};
enum { kSizeCount = sizeof kSizes / sizeof *kSizes };

static size_t page_faults(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage");
  return (size_t)usage.ru_minflt;
}

// How blocks are allocated, and how they come back.
struct way {
  void* (*allocate)(size_t size);
  void (*release)(void* block);
};
static void* allocate_zeroed(size_t size) { return calloc(1, size); }
static const struct way kUsual = {malloc, free};
static const struct way kZeroed = {allocate_zeroed, free};

static void allocate_sparse(const struct way* way, size_t size, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = way->allocate(size);
    CHECK(blocks[i] != NULL, "no memory for %zu bytes", size);
    blocks[i][0] = 1;
  }
}
// Frees them, and returns the page faults of that.
static size_t release_all(const struct way* way, size_t count) {
  const size_t before = page_faults();
  for (size_t i = 0; i < count; ++i) way->release(blocks[i]);
  return page_faults() - before;
}

// What is allocated first has never been touched: to free it takes no page, but those that a look
// at the end of the block before may map.
static void check_first_life(const struct way* way, size_t size, size_t mapped) {
  const size_t count = kAddresses / size;
  allocate_sparse(way, size, count);
  const size_t held = resident_bytes();
  const size_t faults = release_all(way, count);
  const size_t freed = resident_bytes();
  CHECK(freed <= held + held / 16 + 2 * MIB, "%zu bytes: %zu KiB more when they are freed", size,
        (freed - held) / KIB);
  // Records of what is freed have pages of their own.
  CHECK(faults <= count / 8 + mapped * count + 300, "%zu bytes: %zu page faults to free %zu blocks",
        size, faults, count);
}

// Each size in a process that has nothing in memory yet.
static void check_each_size(void (*check)(size_t size)) {
  memset(blocks, 0, sizeof blocks);
  for (size_t i = 0; i < kSizeCount; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
      check(kSizes[i]);
      _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "%zu bytes", kSizes[i]);
  }
}

static void check_free(size_t size) { check_first_life(&kUsual, size, 0); }
CASE(what_was_never_touched_gets_no_memory) { check_each_size(check_free); }

// Whatever is allocated again, in whatever way, has what the program touches, and a word behind it.
static void check_lives(size_t size) {
  // Smaller ones have most of their pages in memory anyway.
  if (size < 24 * KIB) {
    return;
  }
  const size_t count = kAddresses / 4 / size;
  allocate_sparse(&kUsual, size, count);
  const size_t held = resident_bytes();
  for (int life = 0; life < 6; ++life) {
    release_all(&kUsual, count);
    allocate_sparse(life % 2 == 0 ? &kZeroed : &kUsual, size, count);
  }
  const size_t now = resident_bytes();
  // Some blocks lie at other places now.
  CHECK(now <= 2 * held + 2 * MIB, "%zu bytes: %zu KiB became %zu", size, held / KIB, now / KIB);
}
CASE(what_is_used_again_gets_no_memory) { check_each_size(check_lives); }

CASE(what_realloc_cuts_off_gets_no_memory) {
  enum { kCount = 64 };
  // In its place: a block of a class, which stays what it is, and one by itself.
  static const size_t kBefore[] = {3 * MIB + 200 * KIB, 8 * MIB};
  static const size_t kAfter[] = {3 * MIB + 20 * KIB, 7 * MIB + 200 * KIB};
  for (size_t i = 0; i < sizeof kBefore / sizeof *kBefore; ++i) {
    const size_t less = kAfter[i];
    for (size_t k = 0; k < kCount; ++k) {
      blocks[k] = obtain(kBefore[i]);
      blocks[k][0] = 1;
    }
    const size_t before = page_faults();
    for (size_t k = 0; k < kCount; ++k) {
      blocks[k] = realloc(blocks[k], less);
      CHECK(blocks[k] != NULL && blocks[k][0] == 1, "realloc");
    }
    // The word behind the block lies in another page now.
    const size_t faults = page_faults() - before;
    CHECK(faults <= 3 * kCount + 100, "%zu bytes: %zu page faults", kBefore[i], faults);
    for (size_t k = 0; k < kCount; ++k) free(blocks[k]);
  }
}

static allod_heap_t* heap;
static __typeof__(&allod_heap_new_ex) new_heap;
static __typeof__(&allod_heap_destroy) destroy_heap;
static __typeof__(&allod_heap_malloc) allocate_from;
static void* allocate_in_heap(size_t size) { return allocate_from(heap, size); }
static const struct way kInHeap = {allocate_in_heap, free};

CASE(a_hardened_heap_leaves_untouched_what_was_never_touched) {
  const allod_heap_options_t options = {.struct_size = sizeof options, .hardened = 1};
  memset(blocks, 0, sizeof blocks);
  new_heap = (__typeof__(new_heap))find_function("allod_heap_new_ex");
  destroy_heap = (__typeof__(destroy_heap))find_function("allod_heap_destroy");
  allocate_from = (__typeof__(allocate_from))find_function("allod_heap_malloc");
  for (size_t i = 0; i < kSizeCount; ++i) {
    heap = new_heap(&options);
    CHECK(heap != NULL, "no heap");
    check_first_life(&kInHeap, kSizes[i], 1);
    destroy_heap(heap);
  }
}

// A page that is zero already is the child's as well, and stays so.
CASE(zeros_that_a_child_shares_are_not_copied) {
  enum { kCount = 64 };
  static const size_t kHeld[] = {16 * KIB, 60 * KIB, 100 * KIB};
  for (size_t i = 0; i < sizeof kHeld / sizeof *kHeld; ++i) {
    for (size_t k = 0; k < kCount; ++k) {
      blocks[k] = obtain(kHeld[i]);
      memset(blocks[k], 1, kHeld[i]);
      memset(blocks[k], 0, kHeld[i]);
    }
    int both[2];
    CHECK(pipe(both) == 0, "pipe");
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
      char byte;
      close(both[1]);
      _exit(read(both[0], &byte, 1) == 0 ? 0 : 1);
    }
    const size_t faults = release_all(&kUsual, kCount);
    close(both[0]);
    close(both[1]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child");
    // The pages at both ends of each block, with its words, and what the library has written.
    CHECK(faults <= 3 * kCount + 100, "%zu bytes: %zu page faults to free %d blocks", kHeld[i],
          faults, kCount);
  }
}

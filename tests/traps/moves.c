// Large blocks that are written as a whole. Pages move to the next ones.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

enum { kBlocks = 6, kThreads = 3, kSteps = 40, kStep = 512 };

struct block {
  uint64_t* words;
  size_t count;
  uint64_t stamp;
};
struct set {
  struct block blocks[kBlocks];
  uint64_t seed;
};

static uint64_t next(uint64_t* seed) {
  *seed = *seed * 6364136223846793005U + 1442695040888963407U;
  return *seed >> 33U;
}

// Of 4 to 12 MiB, every word of which is written.
static void write_new(struct block* block, uint64_t* seed) {
  const size_t bytes = 4 * MIB + next(seed) % (8 * MIB);
  block->count = bytes / sizeof *block->words;
  if (next(seed) % 5 == 0) {
    block->words = hidden(calloc(block->count, sizeof *block->words));
    CHECK(block->words != NULL, "calloc of %zu bytes", bytes);
    for (size_t i = 0; i < block->count; ++i) CHECK(block->words[i] == 0, "word %zu is not 0", i);
  } else {
    block->words = obtain(bytes);
  }
  block->stamp = next(seed);
  for (size_t i = 0; i < block->count; ++i) block->words[i] = block->stamp + i;
}

static void verify(const struct block* block) {
  for (size_t i = 0; i < block->count; ++i) {
    CHECK(block->words[i] == block->stamp + i, "word %zu of %zu changed", i, block->count);
  }
}

static void verify_all(const struct set* set) {
  for (int i = 0; i < kBlocks; ++i) verify(&set->blocks[i]);
}

static void replace_some(struct set* set, int steps) {
  for (int i = 0; i < steps; ++i) {
    struct block* const block = &set->blocks[next(&set->seed) % kBlocks];
    verify(block);
    free(block->words);
    write_new(block, &set->seed);
  }
}

static void* replace_in_thread(void* seed) {
  struct set set = {.seed = *(const uint64_t*)seed};
  for (int i = 0; i < kBlocks; ++i) write_new(&set.blocks[i], &set.seed);
  replace_some(&set, kSteps);
  verify_all(&set);
  for (int i = 0; i < kBlocks; ++i) free(set.blocks[i].words);
  return NULL;
}

CASE(blocks_keep_what_they_hold_while_pages_move) {
  static uint64_t seeds[kThreads] = {1, 2, 3};
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) threads[i] = start_thread(replace_in_thread, &seeds[i]);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
}

// What parent and child share is copied when one of them writes; it moves all the same.
CASE(blocks_of_parent_and_child_are_apart_while_pages_move) {
  static struct set set = {.seed = 7};
  static uint64_t seed = 8;
  for (int i = 0; i < kBlocks; ++i) write_new(&set.blocks[i], &set.seed);
  replace_some(&set, 2 * kBlocks);
  pthread_t other = start_thread(replace_in_thread, &seed);
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
      verify_all(&set);
      replace_some(&set, 2 * kBlocks);
      verify_all(&set);
      _exit(0);
    }
    replace_some(&set, kBlocks);
    verify_all(&set);
    expect_success(child);
  }
  pthread_join(other, NULL);
}

static size_t locked_kib(void) {
  char line[256];
  size_t kib = 0;
  FILE* const status = fopen("/proc/self/status", "r");
  CHECK(status != NULL, "no status of the process");
  while (fgets(line, sizeof line, status) != NULL) {
    if (strncmp(line, "VmLck:", 6) == 0) kib = strtoul(line + 6, NULL, 10);
  }
  fclose(status);
  return kib;
}

// The system unlocks what pages have moved from.
CASE(locked_memory_stays_locked) {
  static struct set set = {.seed = 9};
  for (int i = 0; i < kBlocks; ++i) write_new(&set.blocks[i], &set.seed);
  replace_some(&set, 2 * kBlocks);
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) skip_case("no memory may be locked");
  const size_t before = locked_kib();
  replace_some(&set, 4 * kBlocks);
  const size_t after = locked_kib();
  CHECK(after >= before, "%zu KiB of %zu are locked", after, before);
  verify_all(&set);
}

// As a program does that limits itself to less than it has.
CASE(a_limit_below_what_is_mapped_breaks_no_block) {
  static struct set set = {.seed = 10};
  for (int i = 0; i < kBlocks; ++i) write_new(&set.blocks[i], &set.seed);
  replace_some(&set, 4 * kBlocks);
  const struct rlimit limit = {.rlim_cur = 64 * MIB, .rlim_max = RLIM_INFINITY};
  CHECK(syscall(SYS_prlimit64, 0, RLIMIT_AS, &limit, NULL) == 0, "prlimit64");
  for (int i = 0; i < 4 * kBlocks; ++i) {
    struct block* const block = &set.blocks[next(&set.seed) % kBlocks];
    free(block->words);
    block->words = hidden(malloc((4 + next(&set.seed) % 8) * MIB));
    if (block->words == NULL) block->words = obtain(MIB);
    block->count = MIB / sizeof *block->words;
    for (size_t word = 0; word < block->count; ++word) block->words[word] = block->stamp + word;
  }
  verify_all(&set);
}

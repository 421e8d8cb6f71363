// What stays resident of a program that had threads on every processor. Blocks hold a pattern,
// which is checked when they are freed. Prints the resident KiB at the peak and after a rest.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kLine = 64, kSlots = 64, kBoxes = 2048, kMostThreads = 512, kRestSeconds = 5 };

static long operations;
static int thread_count;
static size_t largest;
static pthread_barrier_t barrier;

static _Noreturn void fail(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

// --- blocks
// ---------------------------------------------------------------------------------------

static uint32_t next(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}
// From 16 bytes to 32 KiB, each doubling as often as any other.
static size_t any_size(uint64_t* state) {
  const size_t least = (size_t)16 << next(state) % 11;
  return least + next(state) % least;
}
// The first word is the size, and bytes behind it are the lowest byte of the size: one in each
// cache line, which an emulated processor writes and reads in time.
static void* block_of(size_t bytes) {
  size_t* const block = malloc(bytes);
  if (block == NULL) fail("no memory");
  block[0] = bytes;
  for (size_t i = sizeof bytes; i < bytes; i += kLine) ((unsigned char*)block)[i] = bytes & 0xff;
  return block;
}
static void end(void* block) {
  if (block == NULL) return;
  const size_t bytes = *(size_t*)block;
  const unsigned char* const all = block;
  for (size_t i = sizeof bytes; i < bytes; i += kLine) {
    if (all[i] != (bytes & 0xff)) fail("a block has lost its contents");
  }
  free(block);
}

// --- what threads do
// ------------------------------------------------------------------------------

// One block of each size, on one processor.
static void* visit(void* number) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((int)(intptr_t)number, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) fail("sched_setaffinity");
  for (size_t power = 128; power < largest; power *= 2) {
    for (size_t size = power; size < 2 * power; size += power / 8) end(block_of(size));
  }
  return NULL;
}
// Blocks of the thread's own.
static void* own(void* number) {
  void* slots[kSlots] = {0};
  uint64_t state = (uintptr_t)number;
  pthread_barrier_wait(&barrier);
  for (long i = 0; i < operations; ++i) {
    void** const slot = &slots[next(&state) % kSlots];
    if (*slot != NULL) {
      end(*slot);
      *slot = NULL;
    } else {
      *slot = block_of(any_size(&state));
    }
  }
  for (int i = 0; i < kSlots; ++i) end(slots[i]);
  return NULL;
}
// Blocks that another thread frees.
static void* _Atomic boxes[kBoxes];
static void* pass(void* number) {
  uint64_t state = (uintptr_t)number;
  pthread_barrier_wait(&barrier);
  for (long i = 0; i < operations; ++i) {
    void* const block = block_of(any_size(&state));
    end(atomic_exchange(&boxes[next(&state) % (uint32_t)(16 * thread_count) % kBoxes], block));
  }
  return NULL;
}
// A little work, and then nothing.
static void* idle(void* number) {
  uint64_t state = (uintptr_t)number;
  for (long i = 0; i < operations; ++i) end(block_of(16 + next(&state) % 1000));
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  return NULL;
}

// --- all of them
// ----------------------------------------------------------------------------------

static long kib(const char* path, const char* name) {
  FILE* const file = fopen(path, "r");
  char line[256];
  long found = -1;
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, name, strlen(name)) == 0) found = atol(line + strlen(name));
  }
  if (file != NULL) fclose(file);
  return found;
}
static pthread_t start(void* (*work)(void*), intptr_t number) {
  pthread_attr_t small;
  pthread_t thread;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 << 10);
  if (pthread_create(&thread, &small, work, (void*)number) != 0) fail("pthread_create");
  return thread;
}

int main(int count, char** arguments) {
  if (count != 4) fail("rest visit|own|pass|idle THREADS OPERATIONS|LARGEST");
  const char* const mode = arguments[1];
  thread_count = atoi(arguments[2]);
  operations = atol(arguments[3]);
  largest = (size_t)operations;
  if (thread_count < 1 || thread_count > kMostThreads) fail("too many threads");
  const int is_visit = strcmp(mode, "visit") == 0;
  const int is_idle = strcmp(mode, "idle") == 0;
  void* (*const work)(void*) = is_visit                    ? visit
                               : is_idle                   ? idle
                               : strcmp(mode, "own") == 0  ? own
                               : strcmp(mode, "pass") == 0 ? pass
                                                           : NULL;
  if (work == NULL) fail("no such mode");
  pthread_barrier_init(&barrier, NULL, (unsigned)thread_count + 1);
  pthread_t threads[kMostThreads];
  for (int i = 0; i < thread_count; ++i) {
    threads[i] = start(work, i);
    if (is_visit) pthread_join(threads[i], NULL);
  }
  // All are there before any begins, so that as many work at a time in each run.
  if (!is_visit) pthread_barrier_wait(&barrier);
  if (is_idle) sleep(kRestSeconds);
  const long resting = is_idle ? kib("/proc/self/smaps_rollup", "Rss:") : 0;
  if (is_idle) pthread_barrier_wait(&barrier);
  for (int i = 0; i < thread_count && !is_visit; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < kBoxes; ++i) end(atomic_exchange(&boxes[i], NULL));
  if (!is_idle) sleep(kRestSeconds);
  printf("peak %ld rest %ld\n", kib("/proc/self/status", "VmHWM:"),
         is_idle ? resting : kib("/proc/self/smaps_rollup", "Rss:"));
  return 0;
}

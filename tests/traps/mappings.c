// Mappings, of which a process may have so many: 65,530 where nobody has said otherwise.
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

enum { kPage = 65536, kMostThreads = 4 };

static size_t parameter(const char* name, size_t otherwise) {
  const char* const text = getenv(name);
  return text == NULL ? otherwise : strtoul(text, NULL, 10);
}

// Without allocating.
static long mappings(void) {
  static char buffer[1 << 16];
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0, "no list of mappings");
  long lines = 0;
  for (ssize_t got; (got = read(file, buffer, sizeof buffer)) > 0;) {
    for (ssize_t i = 0; i < got; ++i) lines += buffer[i] == '\n';
  }
  close(file);
  return lines;
}

static char* taken;  // every second page of it is a mapping
static size_t taken_pages;

// Until the system refuses one more.
static void take_all_mappings(void) {
  enum { kMost = 1 << 21 };
  taken = mmap(NULL, (size_t)kMost * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
               -1, 0);
  CHECK(taken != MAP_FAILED, "no addresses");
  while (taken_pages < kMost && mprotect(taken + taken_pages * kPage, kPage, PROT_READ) == 0) {
    taken_pages += 2;
  }
  if (taken_pages >= kMost) skip_case("a process may have millions of mappings here");
}

static void allocate(size_t total, size_t bytes) {
  for (size_t got = 0; got < total; got += bytes) {
    char* const block = hidden(malloc(bytes));
    CHECK(block != NULL, "%zu of %zu MiB in blocks of %zu", got >> 20, total >> 20, bytes);
    for (size_t at = 0; at < bytes && at < 4096; at += 64) block[at] = 1;
  }
}

// A child of a process would not do: Linux does not lengthen the mappings that it has inherited.
CASE(a_process_that_is_short_of_mappings_gets_memory) {
  const size_t bytes = parameter("TEST_BYTES", 1000);
  free(obtain(100));
  take_all_mappings();
  for (size_t left = parameter("TEST_LEFT", 4); left > 0; left -= left < 2 ? left : 2) {
    taken_pages -= 2;
    CHECK(mprotect(taken + taken_pages * kPage, kPage, PROT_NONE) == 0, "mprotect");
  }
  allocate(bytes < 1000 ? 128 * MIB : 600 * MIB, bytes);
}

// Neighbours have different rights: the same would make them one mapping, which would go on to take
// the addresses behind a region.
static void take_one_mapping_more(void) {
  int rights = PROT_EXEC;
  while (mmap(NULL, kPage, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
    rights ^= PROT_READ;
  }
}

// Linux grants one more than the number says, and then refuses even what would lengthen another.
CASE(a_process_with_one_mapping_more_than_it_may_have_gets_memory) {
  allocate(MIB, 1000);
  take_all_mappings();
  for (int i = 0; i < 300; ++i) {
    take_one_mapping_more();
    allocate(MIB, 1000);
  }
}

static pthread_barrier_t barrier;
static size_t thread_total, thread_bytes;

// A sixteenth first; of the rest, every fifth block is freed.
static void* fill_and_free_some(void* unused) {
  const size_t count = thread_total / thread_bytes;
  char** const blocks = obtain(count * sizeof *blocks);
  allocate(thread_total / 16, thread_bytes);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);  // mappings are counted in between
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = obtain(thread_bytes);
    blocks[i][0] = 1;
  }
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  for (size_t i = 0; i < count; ++i) {
    // In runs, so that spans become free.
    if (i * thread_bytes / (256 * KIB) % 5 == 0) free(blocks[i]);
  }
  malloc_trim(0);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  return unused;
}

static long count_between_barriers(void) {
  pthread_barrier_wait(&barrier);
  const long count = mappings();
  pthread_barrier_wait(&barrier);
  return count;
}

CASE(a_gibibyte_takes_two_mappings) {
  const unsigned threads = (unsigned)parameter("TEST_THREADS", 1);
  thread_bytes = parameter("TEST_BYTES", 1000);
  thread_total = ((size_t)1 << 30) / threads;
  pthread_barrier_init(&barrier, NULL, threads + 1);
  pthread_t ids[kMostThreads];
  CHECK(threads <= kMostThreads, "%u threads", threads);
  for (unsigned i = 0; i < threads; ++i) ids[i] = start_thread(fill_and_free_some, NULL);
  const long before = count_between_barriers();
  const long full = count_between_barriers();
  const long purged = count_between_barriers();
  for (unsigned i = 0; i < threads; ++i) pthread_join(ids[i], NULL);
  CHECK(full <= before + 2, "%ld mappings became %ld", before, full);
  // Where holes are, no huge pages are to be: one more. Blocks of tens of megabytes are given back
  // with their addresses, and leave holes.
  const long holes = thread_bytes > 32 * MIB ? (long)(1 + (1 << 30) / thread_bytes) : 0;
  CHECK(purged <= full + 1 + holes, "%ld mappings became %ld after frees", full, purged);
}

// A hole takes any block of this size at first, and it is not aligned.
CASE(blocks_beside_a_hole_merge) {
  enum { kSlice = 64 * KIB, kBlocks = 8 };
  const size_t bytes = 1526 * (size_t)kSlice;
  char* const around =
      mmap(NULL, bytes + 4 * kSlice, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(around != MAP_FAILED, "mmap");
  char* const hole = around + kSlice - (uintptr_t)around % kSlice + 4096;
  CHECK(munmap(hole, bytes + 4096) == 0, "munmap");
  *(char*)obtain(bytes) = 1;
  const long before = mappings();
  for (int i = 0; i < kBlocks; ++i) *(char*)obtain(bytes) = 1;
  CHECK(mappings() <= before + 2, "%ld mappings became %ld", before, mappings());
}

// Pages that moved are mappings of their own, until they are given back.
CASE(replaced_blocks_take_few_mappings) {
  enum { kBlocks = 20, kSteps = 400 };
  static char* blocks[kBlocks];
  const long before = mappings();
  unsigned turn = 1;
  for (int i = 0; i < kSteps; ++i) {
    char** const block = &blocks[turn % kBlocks];
    turn = turn * 1103515245 + 12345;
    free(*block);
    const size_t bytes = 4 * MIB + (turn >> 8) % (12 * MIB);
    *block = obtain(bytes);
    for (size_t at = 0; at < bytes; at += 4096) (*block)[at] = 1;
  }
  const long between = mappings();
  CHECK(between < before + 8192, "%ld mappings became %ld", before, between);
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  malloc_trim(0);
  // Linux does not merge two mappings that were written to while they were apart.
  const long after = mappings();
  CHECK(after < before + 64, "%ld mappings became %ld, and %ld after frees", before, between,
        after);
}

// For a debugger that writes a core file, and the kernel, which does.
__attribute__((noinline)) void stand_here(void) { __asm__ volatile("" ::: "memory"); }

CASE(ten_mebibytes_are_live) {
  allocate(10 * MIB, 1000);
  stand_here();
  if (getenv("TEST_ABORT") != NULL) abort();
}

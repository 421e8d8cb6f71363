// Does something countable between two looks at the statistics, each a line of JSON on standard
// output.
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "numbers.h"

enum { kMany = 1000, kThreads = 6 };
static unsigned char* blocks[kMany];

CASE(looks_only) {
  write_stats();
  write_stats();
}

CASE(holds_1000_blocks_of_100) {
  write_stats();
  allocate_touched(blocks, kMany, 100);
  write_stats();
  free_touched(blocks, kMany, 100);
  write_stats();
}

// The statistics at the end are all that these two show.
CASE(ends_with_nothing) {}
CASE(ends_with_1000_blocks_of_100) { allocate_touched(blocks, kMany, 100); }

CASE(holds_blocks_of_many_sizes) {
  enum { kSizes = 300 };
  static unsigned char* mixed[kSizes];
  write_stats();
  for (size_t i = 0; i < kSizes; ++i) {
    allocate_touched(mixed + i, 1, (i * i * i) % (300 * KIB));
  }
  write_stats();
  for (size_t i = 0; i < kSizes; i += 2) {
    free_touched(mixed + i, 1, (i * i * i) % (300 * KIB));
  }
  write_stats();
}

CASE(holds_3_huge_blocks) {
  write_stats();
  allocate_touched(blocks, 3, 5 * MIB + 1);
  write_stats();
  free_touched(blocks, 3, 5 * MIB + 1);
  write_stats();
}

CASE(uses_a_huge_block_6_times) {
  // The first free starts the helper, without which nothing is kept.
  for (int i = 0; i < 2; ++i) {
    allocate_touched(blocks, 1, 5 * MIB);
    free_touched(blocks, 1, 5 * MIB);
  }
  write_stats();
  for (int i = 0; i < 4; ++i) {
    allocate_touched(blocks, 1, 5 * MIB);
    free_touched(blocks, 1, 5 * MIB);
  }
  write_stats();
}

static void* free_blocks(void* unused) {
  free_touched(blocks, kMany, 100);
  return unused;
}
CASE(another_thread_frees_1000_blocks) {
  allocate_touched(blocks, kMany, 100);
  write_stats();
  run_thread(free_blocks, NULL);
  write_stats();
  malloc_trim(0);
  write_stats();
}

// So much that the thread gets a domain of its own, if there is a place.
static void do_much(void) {
  for (int i = 0; i < 5000; ++i) {
    free(obtain(40000));
  }
}

static void* allocate_blocks(void* unused) {
  do_much();
  allocate_touched(blocks, kMany, 100);
  return unused;
}
CASE(a_thread_leaves_1000_blocks) {
  write_stats();
  run_thread(allocate_blocks, NULL);
  write_stats();
  free_touched(blocks, kMany, 100);
  malloc_trim(0);
  write_stats();
}

CASE(trims_8_mib) {
  // Of one block, that is no class's.
  write_stats();
  allocate_touched(blocks, 1, 8 * MIB);
  free_touched(blocks, 1, 8 * MIB);
  write_stats();
  CHECK(malloc_trim(0) == 1, "malloc_trim finds nothing");
  write_stats();
}

CASE(is_refused_once) {
  write_stats();
  CHECK(hidden(malloc(hidden_size((size_t)127 << 40))) == NULL, "127 TiB are there");
  write_stats();
}

static pthread_barrier_t barrier;
static void* stay(void* much) {
  if (much != NULL) {
    do_much();
  }
  void* block = obtain(1000);
  printf("%ld\n", syscall(SYS_gettid));
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  free(block);
  return NULL;
}
// The ids of the threads come first.
static void six_threads_come_and_go(void* much) {
  pthread_t ids[kThreads];
  CHECK(pthread_barrier_init(&barrier, NULL, kThreads + 1) == 0, "pthread_barrier_init");
  for (size_t i = 0; i < kThreads; ++i) ids[i] = start_thread(stay, much);
  pthread_barrier_wait(&barrier);
  printf("%d\n", getpid());
  fflush(stdout);
  write_stats();
  pthread_barrier_wait(&barrier);
  for (size_t i = 0; i < kThreads; ++i) {
    CHECK(pthread_join(ids[i], NULL) == 0, "pthread_join");
  }
  write_stats();
}

CASE(six_threads_do_little) { six_threads_come_and_go(NULL); }
CASE(six_threads_do_much) { six_threads_come_and_go(blocks); }

// Of sizes that are classes each, more than a thread does before it has a domain of its own.
enum { kSizes = 40 };
static void* start_on_processor(void* processor) {
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET((size_t)(uintptr_t)processor, &here);
  CHECK(pthread_setaffinity_np(pthread_self(), sizeof here, &here) == 0, "pthread_setaffinity_np");
  for (size_t round = 0; round < 20; ++round) {
    unsigned char* mine[kSizes];
    for (size_t i = 0; i < kSizes; ++i) {
      mine[i] = obtain((5 + i % 4) << (2 + i / 4));
    }
    for (size_t i = 0; i < kSizes; ++i) {
      free(mine[i]);
    }
  }
  return NULL;
}
CASE(threads_start_on_all_processors) {
  cpu_set_t all;
  CHECK(sched_getaffinity(0, sizeof all, &all) == 0, "sched_getaffinity");
  for (size_t processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &all)) {
      run_thread(start_on_processor, (void*)(uintptr_t)processor);
    }
  }
  write_stats();
}

static atomic_bool enough;
static void* contend(void* unused) {
  while (!atomic_load(&enough)) {
    free(obtain(5 * MIB));
  }
  return unused;
}
CASE(threads_wait_for_locks) {
  pthread_t ids[kThreads];
  write_stats();
  const uint64_t before = stats().contended;
  for (size_t i = 0; i < kThreads; ++i) ids[i] = start_thread(contend, NULL);
  for (uint64_t start = now_ms(); stats().contended == before;) {
    CHECK(now_ms() < start + 20000, "%d threads never have to wait for each other", kThreads);
  }
  atomic_store(&enough, true);
  for (size_t i = 0; i < kThreads; ++i) {
    CHECK(pthread_join(ids[i], NULL) == 0, "pthread_join");
  }
  write_stats();
}

// The statistics twice as JSON, with glibc's forms of them between, and nothing allocated.
CASE(all_forms) {
  static char buffer[64 * KIB];
  CHECK(setvbuf(stdout, buffer, _IOFBF, sizeof buffer) == 0, "setvbuf");
  allocate_touched(blocks, kMany, 300);
  free_touched(blocks, kMany / 2, 300);
  blocks[0] = obtain(20 * MIB);
  free(obtain(9 * MIB));
  write_stats();
  const struct mallinfo2 wide = mallinfo2();
  const allod_stats_t summary = stats();
  CHECK(malloc_info(0, stdout) == 0, "malloc_info");
  printf("\n");
  fflush(stdout);
  write_stats();
  printf(
      "{\"arena\": %zu, \"hblks\": %zu, \"hblkhd\": %zu, \"uordblks\": %zu, "
      "\"fordblks\": %zu, \"keepcost\": %zu}\n",
      wide.arena, wide.hblks, wide.hblkhd, wide.uordblks, wide.fordblks, wide.keepcost);
  printf(
      "{\"live\": %zu, \"live_blocks\": %zu, \"cached\": %zu, \"free_in_slabs\": %zu, "
      "\"dirty\": %zu, \"clean\": %zu, \"reserved\": %zu, \"metadata\": %zu, \"huge\": %zu, "
      "\"huge_blocks\": %zu, \"purges\": %zu, \"purged\": %zu, \"moves\": %zu, "
      "\"moved\": %zu, \"remote_frees\": %zu, \"contended\": %zu}\n",
      summary.live, summary.live_blocks, summary.cached, summary.free_in_slabs, summary.dirty,
      summary.clean, summary.reserved, summary.metadata, summary.huge, summary.huge_blocks,
      (size_t)summary.purges, (size_t)summary.purged, (size_t)summary.moves, (size_t)summary.moved,
      (size_t)summary.remote_frees, (size_t)summary.contended);
}

// A line for each number that the system has of this process.
static void write_file(const char* path, const char* start, const char* name) {
  static char line[4096];
  FILE* file = fopen(path, "r");
  CHECK(file != NULL, "cannot read %s", path);
  while (fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, start, strlen(start)) == 0) {
      printf("%s %s\n", name, line + strlen(start));
    }
  }
  fclose(file);
}
static void write_what_the_system_says(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage");
  printf("minor %ld\nmajor %ld\n", usage.ru_minflt, usage.ru_majflt);
  write_file("/proc/self/status", "VmRSS:", "resident");
  write_file("/proc/self/status", "VmHWM:", "peak");
  write_file("/proc/self/smaps_rollup", "Rss:", "mapped_resident");
  write_file("/proc/self/maps", "", "map");
  fflush(stdout);
}
CASE(agrees_with_the_system) {
  // What is written takes its memory before it is counted.
  write_what_the_system_says();
  allocate_touched(blocks, kMany, 1000);
  allocate_touched(blocks, 1, 9 * MIB);
  unsigned char* many[2] = {NULL, NULL};
  allocate_touched(many, 1, 32 * MIB);
  free_touched(many, 1, 32 * MIB);
  malloc_trim(0);
  write_what_the_system_says();
  write_stats();
  malloc_stats();
  write_what_the_system_says();
}
CASE(agrees_after_another_program) {
  // A fault for each page.
  const size_t size = 96 * MIB;
  char* memory =
      mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(memory != MAP_FAILED, "mmap");
  madvise(memory, size, MADV_NOHUGEPAGE);
  memset(memory, 1, size);
  char* arguments[] = {(char*)"statistics", (char*)"agrees_with_the_system", NULL};
  execv("/proc/self/exe", arguments);
  CHECK(false, "execv");
}

// Takes the text in, and allocates each time a block of another class.
struct collected {
  char text[64 * KIB];
  size_t length;
  size_t calls;
};
static size_t size_of_call(size_t call) { return call < 8 ? 16 * (call + 1) : 256 * (call - 7); }
static void collect(const char* text, size_t length, void* context) {
  struct collected* all = context;
  CHECK(length <= sizeof all->text - all->length, "there is too much text");
  memcpy(all->text + all->length, text, length);
  all->length += length;
  free(obtain(size_of_call(all->calls++)));
}
static pthread_barrier_t stay_barrier;
static void* stay_with_blocks(void* unused) {
  static atomic_size_t next;
  do_much();
  void* block = obtain(16 + 64 * atomic_fetch_add(&next, 1));
  pthread_barrier_wait(&stay_barrier);
  pthread_barrier_wait(&stay_barrier);
  free(block);
  return unused;
}
static void* leave_blocks(void* unused) {
  do_much();
  for (size_t call = 0; call < 64; ++call) {
    hidden(obtain(size_of_call(call)));
  }
  return unused;
}
// Many domains, so that text is handed over while they are listed, and orphans, which are adopted
// by whoever allocates then.
CASE(the_receiver_of_the_text_allocates) {
  enum { kCrowd = 40 };
  static pthread_t crowd[kCrowd];
  static struct collected all;
  CHECK(pthread_barrier_init(&stay_barrier, NULL, kCrowd + 1) == 0, "pthread_barrier_init");
  for (size_t i = 0; i < kCrowd; ++i) crowd[i] = start_thread(stay_with_blocks, NULL);
  run_thread(leave_blocks, NULL);
  pthread_barrier_wait(&stay_barrier);
  void (*json)(allod_write_t, void*) =
      (void (*)(allod_write_t, void*))find_function("allod_stats_json");
  // The other threads wait for this one, so that nobody else can end a deadlock.
  alarm(5);
  json(collect, &all);
  alarm(0);
  CHECK(all.calls > 3, "the text comes in %zu pieces", all.calls);
  CHECK(write(STDOUT_FILENO, all.text, all.length) == (ssize_t)all.length, "write");
  pthread_barrier_wait(&stay_barrier);
  for (size_t i = 0; i < kCrowd; ++i) {
    CHECK(pthread_join(crowd[i], NULL) == 0, "pthread_join");
  }
}

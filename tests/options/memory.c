// What options do to memory. Each case holds with the options that the test sets for it, and not
// with certain others.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "numbers.h"

enum { kMuch = 64 * MIB, kSmall = 1000, kSmallBlocks = kMuch / kSmall + 1 };
static unsigned char* many[kSmallBlocks];

// What the case itself needs is resident from the start.
static void settle(void) {
  memset(many, 0, sizeof many);
  free(obtain(1));
  (void)stats();
}

static size_t patience_ms(void) {
  const char* text = getenv("TEST_PATIENCE_MS");
  return text == NULL ? 120000 : strtoul(text, NULL, 10);
}

// From here on, a new thread is the end of the process.
static void filter(struct sock_filter* instructions, size_t count) {
  struct sock_fprog program = {.len = (unsigned short)count, .filter = instructions};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    skip_case("seccomp: %s", strerrorname_np(errno));
  }
}
static void forbid_threads(void) {
  struct sock_filter instructions[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, (unsigned)SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, (unsigned)SECCOMP_RET_ALLOW),
  };
  filter(instructions, sizeof instructions / sizeof *instructions);
}
// As in containers, and where the kernel was made without it.
static void refuse_to_compare_processes(void) {
  struct sock_filter instructions[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kcmp, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, (unsigned)(SECCOMP_RET_ERRNO | EPERM)),
      BPF_STMT(BPF_RET | BPF_K, (unsigned)SECCOMP_RET_ALLOW),
  };
  filter(instructions, sizeof instructions / sizeof *instructions);
}

// Slow paths, on which the library gives memory back.
static void use_the_heap(void) {
  for (int i = 0; i < 100; ++i) {
    free(obtain(5 * MIB));
    free(obtain(40 * KIB + (size_t)i * 8 * KIB));
  }
}

static const struct {
  size_t count;
  size_t size;
} kShapes[] = {{1, kMuch}, {8, 8 * MIB}, {64, MIB}, {640, kMuch / 640}, {kSmallBlocks, kSmall}};
enum { kShapeCount = sizeof kShapes / sizeof *kShapes };

// What may stay: a large block or two, and what a huge page has beyond the last block. Nobody has
// had that, so nobody gives it back before its addresses are used.
static size_t most_that_stays(void) {
  const char* huge_pages = getenv("ALLOD_HUGE_PAGES");
  return huge_pages != NULL && strcmp(huge_pages, "never") == 0 ? 3 * MIB : 5 * MIB;
}

CASE(memory_goes_back_at_once) {
  settle();
  for (size_t i = 0; i < kShapeCount; ++i) {
    const size_t before = resident_bytes();
    allocate_touched(many, kShapes[i].count, kShapes[i].size);
    const size_t held = resident_bytes();
    CHECK(held >= before + kMuch - 4 * MIB, "%zu KiB more", (held - before) / KIB);
    free_touched(many, kShapes[i].count, kShapes[i].size);
    const size_t after = resident_bytes();
    CHECK(after <= before + most_that_stays(), "blocks of %zu bytes: %zu KiB stay", kShapes[i].size,
          (after - before) / KIB);
    CHECK(stats().dirty == 0, "%zu bytes are kept", stats().dirty);
  }
}

// What was freed is all there, and goes when it is asked for.
static void trim_what_stays(size_t before, size_t shape) {
  const size_t after = resident_bytes();
  CHECK(after >= before + kMuch - 6 * MIB, "blocks of %zu bytes: only %zu KiB stay",
        kShapes[shape].size, (after - before) / KIB);
  CHECK(malloc_trim(0) == 1, "malloc_trim finds nothing");
  const size_t trimmed = resident_bytes();
  CHECK(trimmed <= before + most_that_stays(),
        "blocks of %zu bytes: %zu KiB stay after malloc_trim", kShapes[shape].size,
        (trimmed - before) / KIB);
}
CASE(memory_stays_until_told) {
  settle();
  forbid_threads();
  for (size_t i = 0; i < kShapeCount; ++i) {
    const size_t before = resident_bytes();
    allocate_touched(many, kShapes[i].count, kShapes[i].size);
    const allod_stats_t held = stats();
    free_touched(many, kShapes[i].count, kShapes[i].size);
    use_the_heap();
    CHECK(stats().purges == held.purges, "memory was given back");
    trim_what_stays(before, i);
    CHECK(stats().purges > held.purges, "giving back is not counted");
  }
}

// While it waits the program does nothing at all with its heap.
static void wait_until_resident(size_t most) {
  for (uint64_t start = now_ms(); resident_bytes() > most;) {
    CHECK(now_ms() < start + patience_ms(), "%zu KiB stay", (resident_bytes() - most) / KIB);
    pass_a_millisecond();
  }
}
static void wait_until_alone(void) {
  for (uint64_t start = now_ms(); thread_count() > 1;) {
    CHECK(now_ms() < start + patience_ms(), "there are %zu threads", thread_count());
    pass_a_millisecond();
  }
}

CASE(memory_goes_back_while_idle) {
  settle();
  for (size_t i = 0; i < kShapeCount; ++i) {
    const size_t before = resident_bytes();
    allocate_touched(many, kShapes[i].count, kShapes[i].size);
    free_touched(many, kShapes[i].count, kShapes[i].size);
    wait_until_resident(before + 6 * MIB);
    wait_until_alone();
  }
}

static void fork_and_wait(void) {
  const pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) _exit(0);
  CHECK(waitpid(child, NULL, 0) == child, "waitpid");
}
// A fork ends the thread that gives memory back, wherever it is with that.
CASE(memory_goes_back_while_idle_after_a_fork) {
  settle();
  for (size_t i = 0; i < kShapeCount; ++i) {
    const size_t before = resident_bytes();
    allocate_touched(many, kShapes[i].count, kShapes[i].size);
    free_touched(many, kShapes[i].count, kShapes[i].size);
    fork_and_wait();
    wait_until_resident(before + 6 * MIB);
  }
}
CASE(memory_goes_back_while_idle_that_was_freed_after_forks) {
  settle();
  for (size_t i = 0; i < kShapeCount; ++i) {
    const size_t before = resident_bytes();
    allocate_touched(many, kShapes[i].count, kShapes[i].size);
    for (int forks = 0; forks < 2; ++forks) fork_and_wait();
    free_touched(many, kShapes[i].count, kShapes[i].size);
    wait_until_resident(before + 6 * MIB);
  }
}
// The child has no thread of its parent's.
CASE(memory_goes_back_while_a_child_is_idle) {
  settle();
  const size_t before = resident_bytes();
  allocate_touched(many, 64, MIB);
  free_touched(many, 64, MIB);
  const pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) {
    wait_until_resident(before + 6 * MIB);
    allocate_touched(many, 64, MIB);
    free_touched(many, 64, MIB);
    wait_until_resident(before + 6 * MIB);
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child has %x", (unsigned)status);
}

// A thread that allocates what others free. Then it sleeps until it is told to end, or has ended.
typedef struct {
  pthread_t id;
  size_t shape;
  pthread_barrier_t made, over;
  bool sleeps;
} Maker;

static void* make(void* argument) {
  Maker* maker = argument;
  allocate_touched(many, kShapes[maker->shape].count, kShapes[maker->shape].size);
  pthread_barrier_wait(&maker->made);
  if (maker->sleeps) {
    pthread_barrier_wait(&maker->over);
  }
  return NULL;
}
// Calls `check` with what was resident before, for each shape and both ways.
static void free_what_others_make(void (*check)(size_t before, size_t shape)) {
  for (size_t i = 0; i < 2 * kShapeCount; ++i) {
    Maker maker = {.shape = i / 2, .sleeps = i % 2 == 0};
    CHECK(pthread_barrier_init(&maker.made, NULL, 2) == 0, "pthread_barrier_init");
    CHECK(pthread_barrier_init(&maker.over, NULL, 2) == 0, "pthread_barrier_init");
    const size_t before = resident_bytes();
    maker.id = start_thread(make, &maker);
    pthread_barrier_wait(&maker.made);
    if (!maker.sleeps) {
      CHECK(pthread_join(maker.id, NULL) == 0, "pthread_join");
    }
    free_touched(many, kShapes[maker.shape].count, kShapes[maker.shape].size);
    check(before, maker.shape);
    if (maker.sleeps) {
      pthread_barrier_wait(&maker.over);
      CHECK(pthread_join(maker.id, NULL) == 0, "pthread_join");
    }
  }
}
static void wait_until_back(size_t before, size_t shape) {
  (void)shape;
  wait_until_resident(before + 6 * MIB);
}
CASE(memory_that_others_free_goes_back_while_idle) {
  settle();
  free_what_others_make(wait_until_back);
}
CASE(memory_that_others_free_stays_until_told) {
  settle();
  free_what_others_make(trim_what_stays);
}

// The child runs in the memory of its parent, but its threads end with it. What POSIX forbids, and
// works elsewhere.
static void free_much_in_a_child_of_vfork(void) {
  const size_t before = resident_bytes();
  // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork)
  const pid_t child = vfork();
  CHECK(child >= 0, "vfork");
  if (child == 0) {
    allocate_touched(many, kShapes[0].count, kShapes[0].size);
    free_touched(many, kShapes[0].count, kShapes[0].size);
    _exit(0);
  }
  CHECK(waitpid(child, NULL, 0) == child, "waitpid");
  allocate_touched(many, kShapes[0].count, kShapes[0].size);
  free_touched(many, kShapes[0].count, kShapes[0].size);
  wait_until_resident(before + 6 * MIB);
}

CASE(memory_goes_back_after_a_child_of_vfork_has_freed_much) {
  settle();
  free_much_in_a_child_of_vfork();
}
CASE(memory_goes_back_where_nobody_tells_of_whom_it_is) {
  settle();
  refuse_to_compare_processes();
  free_much_in_a_child_of_vfork();
}

// Half of the blocks are freed and allocated again, so that slow paths are taken and no span comes
// or goes.
static void replace_half_of(unsigned char** blocks, size_t count) {
  for (size_t i = 0; i < count; i += 2) {
    free_touched(blocks + i, 1, kSmall);
  }
  for (size_t i = 0; i < count; i += 2) {
    allocate_touched(blocks + i, 1, kSmall);
  }
}

// Not by a thread, and not before the program does something.
CASE(memory_goes_back_without_a_thread) {
  enum { kKept = 4000 };
  static unsigned char* kept[kKept];
  settle();
  forbid_threads();
  for (size_t i = 0; i < kKept; ++i) {
    allocate_touched(kept + i, 1, kSmall);
  }
  replace_half_of(kept, kKept);
  const size_t before = resident_bytes();
  allocate_touched(many, 64, MIB);
  free_touched(many, 64, MIB);
  for (uint64_t start = now_ms(); resident_bytes() > before + 6 * MIB;) {
    CHECK(now_ms() < start + patience_ms(), "%zu KiB stay", (resident_bytes() - before) / KIB);
    replace_half_of(kept, kKept);
    pass_a_millisecond();
  }
  CHECK(thread_count() == 1, "there are %zu threads", thread_count());
}

// A program that is never idle for long uses a small part of what it has freed.
CASE(memory_goes_back_while_some_of_it_is_used) {
  settle();
  const size_t before = resident_bytes();
  allocate_touched(many, 64, MIB);
  free_touched(many, 64, MIB);
  for (uint64_t start = now_ms(); resident_bytes() > before + kMuch / 2;) {
    CHECK(now_ms() < start + patience_ms(), "%zu KiB stay", (resident_bytes() - before) / KIB);
    use_the_heap();
    pass_a_millisecond();
  }
}

CASE(no_thread_is_started) {
  settle();
  forbid_threads();
  for (size_t i = 0; i < kShapeCount; ++i) {
    allocate_touched(many, kShapes[i].count, kShapes[i].size);
    free_touched(many, kShapes[i].count, kShapes[i].size);
    use_the_heap();
  }
}

// Every other of 128 blocks is freed, so that none has a free neighbour.
static size_t dirty_after_freeing_64_of_128_mib(void) {
  const size_t dirty = stats().dirty;
  allocate_touched(many, 128, MIB);
  for (size_t i = 0; i < 128; i += 2) {
    free(many[i]);
    many[i] = NULL;
  }
  const size_t result = stats().dirty;
  free_touched(many, 128, MIB);
  return result - dirty;
}

CASE(budget_of_4_mib_is_kept) {
  settle();
  const size_t dirty = dirty_after_freeing_64_of_128_mib();
  CHECK(dirty <= 6 * MIB, "%zu KiB are kept", dirty / KIB);
}

// In a container that may have 256 MiB.
CASE(budget_is_a_part_of_the_containers_limit) {
  settle();
  const size_t dirty = dirty_after_freeing_64_of_128_mib();
  CHECK(dirty <= 18 * MIB, "%zu KiB are kept", dirty / KIB);
  CHECK(dirty >= 14 * MIB, "only %zu KiB are kept", dirty / KIB);
}

CASE(budget_of_4_mib_is_kept_among_neighbours) {
  settle();
  const size_t before = resident_bytes();
  allocate_touched(many, 64, MIB);
  free_touched(many, 64, MIB);
  CHECK(stats().dirty <= 6 * MIB, "%zu KiB are kept", stats().dirty / KIB);
  CHECK(resident_bytes() <= before + 8 * MIB, "%zu KiB stay", (resident_bytes() - before) / KIB);
}

CASE(budget_is_what_mallopt_says) {
  settle();
  CHECK(mallopt(M_TRIM_THRESHOLD, 4 * MIB) == 1, "mallopt");
  size_t dirty = dirty_after_freeing_64_of_128_mib();
  CHECK(dirty <= 6 * MIB, "%zu KiB are kept", dirty / KIB);
  CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1, "mallopt");
  const uint64_t purges = stats().purges;
  dirty = dirty_after_freeing_64_of_128_mib();
  CHECK(stats().purges == purges, "memory is given back although the budget has no limit");
  CHECK(mallopt(M_TRIM_THRESHOLD, 0) == 1, "mallopt");
  use_the_heap();
  CHECK(stats().purges > purges, "no memory is given back although the budget is 0");
}

CASE(pages_move_to_large_blocks) {
  enum { kBlocks = 8, kSteps = 100 };
  static char* blocks[kBlocks];
  unsigned turn = 1;
  for (int i = 0; i < kSteps; ++i) {
    char** const block = &blocks[(turn >> 4) % kBlocks];
    turn = turn * 1103515245 + 12345;
    free(*block);
    const size_t bytes = 5 * MIB + (turn >> 8) % (12 * MIB);
    *block = obtain(bytes);
    for (size_t at = 0; at < bytes; at += 4096) (*block)[at] = 1;
  }
  CHECK(stats().moved > 0, "no page has moved");
  CHECK(stats().moves > 0, "moves are not counted");
}

CASE(options_at_run_time_count) {
  settle();
  CHECK(set_option("PURGE_DELAY", "-1") == 0, "PURGE_DELAY");
  const size_t before = resident_bytes();
  allocate_touched(many, 64, MIB);
  free_touched(many, 64, MIB);
  CHECK(resident_bytes() >= before + kMuch - 6 * MIB, "memory was given back");
  CHECK(set_option("PURGE_DELAY", "0") == 0, "PURGE_DELAY");
  free(obtain(5 * MIB));
  CHECK(resident_bytes() <= before + 6 * MIB, "%zu KiB stay", (resident_bytes() - before) / KIB);
}

CASE(regions_are_as_large_as_told) {
  const char* text = getenv("TEST_REGION_BYTES");
  CHECK(text != NULL, "TEST_REGION_BYTES is not set");
  const size_t bytes = strtoul(text, NULL, 10);
  free(obtain(1));
  CHECK(stats().reserved == bytes, "%zu bytes are reserved", stats().reserved);
  // Small blocks, a slab's worth at a time, until there is a second region.
  size_t count = 0;
  for (; stats().reserved == bytes; count += 64) {
    CHECK(count * KIB <= bytes, "%zu KiB are in use of %zu that are reserved", count, bytes / KIB);
    allocate_touched(many + count, 64, kSmall);
  }
  CHECK(stats().reserved == 2 * bytes, "%zu bytes are reserved", stats().reserved);
  CHECK(count * KIB >= bytes / 2, "a second region after %zu KiB", count);
  for (size_t i = 0; i < count; i += 64) {
    free_touched(many + i, 64, kSmall);
  }
}

CASE(magazines_keep_as_much_as_told) {
  const char* text = getenv("TEST_MOST_CACHED");
  CHECK(text != NULL, "TEST_MOST_CACHED is not set");
  const size_t most = strtoul(text, NULL, 10);
  const size_t before = stats().cached;
  size_t peak = 0;
  for (int round = 0; round < 10; ++round) {
    allocate_touched(many, 1000, 4 * KIB);
    for (size_t i = 0; i < 1000; ++i) {
      free(many[i]);
      many[i] = NULL;
      const size_t cached = stats().cached - before;
      peak = cached > peak ? cached : peak;
    }
  }
  CHECK(peak == most, "%zu bytes are at hand", peak);
}

// --- any setting must be right -----------------------------------------------------------------

enum { kThreads = 4, kSlots = 512, kSteps = 30000 };
static struct {
  pthread_mutex_t lock;
  unsigned char* block;
  size_t size;
} slots[kSlots];

static void* replace_blocks(void* seed) {
  uint64_t random = (uint64_t)(uintptr_t)seed * 0x9e3779b97f4a7c15u + 1;
  for (int step = 0; step < kSteps; ++step) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const size_t slot = (random >> 33) % kSlots;
    const unsigned shift = (random >> 20) % 16;
    const size_t size = ((random >> 40) & 0xffff) >> shift;
    unsigned char* block = obtain(size);
    fill(block, size, slot);
    CHECK(pthread_mutex_lock(&slots[slot].lock) == 0, "pthread_mutex_lock");
    unsigned char* old = slots[slot].block;
    const size_t old_size = slots[slot].size;
    slots[slot].block = block;
    slots[slot].size = size;
    CHECK(pthread_mutex_unlock(&slots[slot].lock) == 0, "pthread_mutex_unlock");
    CHECK(old == NULL || holds(old, old_size, slot), "a block of %zu bytes has changed", old_size);
    free(old);
  }
  return NULL;
}

CASE(blocks_stay_whole) {
  pthread_t ids[kThreads];
  for (size_t i = 0; i < kSlots; ++i) {
    CHECK(pthread_mutex_init(&slots[i].lock, NULL) == 0, "pthread_mutex_init");
  }
  for (size_t i = 0; i < kThreads; ++i) ids[i] = start_thread(replace_blocks, (void*)(i + 1));
  for (size_t i = 0; i < kThreads; ++i) {
    CHECK(pthread_join(ids[i], NULL) == 0, "pthread_join");
  }
  for (size_t i = 0; i < kSlots; ++i) {
    CHECK(slots[i].block == NULL || holds(slots[i].block, slots[i].size, i), "a block has changed");
    free(slots[i].block);
  }
  wait_until_alone();
  ((void (*)(void))find_function("allod_check"))();
}

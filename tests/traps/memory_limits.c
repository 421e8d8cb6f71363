// Limits of the process on its memory: malloc ends with ENOMEM, never with a crash or a hang, and
// what was freed can be had again.
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

// Blocks in a list that needs no memory of its own: each begins with the address of the one before.
struct link {
  struct link* previous;
  size_t size;
};

static size_t allocate_until_refused(struct link** list, size_t size, size_t most) {
  size_t total = 0;
  while (total < most) {
    errno = 0;
    struct link* block = hidden(malloc(size));
    if (block == NULL) {
      CHECK(errno == ENOMEM, "malloc(%zu) set errno to %d", size, errno);
      break;
    }
    block->previous = *list;
    block->size = size;
    *list = block;
    total += size;
  }
  return total;
}

static void free_list(struct link** list) {
  while (*list != NULL) {
    struct link* block = *list;
    *list = block->previous;
    errno = 12345;
    free(block);
    CHECK(errno == 12345, "free set errno to %d", errno);
  }
}

// Every function reports the exhaustion, and none crashes.
static void check_all_refuse(size_t size) {
  void* untouched = &size;
  void* block = untouched;
  errno = 0;
  CHECK(hidden(calloc(1, size)) == NULL && errno == ENOMEM, "calloc(1, %zu)", size);
  errno = 0;
  CHECK(hidden(realloc(NULL, size)) == NULL && errno == ENOMEM, "realloc(NULL, %zu)", size);
  errno = 0;
  CHECK(hidden(aligned_alloc(4096, size)) == NULL && errno == ENOMEM, "aligned_alloc(4096, %zu)",
        size);
  CHECK(posix_memalign(&block, 64, size) == ENOMEM && block == untouched,
        "posix_memalign(&p, 64, %zu)", size);
}

static const size_t kSizes[] = {48, 200, 1000, 5000, 20000, 100000, 400000, MIB, 3 * MIB, 10 * MIB};
enum { kSizeCount = sizeof kSizes / sizeof *kSizes };

// No thread takes what the stack of another needs.
static pthread_barrier_t all_started;

static void* exhaust_in_thread(void* argument) {
  atomic_size_t* total = argument;
  pthread_barrier_wait(&all_started);
  for (int round = 0; round < 3; ++round) {
    struct link* list = NULL;
    atomic_fetch_add(total, allocate_until_refused(&list, 3000, (size_t)64 << 30));
    free_list(&list);
  }
  return NULL;
}

// Fills the address space with blocks of one size after another. `least` is what has to be had of
// each size; a size of megabytes may get half of that, as it needs addresses in one piece, and
// small blocks a quarter, as the debug library notes something about each.
static void exhaust(size_t least, size_t most) {
  size_t first_totals[kSizeCount];
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < kSizeCount; ++i) {
      struct link* list = NULL;
      size_t total = allocate_until_refused(&list, kSizes[i], most);
      size_t needed = kSizes[i] >= MIB ? least / 2 : kSizes[i] < 1000 ? least / 4 : least;
      CHECK(total >= needed, "only %zu KiB in blocks of %zu bytes", total / KIB, kSizes[i]);
      if (total < most) {
        check_all_refuse(most);
      }
      free_list(&list);
      if (round == 0) {
        first_totals[i] = total;
      } else {
        CHECK(total >= first_totals[i] / 10 * 7,
              "%zu KiB in blocks of %zu bytes, %zu KiB the first time", total / KIB, kSizes[i],
              first_totals[i] / KIB);
      }
    }
  }
  exercise(1, 2000);
  // Mixed: small blocks survive the exhaustion by large ones, and grow in vain.
  struct block_set set;
  allocate_set(&set, 1);
  struct link* list = NULL;
  for (size_t i = kSizeCount; i > 0; --i) {
    allocate_until_refused(&list, kSizes[i - 1], most);
  }
  verify_set(&set);
  if (list != NULL && list->size < MIB) {
    struct link* kept = list;
    errno = 0;
    CHECK(hidden(realloc(hidden(kept), most * 2)) == NULL && errno == ENOMEM, "realloc(p, %zu)",
          most * 2);
    CHECK(list == kept && list->size < MIB, "a failing realloc changed the block");
  }
  free_list(&list);
  free_set(&set);
}

static void exhaust_in_threads(void) {
  atomic_size_t total = 0;
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0, "pthread_attr_init");
  CHECK(pthread_attr_setstacksize(&attributes, 128 * KIB) == 0, "pthread_attr_setstacksize");
  enum { kThreads = 3 };
  CHECK(pthread_barrier_init(&all_started, NULL, kThreads) == 0, "pthread_barrier_init");
  pthread_t threads[kThreads];
  for (size_t i = 0; i < kThreads; ++i) {
    CHECK(pthread_create(&threads[i], &attributes, exhaust_in_thread, &total) == 0,
          "pthread_create");
  }
  for (size_t i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  CHECK(atomic_load(&total) > 8 * MIB, "%zu KiB in all threads", atomic_load(&total) / KIB);
  exercise(1, 2000);
}

static int limited_resource;
static rlim_t limit_in_mib;

static void set_limit(void) {
  const struct rlimit limit = {limit_in_mib * MIB, limit_in_mib * MIB};
  CHECK(setrlimit(limited_resource, &limit) == 0, "setrlimit: %s", strerrorname_np(errno));
}

// The same, in a process that has the limit from its start.
static void check_limit(int resource, rlim_t mib, size_t least_mib) {
  if (!is_second_stage()) {
    limited_resource = resource;
    limit_in_mib = mib;
    run_second_stage(set_limit);
    return;
  }
  // What threads had, and freed, must be there for the main thread.
  exhaust_in_threads();
  exhaust(least_mib * MIB, (size_t)mib * MIB);
}

CASE(address_space_of_64_mib) { check_limit(RLIMIT_AS, 64, 24); }
CASE(address_space_of_256_mib) { check_limit(RLIMIT_AS, 256, 160); }
CASE(address_space_of_1_gib) { check_limit(RLIMIT_AS, 1024, 700); }
CASE(data_of_64_mib) { check_limit(RLIMIT_DATA, 64, 24); }
CASE(data_of_256_mib) { check_limit(RLIMIT_DATA, 256, 160); }

// Barely enough for the program and its libraries.
CASE(address_space_of_24_mib) {
  if (!is_second_stage()) {
    limited_resource = RLIMIT_AS;
    limit_in_mib = 24;
    run_second_stage(set_limit);
    return;
  }
  struct link* list = NULL;
  size_t total = allocate_until_refused(&list, 100, 24 * MIB);
  CHECK(total > MIB, "only %zu KiB", total / KIB);
  free_list(&list);
  CHECK(allocate_until_refused(&list, 1000, 24 * MIB) > MIB, "freed memory cannot be had again");
  free_list(&list);
}

// A limit that comes when the heap is in full use, and goes again.
static void check_limit_that_comes(int resource) {
  struct block_set set;
  allocate_set(&set, 1);
  exercise(1, 2000);
  struct rlimit limit = {8 * MIB, RLIM_INFINITY};
  CHECK(setrlimit(resource, &limit) == 0, "setrlimit");
  struct link* list = NULL;
  for (size_t i = kSizeCount; i > 0; --i) {
    size_t total = allocate_until_refused(&list, kSizes[i - 1], (size_t)8 << 30);
    CHECK(total < (size_t)8 << 30, "the limit has no effect on blocks of %zu", kSizes[i - 1]);
  }
  check_all_refuse((size_t)1 << 40);
  verify_set(&set);
  free_list(&list);
  limit.rlim_cur = RLIM_INFINITY;
  CHECK(setrlimit(resource, &limit) == 0, "setrlimit");
  for (size_t i = 0; i < kSizeCount; ++i) {
    CHECK(allocate_until_refused(&list, kSizes[i], 64 * MIB) >= 64 * MIB,
          "blocks of %zu bytes cannot be had when the limit is gone", kSizes[i]);
  }
  free_list(&list);
  free_set(&set);
  exercise(2, 2000);
}

CASE(address_space_limit_that_comes_and_goes) { check_limit_that_comes(RLIMIT_AS); }
CASE(data_limit_that_comes_and_goes) { check_limit_that_comes(RLIMIT_DATA); }

// As vsftpd does, and a shell that is told `ulimit -v`. What was there before stays as it was.
CASE(address_space_limited_by_the_program_itself) {
  struct block_set set;
  allocate_set(&set, 1);
  exercise(1, 2000);
  struct rlimit limit = {512 * MIB, RLIM_INFINITY};
  CHECK(prlimit(getpid(), RLIMIT_AS, &limit, NULL) == 0, "prlimit");
  exhaust(320 * MIB, 512 * MIB);
  verify_set(&set);
  const pid_t child = fork();
  CHECK(child >= 0, "fork: %s", strerrorname_np(errno));
  if (child == 0) {
    exhaust(256 * MIB, 512 * MIB);
    free_set(&set);
    _exit(0);
  }
  expect_success(child);
  limit.rlim_cur = RLIM_INFINITY;
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
  struct link* list = NULL;
  CHECK(allocate_until_refused(&list, 10 * MIB, (size_t)20 << 30) >= (size_t)20 << 30,
        "much cannot be had when the limit is gone");
  free_list(&list);
  free_set(&set);
  exercise(2, 2000);
}

// vsftpd makes its children so. libc does not know, nor do handlers of fork.
CASE(address_space_limited_in_a_bare_child_by_the_program_itself) {
  exercise(1, 2000);
  const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  CHECK(child >= 0, "clone: %s", strerrorname_np(errno));
  if (child == 0) {
    const struct rlimit limit = {512 * MIB, 512 * MIB};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
    exhaust(320 * MIB, 512 * MIB);
    _exit(0);
  }
  expect_success(child);
  exercise(2, 2000);
}

// The parent, whose memory it is, has no limit.
CASE(address_space_limited_in_a_child_of_vfork_by_the_program_itself) {
  exercise(1, 2000);
  // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork)
  const pid_t child = vfork();
  CHECK(child >= 0, "vfork: %s", strerrorname_np(errno));
  if (child == 0) {
    const struct rlimit limit = {32 * MIB, 32 * MIB};
    _exit(setrlimit(RLIMIT_AS, &limit) == 0 ? 0 : 1);
  }
  expect_success(child);
  struct link* list = NULL;
  CHECK(allocate_until_refused(&list, (size_t)1 << 30, (size_t)40 << 30) >= (size_t)40 << 30,
        "the parent cannot have much");
  free_list(&list);
  exercise(2, 2000);
}

static void* wait_for_all(void* unused) {
  pthread_barrier_wait(&all_started);
  return unused;
}

// Nobody may take the page map from under a thread that looks into it.
CASE(address_space_limited_while_a_thread_runs) {
  CHECK(pthread_barrier_init(&all_started, NULL, 2) == 0, "pthread_barrier_init");
  const pthread_t thread = start_thread(wait_for_all, NULL);
  check_limit_that_comes(RLIMIT_AS);
  pthread_barrier_wait(&all_started);
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

// The rest is for processes that have threads, or have had some. All sizes are tried with one
// limit, each in a process of its own.
static void exhaust_late_limit(size_t limit, size_t size) {
  const struct rlimit addresses = {limit, limit};
  CHECK(setrlimit(RLIMIT_AS, &addresses) == 0, "setrlimit: %s", strerrorname_np(errno));
  for (int round = 0; round < 2; ++round) {
    struct link* list = NULL;
    const size_t total = allocate_until_refused(&list, size, limit);
    CHECK(total >= limit / 2, "only %zu of %zu MiB in blocks of %zu bytes", total / MIB,
          limit / MIB, size);
    free_list(&list);
  }
}
static void exhaust_late_limit_in_child(size_t limit, size_t size) {
  const pid_t child = fork();
  CHECK(child >= 0, "fork: %s", strerrorname_np(errno));
  if (child == 0) {
    exhaust_late_limit(limit, size);
    exercise(1, 2000);
    _exit(0);
  }
  expect_success(child);
}
static void* return_at_once(void* unused) { return unused; }
static void have_a_thread_once(void) { run_thread(return_at_once, NULL); }

CASE(late_limit_of_addresses_where_a_thread_was) {
  have_a_thread_once();
  exhaust_late_limit(512 * MIB, 1000);
}
CASE(late_limit_of_addresses_in_children_where_a_thread_was) {
  have_a_thread_once();
  struct block_set set;
  allocate_set(&set, 1);
  exhaust_late_limit_in_child(256 * MIB, 1000);
  exhaust_late_limit_in_child((size_t)1 << 30, 100000);
  exhaust_late_limit_in_child((size_t)3 << 30, 100000);
  verify_set(&set);
  free_set(&set);
}

static atomic_bool is_over;
static atomic_size_t rounds_done;
// Takes blocks of all kinds, which there must be, and asks about memory that is not Allod's.
static void* allocate_until_over(void* number) {
  static char own[64];
  char on_stack[64];
  for (size_t i = (size_t)number; !atomic_load(&is_over); ++i) {
    struct block_set set;
    allocate_set(&set, i);
    verify_set(&set);
    free_set(&set);
    CHECK(malloc_usable_size(hidden(own)) == 0, "a static variable");
    CHECK(malloc_usable_size(hidden(on_stack)) == 0, "a local variable");
    atomic_fetch_add(&rounds_done, 1);
  }
  return NULL;
}
static void limit_beside_threads(void) {
  enum { kThreads = 3 };
  pthread_t threads[kThreads];
  for (size_t i = 0; i < kThreads; ++i) threads[i] = start_thread(allocate_until_over, (void*)i);
  while (atomic_load(&rounds_done) < kThreads) {
    sched_yield();
  }
  // Above what they need, and in steps, each of which narrows the map.
  for (size_t gib = 160; gib >= 2; gib /= 9) {
    const struct rlimit addresses = {gib << 30, gib << 30};
    CHECK(setrlimit(RLIMIT_AS, &addresses) == 0, "setrlimit: %s", strerrorname_np(errno));
    const size_t then = atomic_load(&rounds_done);
    while (atomic_load(&rounds_done) < then + kThreads) {
      sched_yield();
    }
  }
  atomic_store(&is_over, true);
  for (size_t i = 0; i < kThreads; ++i) {
    CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
  }
}
CASE(late_limit_of_addresses_while_threads_allocate) {
  for (int i = 0; i < 8; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0, "fork: %s", strerrorname_np(errno));
    if (child == 0) {
      limit_beside_threads();
      // Takes seconds beside sweeps; threads meet the limit in another way each time, this does
      // not.
      if (i == 0) exhaust_late_limit((size_t)1 << 30, 100000);
      _exit(0);
    }
    expect_success(child);
  }
}

// What is no limit, or none of this process, changes nothing.
CASE(late_limit_of_addresses_that_is_refused) {
  have_a_thread_once();
  const struct rlimit wrong = {2 << 20, 1 << 20};
  CHECK(setrlimit(RLIMIT_AS, &wrong) == -1 && errno == EINVAL, "setrlimit");
  CHECK(setrlimit(RLIMIT_AS, hidden((void*)8)) == -1 && errno == EFAULT, "setrlimit");
  const struct rlimit small = {64 * MIB, 64 * MIB};
  CHECK(prlimit(-1, RLIMIT_AS, &small, NULL) == -1, "prlimit of nobody");
  const pid_t child = fork();
  CHECK(child >= 0, "fork: %s", strerrorname_np(errno));
  if (child == 0) {
    for (;;) pause();
  }
  CHECK(prlimit(child, RLIMIT_AS, &small, NULL) == 0, "prlimit: %s", strerrorname_np(errno));
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child, "kill");
  struct link* list = NULL;
  CHECK(allocate_until_refused(&list, (size_t)1 << 30, (size_t)40 << 30) >= (size_t)40 << 30,
        "the process has the limit of another");
  free_list(&list);
}

// Children of a process at its limit.
CASE(fork_at_the_limit) {
  if (!is_second_stage()) {
    limited_resource = RLIMIT_AS;
    limit_in_mib = 128;
    run_second_stage(set_limit);
    return;
  }
  struct link* list = NULL;
  for (size_t i = kSizeCount; i > 0; --i) {
    allocate_until_refused(&list, kSizes[i - 1], 128 * MIB);
  }
  pid_t child = fork();
  CHECK(child >= 0, "fork: %s", strerrorname_np(errno));
  if (child == 0) {
    free_list(&list);
    exercise(1, 2000);
    _exit(0);
  }
  expect_success(child);
  free_list(&list);
  exercise(2, 2000);
}

static long page_faults(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage");
  return usage.ru_minflt;
}

static bool has_huge_pages(void) {
  char text[64] = "";
  int file = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
  close(file);
  return length > 0 && strstr(text, "[never]") == NULL;
}

// A process with all of its memory locked must not find reservations filled with real pages, nor
// wait for a page of zeros at each of the page map's six million.
static void check_locked(int flags) {
  long faults_before = page_faults();
  if (mlockall(flags) != 0) skip_case("mlockall: %s", strerrorname_np(errno));
  long faults = page_faults() - faults_before;
  CHECK(faults < 100000 || !has_huge_pages(), "mlockall takes %ld page faults", faults);
  size_t before = resident_bytes();
  CHECK(before < 256 * MIB, "mlockall fills %zu KiB", before / KIB);
  exercise(1, 2000);
  void* lump = obtain(32 * MIB);
  memset(lump, 1, 32 * MIB);
  free(lump);
  CHECK(resident_bytes() < before + 256 * MIB, "%zu KiB more after 32 MiB",
        (resident_bytes() - before) / KIB);
  for (int round = 0; round < 20; ++round) {
    struct block_set set;
    allocate_set(&set, (uint64_t)round);
    free_set(&set);
  }
  CHECK(resident_bytes() < before + 256 * MIB, "%zu KiB more after small blocks",
        (resident_bytes() - before) / KIB);
}

CASE(all_memory_locked) { check_locked(MCL_CURRENT | MCL_FUTURE); }
CASE(future_memory_locked) { check_locked(MCL_FUTURE); }

static void make_stack_unlimited(void) {
  const struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_STACK, &limit) != 0) skip_case("setrlimit: %s", strerrorname_np(errno));
}

// With an unlimited stack, mappings grow upwards from the middle of the address space.
CASE(unlimited_stack) {
  if (!is_second_stage()) {
    run_second_stage(make_stack_unlimited);
    return;
  }
  exercise(1, 5000);
  struct link* list = NULL;
  for (size_t i = 0; i < kSizeCount; ++i) {
    CHECK(allocate_until_refused(&list, kSizes[i], 32 * MIB) >= 32 * MIB, "blocks of %zu bytes",
          kSizes[i]);
  }
  free_list(&list);
}

// Blocks that the program has freed, and still points to.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "secrets.h"

static _Thread_local char* volatile of_thread;

CASE(a_pointer_keeps_a_freed_block) {
  static const size_t offsets[] = {0, 40, SIZE - 1, SIZE};
  for (size_t i = 0; i < sizeof offsets / sizeof *offsets; ++i) {
    const secret block = free_one(&global, SIZE, offsets[i]);
    must_keep(block, SIZE, "a global");
    global = NULL;
    must_let_go(block, SIZE, "a global");
  }
}

CASE(a_pointer_may_lie_anywhere) {
  char* volatile* in_block = obtain(sizeof *in_block);
  secret block = free_one(in_block, SIZE, 8);
  must_keep(block, SIZE, "a block in use");
  free((void*)in_block);
  must_let_go(block, SIZE, "a block that is freed itself");

  block = free_one(&of_thread, SIZE, 0);
  must_keep(block, SIZE, "thread-local");
  of_thread = NULL;
  must_let_go(block, SIZE, "thread-local");

  char* volatile local;
  block = free_one(&local, SIZE, 0);
  must_keep(block, SIZE, "the stack");
  local = NULL;
  must_let_go(block, SIZE, "the stack");
}

// Of freed blocks, between the two places and as far from each other as can be.
static void point_from(char* from, char* to) {
  const size_t words = (size_t)(to - from) / sizeof(char*);
  const size_t count = words < POINTERS ? words : POINTERS;
  for (size_t i = 0; i < count; ++i) {
    char* const place = from + (words - 1) * i / (count - 1) * sizeof(char*);
    secrets[secret_count++] = free_one((char* volatile*)(void*)place, SIZE, 8);
  }
}

// Pages in which no block is in use are not read. These have one, among others that are free.
CASE(pointers_may_lie_anywhere_in_blocks_of_any_size) {
  static const size_t sizes[] = {16, 100, 1000, 5000, 40000, 300000, 3 * MIB, 6 * MIB};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    enum { BLOCKS = 25, EACH = 3 };
    char* blocks[BLOCKS];
    for (size_t k = 0; k < BLOCKS; ++k) blocks[k] = obtain(sizes[i]);
    for (size_t k = 0; k < BLOCKS; ++k) {
      if (k % EACH != 1) free(blocks[k]);
    }
    for (size_t k = 1; k < BLOCKS; k += EACH) point_from(blocks[k], blocks[k] + sizes[i]);
    must_keep_secrets("blocks", sizes[i]);
    for (size_t k = 1; k < BLOCKS; k += EACH) free(blocks[k]);
  }
}

CASE(pointers_may_lie_in_what_a_block_has_grown_by) {
  static const size_t sizes[] = {20000, 300000, 2 * MIB, 6 * MIB};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const size_t size = sizes[i] * 3 / 2;
    char* block = realloc(obtain(sizes[i]), size);
    CHECK(block != NULL, "realloc");
    point_from(block + sizes[i], block + size);
    must_keep_secrets("the end", size);
    free(block);
  }
}

CASE(pointers_may_lie_where_nothing_can_be_written_any_more) {
  static const int protections[] = {PROT_READ, PROT_READ | PROT_EXEC};
  for (size_t i = 0; i < sizeof protections / sizeof *protections; ++i) {
    const size_t size = MIB;
    char* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "mmap");
    point_from(memory, memory + size);
    CHECK(mprotect(memory, size, protections[i]) == 0, "mprotect");
    must_keep_secrets("memory that is only read", size);
    CHECK(munmap(memory, size) == 0, "munmap");
  }
}

CASE(large_blocks_are_kept_too) {
  static const size_t sizes[] = {5000, 300000, 6 * MIB};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const secret block = free_one(&global, sizes[i], sizes[i] / 2);
    clear_stack();
    CHECK(!comes_back(block, sizes[i], sizes[i] > MIB ? 150 : 1200), "%zu bytes are used again",
          sizes[i]);
    global = NULL;
    clear_stack();
    void* other = obtain(sizes[i]);
    memset(other, 1, sizes[i]);
    free(other);
  }
}

enum { AT_ONCE = 200, LARGEST = 3000 };
static void* free_much(void* unused) {
  void* blocks[100];
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < 100; ++i) blocks[i] = memset(obtain(i * 37 % LARGEST + 1), 1, 1);
    for (size_t i = 0; i < 100; ++i) free(blocks[i]);
  }
  free(memset(obtain(500 * KIB), 1, 100 * KIB));
  return unused;
}
// Each frees less than is wanted for a sweep, and is gone when that is over.
CASE(what_short_threads_free_does_not_pile_up) {
  pthread_attr_t small;
  CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 64 * KIB) == 0, "attr");
  for (int round = 0; round < 25; ++round) {
    pthread_t threads[AT_ONCE];
    for (int i = 0; i < AT_ONCE; ++i) {
      CHECK(pthread_create(&threads[i], &small, free_much, NULL) == 0, "pthread_create");
    }
    for (int i = 0; i < AT_ONCE; ++i) CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
  }
  // Some 100 to 200, and 700 where it does.
  CHECK(resident_bytes() < (size_t)500 * MIB, "%zu MiB", resident_bytes() / MIB);
}

static secret of_sleeper;
static volatile bool may_end;
static int awake[2];
static void* sleep_with_pointer(void* unused) {
  char* volatile local;
  of_sleeper = free_one(&local, SIZE, 0);
  CHECK(write(awake[1], "x", 1) == 1, "write");
  while (!may_end) usleep(1000);
  CHECK(local != NULL, "a pointer");
  return unused;
}
CASE(the_stack_of_another_thread_counts) {
  pthread_t thread;
  CHECK(pipe(awake) == 0, "pipe");
  thread = start_thread(sleep_with_pointer, NULL);
  char byte;
  CHECK(read(awake[0], &byte, 1) == 1, "read");
  must_keep(of_sleeper, SIZE, "a stack");
  may_end = true;
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

CASE(threads_sweep_beside_each_other) {
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) threads[i] = start_thread(churn, NULL);
  for (int i = 0; i < 4; ++i) CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
}

// The only pointer goes from page to page, to where a sweep was and to where it was not yet.
enum { PLACES = 1 << 20 };
static char* volatile places[PLACES];
static void* move_on(void* unused) {
  uint32_t at = 0;
  for (uint32_t i = 0; !is_over; ++i) {
    const uint32_t next = (at + (i * 2654435761U >> 12)) % PLACES;
    if (next == at) continue;
    places[next] = places[at];
    places[at] = NULL;
    at = next;
  }
  return unused;
}
CASE(a_pointer_may_move) {
  const secret block = free_one(&places[0], SIZE, 50);
  const pthread_t thread = start_thread(move_on, NULL);
  must_keep(block, SIZE, "a place that changes");
  is_over = true;
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

// Private memory of the device is like any other.
CASE(a_pointer_may_lie_in_private_zeros) {
  const int zeros = open("/dev/zero", O_RDWR);
  char* volatile* place = mmap(NULL, 4 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, zeros, 0);
  CHECK(zeros >= 0 && place != MAP_FAILED, "/dev/zero");
  must_keep(free_one(place, SIZE, 0), SIZE, "private zeros");
}

// The system writes each end of a line in a name as four characters.
CASE(mappings_may_have_names_of_any_length) {
  enum { DEPTH = 17, NAME = 250 };
  char name[NAME + 1] = {0};
  memset(name, '\n', NAME);
  for (int i = 0; i < DEPTH; ++i) CHECK(mkdir(name, 0700) == 0 && chdir(name) == 0, "mkdir");
  const int file = open("file", O_RDWR | O_CREAT, 0600);
  CHECK(file >= 0 && ftruncate(file, 4 * KIB) == 0, "file");
  char* volatile* place = mmap(NULL, 4 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  CHECK(place != MAP_FAILED, "mmap");
  must_keep(free_one(place, SIZE, 0), SIZE, "a file with a long name");
  char* volatile local;
  must_keep(free_one(&local, SIZE, 0), SIZE, "the stack above it");
}

static void* keep_and_end(void* unused) {
  must_keep(free_one(&global, SIZE, 0), SIZE, "a global");
  exit(0);
  return unused;
}
// The system takes the process's memory for that of its first thread.
CASE(the_first_thread_may_have_ended) {
  start_thread(keep_and_end, NULL);
  pthread_exit(NULL);
}

static void* keep_below_stack(void* memory) {
  point_from(memory, (char*)memory + 4 * KIB);
  must_keep_secrets("what lies below a stack", 4 * KIB);
  return NULL;
}
CASE(a_stack_may_lie_above_other_memory) {
  enum { BYTES = MIB };
  char* memory = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED, "mmap");
  pthread_attr_t attributes;
  pthread_t thread;
  CHECK(pthread_attr_init(&attributes) == 0, "attributes");
  CHECK(pthread_attr_setstack(&attributes, memory + BYTES, BYTES) == 0, "stack");
  CHECK(pthread_create(&thread, &attributes, keep_below_stack, memory) == 0, "create");
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

// Of another thread, whose pointers are those of blocks that were this one's: they come back here.
static char* volatile* _Atomic of_other_thread;
static void keep_for_other_thread(const char* where, int times) {
  while (of_other_thread == NULL) continue;
  char* const begin = (char*)of_other_thread;
  point_from(begin, begin + POINTERS * sizeof(char*));
  clear_stack();
  for (int i = 0; i < times; ++i) {
    CHECK(sweeps_without(secrets, secret_count, SIZE, SWEEPS, where) > 0, "no sweeps");
  }
  is_over = true;
}

static void wait_until_over(int signal) {
  while (!is_over || signal == 0) continue;
}
static void* keep_for_first_thread(void* unused) {
  keep_for_other_thread("a stack that was left for one of signals", 1);
  return unused;
}
__attribute__((noinline)) static void take_signal_below(void) {
  char* volatile local[POINTERS] = {NULL};
  of_other_thread = local;
  CHECK(raise(SIGUSR1) == 0 && local[0] != NULL, "raise");
}
// What is in use of the usual stack lies below then.
CASE(a_signal_stack_may_lie_on_the_stack_of_the_first_thread) {
  char memory[64 * KIB];
  const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
  struct sigaction action = {.sa_handler = wait_until_over, .sa_flags = SA_ONSTACK};
  CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0, "signal");
  const pthread_t thread = start_thread(keep_for_first_thread, NULL);
  take_signal_below();
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

static void* resize_in_place(void* unused) {
  enum { ROOM = 20000 };
  char* block = obtain(ROOM);
  of_other_thread = (char* volatile*)(void*)block;
  for (size_t i = 0; !is_over; ++i) {
    char* const same = realloc(block, ROOM - 8 * (i & 1));
    CHECK(same == block, "it has moved");
  }
  free(block);
  return unused;
}
CASE(a_block_that_is_resized_is_looked_at) {
  const pthread_t thread = start_thread(resize_in_place, NULL);
  keep_for_other_thread("a block in realloc", 20);
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

// What cannot be seen for now is kept for now.
CASE(nothing_is_let_go_of_while_there_are_no_descriptors) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  const rlim_t most = limit.rlim_cur;
  const secret block = free_one(&global, SIZE, 0);
  limit.rlim_cur = 0;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  CHECK(!comes_back(block, SIZE, 100000), "used again");
  limit.rlim_cur = most;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  must_keep(block, SIZE, "a global");
  global = NULL;
  must_let_go(block, SIZE, "a global");
}

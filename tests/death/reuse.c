// In which order blocks are handed out, and when one that was freed is handed out again.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "functions.h"

enum { kBlocks = 64, kFewerThanWait = 50 };

static size_t size(void) { return parameter("TEST_SIZE"); }

CASE(blocks_one_after_the_other) {
  const bool zeroed = parameter("TEST_ZEROED") != 0;
  uintptr_t before = 0;
  uintptr_t ascending = 0;
  for (int i = 0; i < kBlocks; ++i) {
    const uintptr_t block = (uintptr_t)hidden(zeroed ? calloc(1, size()) : malloc(size()));
    ascending += block > before;
    before = block;
  }
  tell("ascending", ascending);
  survive();
}

static void* freed;
// One of those that keep their slab from going away.
static void free_one(void) {
  for (int i = 0; i < kFewerThanWait; ++i) {
    allocating_function(size());
  }
  freed = hidden(malloc(size()));
  freeing_function(freed);
}
static uintptr_t is_handed_out(void) {
  uintptr_t found = 0;
  for (int i = 0; i < kFewerThanWait; ++i) {
    found |= hidden(malloc(size())) == freed;
  }
  return found;
}
static void* free_one_in_thread(void* unused) {
  free_one();
  return unused;
}
static void* look_in_thread(void* found) {
  *(uintptr_t*)found = is_handed_out();
  return NULL;
}

CASE(reuse_after_requests_that_fail) {
  free_one();
  CHECK(hidden(malloc((size_t)1 << 46)) == NULL && errno == ENOMEM, "malloc has memory");
  CHECK(hidden(calloc(1, (size_t)1 << 46)) == NULL && errno == ENOMEM, "calloc has memory");
  tell("reused", is_handed_out());
  survive();
}

// An attacker frees so many blocks of their own, of another size, before they allocate.
CASE(reuse_after_frees_of_others) {
  free_one();
  for (int i = 0; i < 250; ++i) freeing_function(allocating_function(24));
  tell("reused", is_handed_out());
  survive();
}

// On one processor, whose cache both threads have.
CASE(reuse_by_the_thread_that_comes_next) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
  uintptr_t found = 0;
  run_thread(free_one_in_thread, NULL);
  const pthread_t thread = start_thread(look_in_thread, &found);
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
  tell("reused", found);
  survive();
}

// Made after those of the library.
static pthread_key_t key;
static void set_key(void) { CHECK(pthread_setspecific(key, &key) == 0, "pthread_setspecific"); }
// Is this the round of destructors that the test asks for? If not, there is one more.
static bool is_last_round(void) {
  static size_t rounds;
  if (++rounds == parameter("TEST_ROUND")) return true;
  set_key();
  return false;
}

static uintptr_t found_at_end;
static void free_and_look(void* unused) {
  (void)unused;
  if (!is_last_round()) return;
  free_one();
  found_at_end = is_handed_out();
}
static void* end_with_destructor(void* unused) {
  free_one();
  set_key();
  return unused;
}

CASE(reuse_in_the_destructor_of_a_thread) {
  CHECK(pthread_key_create(&key, free_and_look) == 0, "pthread_key_create");
  run_thread(end_with_destructor, NULL);
  tell("reused", found_at_end);
  survive();
}

static void free_told_block(void* unused) {
  (void)unused;
  freed = tell_block(hidden(malloc(size())));
  freeing_function(freed);
}
static void write_to_freed(void) { ((volatile unsigned char*)hidden(freed))[1] = 1; }
static void write_after_free(void* unused) {
  free_told_block(unused);
  write_to_freed();
}

// What waits when its thread ends.
CASE(write_after_free_by_a_thread_that_ends) {
  on_another_thread(write_after_free, NULL);
  survive();
}
static void write_in_last_round(void* unused) {
  if (is_last_round()) write_after_free(unused);
}
static void free_and_set_key(void* unused) {
  (void)unused;
  free_one();
  set_key();
}
CASE(write_after_free_in_the_destructor_of_a_thread) {
  CHECK(pthread_key_create(&key, write_in_last_round) == 0, "pthread_key_create");
  on_another_thread(free_and_set_key, NULL);
}
// What waits when its thread has ended, and the process ends.
CASE(write_to_what_an_ended_thread_has_freed) {
  on_another_thread(free_told_block, NULL);
  write_to_freed();
}

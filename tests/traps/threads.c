// The beginnings and ends of threads.
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

// Keys before and after any that the allocator may create, and so destructors before and after its
// own.
static pthread_key_t first_key;
static pthread_key_t last_key;
static atomic_int destructor_calls;

struct key_value {
  struct block_set set;
  void* foreign;
  int rounds;
};

static void destroy_again_and_again(pthread_key_t key, struct key_value* value) {
  atomic_fetch_add(&destructor_calls, 1);
  free_set(&value->set);
  exercise((uintptr_t)value, 200);
  free(value->foreign);
  value->foreign = NULL;
  if (--value->rounds > 0) {
    allocate_set(&value->set, (uint64_t)value->rounds);
    CHECK(pthread_setspecific(key, value) == 0, "pthread_setspecific");
  } else {
    free(value);
    exercise(1, 100);
  }
}
static void destroy_first(void* value) { destroy_again_and_again(first_key, value); }
static void destroy_last(void* value) { destroy_again_and_again(last_key, value); }

static void create_first_key(void) {
  CHECK(pthread_key_create(&first_key, destroy_first) == 0, "pthread_key_create");
}
BEFORE_CONSTRUCTORS(create_first_key);

static struct key_value* new_value(int rounds, void* foreign) {
  struct key_value* value = obtain(sizeof *value);
  allocate_set(&value->set, (uint64_t)rounds);
  value->rounds = rounds;
  value->foreign = foreign;
  return value;
}

static void* leave_key_values(void* foreign) {
  exercise((uintptr_t)foreign, 200);
  void** blocks = foreign;
  CHECK(pthread_setspecific(first_key, new_value(PTHREAD_DESTRUCTOR_ITERATIONS, blocks[0])) == 0,
        "pthread_setspecific");
  CHECK(pthread_setspecific(last_key, new_value(PTHREAD_DESTRUCTOR_ITERATIONS, blocks[1])) == 0,
        "pthread_setspecific");
  return NULL;
}

CASE(key_destructors_allocate_and_free) {
  CHECK(pthread_key_create(&last_key, destroy_last) == 0, "pthread_key_create");
  enum { kRounds = 50, kThreads = 4 };
  for (int round = 0; round < kRounds; ++round) {
    pthread_t threads[kThreads];
    void* foreign[kThreads][2];
    for (size_t i = 0; i < kThreads; ++i) {
      foreign[i][0] = obtain(100 + i);
      foreign[i][1] = obtain(20000 + i);
      threads[i] = start_thread(leave_key_values, foreign[i]);
    }
    for (size_t i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  }
  CHECK(atomic_load(&destructor_calls) == kRounds * kThreads * 2 * PTHREAD_DESTRUCTOR_ITERATIONS,
        "%d calls of destructors", atomic_load(&destructor_calls));
}

// A thread that never allocated before its destructors run.
static void* leave_given_values(void* argument) {
  struct key_value** values = argument;
  CHECK(pthread_setspecific(first_key, values[0]) == 0, "pthread_setspecific");
  CHECK(pthread_setspecific(last_key, values[1]) == 0, "pthread_setspecific");
  return NULL;
}

CASE(first_allocation_in_a_key_destructor) {
  CHECK(pthread_key_create(&last_key, destroy_last) == 0, "pthread_key_create");
  for (int round = 0; round < 100; ++round) {
    struct key_value* values[2] = {new_value(1 + round % 4, obtain(100)),
                                   new_value(1 + round % 3, obtain(100))};
    run_thread(leave_given_values, values);
  }
  CHECK(atomic_load(&destructor_calls) > 0, "no destructor ran");
}

static void* free_given_set(void* argument) {
  free_set(argument);
  return NULL;
}
static void* allocate_given_set(void* argument) {
  allocate_set(argument, (uintptr_t)argument);
  return NULL;
}
static void* resize_given_block(void* argument) {
  void** block = argument;
  *block = hidden(realloc(*block, 50000));
  return NULL;
}

CASE(blocks_outlive_their_thread) {
  for (int round = 0; round < 200; ++round) {
    struct block_set first;
    struct block_set second;
    run_thread(allocate_given_set, &first);
    exercise((uint64_t)round, 100);
    run_thread(allocate_given_set, &second);
    verify_set(&first);
    // Freed by a thread that never allocated, and by the one that always was there.
    run_thread(free_given_set, &first);
    free_set(&second);
  }
}

CASE(blocks_resized_by_another_thread) {
  for (size_t size = 1; size < 200000; size = size * 2 + 3) {
    void* block = obtain(size);
    fill(block, size, 1);
    run_thread(resize_given_block, &block);
    CHECK(block != NULL && holds(block, size < 50000 ? size : 50000, 1),
          "realloc by another thread lost content of %zu bytes", size);
    free(block);
  }
}

static void* leak_nothing(void* argument) {
  struct block_set set;
  allocate_set(&set, (uintptr_t)argument);
  exercise((uintptr_t)argument, 100);
  free_set(&set);
  return NULL;
}

// Until each of the domains that threads share has been used for all sizes, there are new slabs.
CASE(threads_that_end_leave_nothing_stranded) {
  size_t resident = 0;
  size_t mapped = 0;
  for (size_t round = 0; round < 4000; ++round) {
    if (round == 1000) {
      // What is free may be resident or not, as time passes.
      malloc_trim(0);
      resident = resident_bytes();
      mapped = mapped_bytes();
    }
    run_thread(leak_nothing, (void*)round);
  }
  malloc_trim(0);
  CHECK(resident_bytes() < resident + 12 * MIB, "3000 threads leave %zu KiB",
        (resident_bytes() - resident) / KIB);
  CHECK(mapped_bytes() < mapped + 128 * MIB, "3000 threads leave %zu KiB mapped",
        (mapped_bytes() - mapped) / KIB);
}

struct crowd {
  pthread_barrier_t barrier;
  struct block_set sets[300];
};

static void* stand_in_crowd(void* argument) {
  static atomic_size_t next;
  struct crowd* crowd = argument;
  size_t index = atomic_fetch_add(&next, 1);
  allocate_set(&crowd->sets[index], index);
  pthread_barrier_wait(&crowd->barrier);
  free_set(&crowd->sets[(index + 1) % 300]);
  return NULL;
}

CASE(three_hundred_threads_at_once) {
  static struct crowd crowd;
  CHECK(pthread_barrier_init(&crowd.barrier, NULL, 300) == 0, "pthread_barrier_init");
  pthread_t threads[300];
  for (size_t i = 0; i < 300; ++i) {
    threads[i] = start_thread(stand_in_crowd, &crowd);
  }
  for (size_t i = 0; i < 300; ++i) pthread_join(threads[i], NULL);
}

static sem_t detached_done;

static void* end_detached(void* argument) {
  exercise((uintptr_t)argument, 200);
  CHECK(pthread_setspecific(first_key, new_value(2, NULL)) == 0, "pthread_setspecific");
  sem_post(&detached_done);
  return NULL;
}

CASE(detached_threads) {
  CHECK(sem_init(&detached_done, 0, 0) == 0, "sem_init");
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0, "pthread_attr_init");
  CHECK(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0,
        "pthread_attr_setdetachstate");
  for (int round = 0; round < 100; ++round) {
    for (uintptr_t i = 0; i < 5; ++i) {
      pthread_t thread;
      CHECK(pthread_create(&thread, &attributes, end_detached, (void*)i) == 0, "pthread_create");
    }
    for (int i = 0; i < 5; ++i) {
      sem_wait(&detached_done);
    }
  }
  // The process may end while the last of them are still ending.
}

static void clean_up(void* set) { free_set(set); }

static void* wait_to_be_cancelled(void* argument) {
  int* descriptors = argument;
  struct block_set set;
  allocate_set(&set, 1);
  pthread_cleanup_push(clean_up, &set);
  put(descriptors[1], 'r');
  sem_t forever;
  sem_init(&forever, 0, 0);
  for (;;) {
    exercise(1, 50);
    sem_wait(&forever);
  }
  pthread_cleanup_pop(1);
  return NULL;
}

CASE(cancelled_threads_clean_up) {
  int descriptors[2];
  CHECK(pipe(descriptors) == 0, "pipe");
  for (int round = 0; round < 200; ++round) {
    pthread_t thread = start_thread(wait_to_be_cancelled, descriptors);
    char ready = 0;
    CHECK(read(descriptors[0], &ready, 1) == 1, "read");
    CHECK(pthread_cancel(thread) == 0, "pthread_cancel");
    void* result = NULL;
    pthread_join(thread, &result);
    CHECK(result == PTHREAD_CANCELED, "the thread was not cancelled");
  }
}

struct cancelled_worker {
  sem_t may_start;
  atomic_bool finished;
};

static void* allocate_while_cancelled(void* argument) {
  struct cancelled_worker* worker = argument;
  int state = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
  sem_wait(&worker->may_start);
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
  // From here a cancellation is pending, and the first cancellation point would take it.
  for (uint64_t seed = 1; seed < 10; ++seed) {
    struct block_set set;
    allocate_set(&set, seed);
    exercise(seed, 500);
    free_set(&set);
    void* lump = obtain(40 * MIB);
    memset(lump, 1, 40 * MIB);
    free(lump);
  }
  atomic_store(&worker->finished, true);
  pthread_testcancel();
  return NULL;
}

// malloc and its kin are no cancellation points.
CASE(no_call_is_a_cancellation_point) {
  for (int round = 0; round < 5; ++round) {
    struct cancelled_worker worker;
    CHECK(sem_init(&worker.may_start, 0, 0) == 0, "sem_init");
    atomic_init(&worker.finished, false);
    pthread_t thread = start_thread(allocate_while_cancelled, &worker);
    CHECK(pthread_cancel(thread) == 0, "pthread_cancel");
    sem_post(&worker.may_start);
    void* result = NULL;
    pthread_join(thread, &result);
    CHECK(result == PTHREAD_CANCELED, "the thread was not cancelled");
    CHECK(atomic_load(&worker.finished), "the thread was cancelled while it allocated");
  }
}

static void* spin(void* argument) {
  int* descriptors = argument;
  struct block_set* set = obtain(sizeof *set);
  allocate_set(set, 1);
  pthread_cleanup_push(clean_up, set);
  int old = 0;
  put(descriptors[1], 'r');
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
  for (volatile uint64_t count = 0;; count = count + 1) {
  }
  pthread_cleanup_pop(1);
  return NULL;
}

CASE(asynchronously_cancelled_threads) {
  int descriptors[2];
  CHECK(pipe(descriptors) == 0, "pipe");
  for (int round = 0; round < 100; ++round) {
    pthread_t thread = start_thread(spin, descriptors);
    char ready = 0;
    CHECK(read(descriptors[0], &ready, 1) == 1, "read");
    CHECK(pthread_cancel(thread) == 0, "pthread_cancel");
    pthread_join(thread, NULL);
  }
}

static void* allocate_on_small_stack(void* argument) {
  static const size_t sizes[] = {1, 100, 1000, 10000, 100000, 1000000, 20000000};
  void* blocks[7];
  (void)argument;
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < 7; ++i) {
      blocks[i] = round % 2 == 0 ? malloc(sizes[i]) : calloc(1, sizes[i]);
      if (blocks[i] == NULL) {
        return (void*)1;
      }
      *(unsigned char*)blocks[i] = 1;
    }
    for (size_t i = 0; i < 7; ++i) {
      blocks[i] = realloc(blocks[i], sizes[i] * 2);
      if (blocks[i] == NULL) {
        return (void*)1;
      }
    }
    for (size_t i = 0; i < 7; ++i) {
      free(blocks[i]);
    }
  }
  for (size_t i = 0; i < 3000; ++i) {
    free(malloc(i));
  }
  return NULL;
}

// The smallest stack that threads can have: 16 KiB, less what the C library keeps on it. It lies
// directly above memory that must not change.
CASE(threads_with_the_smallest_stack) {
  size_t size = (size_t)sysconf(_SC_THREAD_STACK_MIN);
  size_t guard = 64 * KIB;
  for (int round = 0; round < 5; ++round) {
    unsigned char* memory = mmap(NULL, guard + size, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    CHECK(memory != MAP_FAILED, "mmap");
    fill(memory, guard, 1);
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0, "pthread_attr_init");
    CHECK(pthread_attr_setstack(&attributes, memory + guard, size) == 0,
          "pthread_attr_setstack of %zu bytes", size);
    pthread_t thread;
    CHECK(pthread_create(&thread, &attributes, allocate_on_small_stack, NULL) == 0,
          "pthread_create");
    void* result = NULL;
    pthread_join(thread, &result);
    CHECK(result == NULL, "an allocation failed");
    CHECK(holds(memory, guard, 1), "a stack of %zu bytes overflowed", size);
    pthread_attr_destroy(&attributes);
    munmap(memory, guard + size);
  }
}

// The main thread ends first; the process ends with its last thread.
struct last_thread {
  pthread_t main;
  int descriptor;
  struct block_set of_main;
};

static void* outlive_main(void* argument) {
  struct last_thread* last = argument;
  pthread_join(last->main, NULL);
  free_set(&last->of_main);
  exercise(1, 5000);
  put(last->descriptor, 'l');
  free(last);
  return NULL;
}

static void* work_a_while(void* argument) {
  exercise((uintptr_t)argument, 5000);
  return NULL;
}

static void end_main_first(int descriptor) {
  struct last_thread* last = obtain(sizeof *last);
  last->main = pthread_self();
  last->descriptor = descriptor;
  allocate_set(&last->of_main, 1);
  CHECK(pthread_setspecific(first_key, new_value(3, obtain(10))) == 0, "pthread_setspecific");
  for (uintptr_t i = 0; i < 3; ++i) {
    pthread_detach(start_thread(work_a_while, (void*)i));
  }
  pthread_detach(start_thread(outlive_main, last));
  put(descriptor, 'm');
  pthread_exit(NULL);
}

CASE(main_thread_ends_first) {
  for (int round = 0; round < 20; ++round) {
    expect_child(end_main_first, 0, "ml");
  }
}

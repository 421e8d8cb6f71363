// What a program does that others have made slow and full of allocations, by standing in front of
// the C library: see interposers.c. Each case holds without them as well.
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

enum { kWorkers = 3, kForks = 30 };

static atomic_bool stop;

static void* work(void* argument) {
  for (uint64_t seed = (uintptr_t)argument; !atomic_load(&stop); seed += kWorkers) {
    exercise(seed, 200);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
  }
  return NULL;
}
// Long enough for a domain of its own.
static void* work_for_a_while(void* argument) {
  exercise((uintptr_t)argument, 700);
  return NULL;
}

CASE(threads_and_forks) {
  pthread_t threads[kWorkers];
  for (uintptr_t i = 0; i < kWorkers; ++i) threads[i] = start_thread(work, (void*)i);
  for (uintptr_t round = 0; round < kForks; ++round) {
    const pthread_t guest = start_thread(work_for_a_while, (void*)round);
    const pid_t child = fork();
    if (child == 0) {
      exercise(round, 300);
      _exit(0);
    }
    expect_success(child);
    pthread_join(guest, NULL);
  }
  atomic_store(&stop, true);
  for (int i = 0; i < kWorkers; ++i) pthread_join(threads[i], NULL);
}

CASE(memory_goes_back_beside_forks) {
  const pthread_t thread = start_thread(work, NULL);
  for (int round = 0; round < kForks; ++round) {
    void* lumps[16];
    for (int i = 0; i < 16; ++i) {
      lumps[i] = obtain(MIB);
      memset(lumps[i], 1, MIB);
    }
    for (int i = 0; i < 16; ++i) free(lumps[i]);
    malloc_trim(0);
    const pid_t child = fork();
    if (child == 0) _exit(0);
    expect_success(child);
  }
  atomic_store(&stop, true);
  pthread_join(thread, NULL);
}

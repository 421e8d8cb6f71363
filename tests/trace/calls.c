// Makes a known number of allocation calls: calls THREADS ROUNDS. With 0 rounds it does all else,
// so that the difference of two traces is what the rounds did.
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMostThreads = 64, kMostRounds = 100000 };

static size_t rounds;
static void* handed[kMostThreads][kMostRounds];
static pthread_key_t key;

static void need(int condition) {
  if (!condition) abort();
}

// Of each round: 8 calls that allocate, 3 that resize, 1 that fails, 8 frees, one of them of the
// block that another thread made; one block is left.
static void round_of_calls(void* others) {
  void* block = malloc(100);
  need(block != NULL);
  free(block);
  block = calloc(10, 20);
  block = realloc(block, 5000);
  block = realloc(block, 60000);
  free(block);
  block = realloc(NULL, 300);
  free(block);
  need(posix_memalign(&block, 64, 64) == 0);
  free(block);
  block = aligned_alloc(4096, 8192);
  free(block);
  block = memalign(256, 100);
  need(block != NULL);
  block = reallocarray(block, 10, 40);
  free(block);
  volatile size_t too_much = PTRDIFF_MAX;
  need(malloc(too_much) == NULL);
  free(NULL);
  free(others);
  block = malloc(0);
  free(block);
  block = malloc(7);
  need(block != NULL);
}

static void free_at_end(void* block) {
  free(block);
  static _Thread_local int again = 0;
  if (++again < 4 && rounds > 0) pthread_setspecific(key, malloc(77));
}

static void* body(void* mine) {
  void** blocks = mine;
  for (size_t i = 0; i < rounds; ++i) round_of_calls(blocks[i]);
  if (rounds > 0) pthread_setspecific(key, malloc(77));
  return NULL;
}

int main(int argc, char** argv) {
  need(argc == 3);
  const size_t threads = strtoul(argv[1], NULL, 10);
  rounds = strtoul(argv[2], NULL, 10);
  need(threads <= kMostThreads && rounds <= kMostRounds);
  pthread_key_create(&key, free_at_end);
  for (size_t t = 0; t < threads; ++t) {
    for (size_t i = 0; i < rounds; ++i) handed[t][i] = malloc(33);
  }
  pthread_t ids[kMostThreads];
  for (size_t t = 0; t < threads; ++t) need(pthread_create(&ids[t], NULL, body, handed[t]) == 0);
  for (size_t t = 0; t < threads; ++t) pthread_join(ids[t], NULL);
  return 0;
}

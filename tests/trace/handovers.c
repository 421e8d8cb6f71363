// Two threads hand blocks to each other, and one of them is alone for a while in between: handovers
// ROUNDS BURST. In each round the main thread makes BURST blocks that it frees at once, and one
// that the other thread frees; the other makes one that the main thread frees. Sizes say which
// round.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { kFromMain = 100000, kFromOther = 200000 };

static size_t rounds;
static void* _Atomic to_other;
static void* _Atomic to_main;

static void give(void* _Atomic* place, void* block) {
  if (block == NULL) abort();
  atomic_store_explicit(place, block, memory_order_release);
}

static void* take(void* _Atomic* place) {
  void* block;
  while ((block = atomic_load_explicit(place, memory_order_acquire)) == NULL) {
    sched_yield();
  }
  atomic_store_explicit(place, NULL, memory_order_relaxed);
  return block;
}

static void* other(void* unused) {
  for (size_t i = 0; i < rounds; ++i) {
    free(take(&to_other));
    give(&to_main, malloc(kFromOther + i));
  }
  return unused;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  rounds = strtoul(argv[1], NULL, 10);
  const size_t burst = strtoul(argv[2], NULL, 10);
  pthread_t thread;
  if (pthread_create(&thread, NULL, other, NULL) != 0) return 1;
  for (size_t i = 0; i < rounds; ++i) {
    for (size_t j = 0; j < burst; ++j) {
      void* volatile block = malloc(24);
      free(block);
    }
    give(&to_other, malloc(kFromMain + i));
    free(take(&to_main));
  }
  pthread_join(thread, NULL);
  return 0;
}

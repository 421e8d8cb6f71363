// Preloaded beside the allocator. Allocates in its constructor and frees in its destructor, either
// of which may run outside the allocator's own; each writes a character to the descriptor that
// TEST_EARLY names.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

static struct block_set kept;
static pthread_key_t key;

static void handler(void) {
  struct block_set set;
  allocate_set(&set, 5);
  free_set(&set);
}

static void destroy(void* value) {
  handler();
  free(value);
}

static void report(char character) {
  const char* descriptor = getenv("TEST_EARLY");
  if (descriptor != NULL) {
    put(atoi(descriptor), character);
  }
}

__attribute__((constructor(101))) static void start(void) {
  allocate_set(&kept, 1);
  CHECK(pthread_atfork(handler, handler, handler) == 0, "pthread_atfork");
  CHECK(pthread_key_create(&key, destroy) == 0, "pthread_key_create");
  CHECK(pthread_setspecific(key, obtain(100)) == 0, "pthread_setspecific");
  report('c');
}

__attribute__((destructor(101))) static void finish(void) {
  free_set(&kept);
  exercise(3, 2000);
  report('d');
}

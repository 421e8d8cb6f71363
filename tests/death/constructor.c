// A library whose constructor waits for a thread that frees a block twice. The loader's lock is
// taken meanwhile.
#include <pthread.h>
#include <stdlib.h>

static void* free_twice(void* block) {
  free(block);
  free(block);
  return NULL;
}

__attribute__((constructor)) static void wait_for_thread(void) {
  void* volatile block = malloc(64);
  pthread_t thread;
  if (pthread_create(&thread, NULL, free_twice, block) == 0) pthread_join(thread, NULL);
}

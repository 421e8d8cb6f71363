// A program without shared libraries that exercises the allocator linked into it.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allod.h"

enum { kBlocks = 20000 };
static unsigned char* blocks[kBlocks];

static size_t size_of(size_t i) { return 1 + i * 7919 % 3000; }

static void* free_all(void* failed) {
  for (size_t i = 0; i < kBlocks; ++i) {
    if (blocks[i][0] != (unsigned char)i || blocks[i][size_of(i) - 1] != (unsigned char)i) {
      return failed;
    }
    free(blocks[i]);
  }
  return NULL;
}

int main(void) {
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks[i] = malloc(size_of(i));
    if (blocks[i] == NULL) return 1;
    memset(blocks[i], (int)i, size_of(i));
  }
  pthread_t thread;
  void* result = NULL;
  if (pthread_create(&thread, NULL, free_all, blocks) != 0) return 2;
  if (pthread_join(thread, &result) != 0 || result != NULL) return 3;
  allod_stats_t stats;
  if (allod_stats_get(&stats, sizeof stats) != 0) return 4;
  printf("%llu freed by another thread\n", (unsigned long long)stats.remote_frees);
  return stats.remote_frees == kBlocks ? 0 : 5;
}

// Small blocks of all sizes are guarded in a program that the allocator is a part of, also those of
// sizes that libc has asked for before any constructor. Compiled by the test, in several ways.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kPage = 4096, kStep = 16, kLargest = 1024, kBlocks = 8, kLaidReady = 8 };

// Blocks that are not guarded lie beside each other, so that hardly any is at an edge.
static int is_at_an_edge(const void* block, size_t size) {
  const uintptr_t at = (uintptr_t)block;
  return at % kPage == 0 || (at + size) % kPage == 0;
}

int main(void) {
  for (size_t size = kStep; size <= kLargest; size += kStep) {
    // By the first allocation of all, which reads the options.
    void* volatile laid_ready = NULL;
    for (int i = 0; i < kLaidReady; ++i) laid_ready = malloc(size);
    (void)laid_ready;
    void* volatile blocks[kBlocks];
    for (int i = 0; i < kBlocks; ++i) blocks[i] = malloc(size);
    for (int i = 0; i < kBlocks; ++i) {
      if (!is_at_an_edge(blocks[i], size)) {
        printf("a block of %zu bytes is not guarded\n", size);
        return 1;
      }
      free(blocks[i]);
    }
  }
  return 0;
}

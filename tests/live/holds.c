// Holds blocks until its input ends, for the page of a system that is emulated or has another libc.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBlocks = 1000, kBytes = 2000 };
static void* held[kBlocks];

__attribute__((noinline)) static void hold_blocks(void) {
  for (int i = 0; i < kBlocks; ++i) {
    held[i] = malloc(kBytes);
    memset(held[i], 1, kBytes);
  }
}

int main(void) {
  char line[16];
  while (fgets(line, sizeof line, stdin) != NULL) {
    hold_blocks();
    puts("done");
    fflush(stdout);
  }
  return 0;
}

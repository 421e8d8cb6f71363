// A program with so many thread-local variables that those of the library are far from the thread
// pointer: the thread that purges must have room for them.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stage.h"

enum { PURGED = 40 * MIB, PATTERN = 0x5a };

static _Thread_local unsigned char variables[MIB];

CASE(purging_leaves_them_alone) {
  memset(variables, PATTERN, sizeof variables);
  for (int i = 0; i < 2; ++i) {
    char* block = obtain(PURGED);
    memset(block, 1, PURGED);
    const size_t full = resident_bytes();
    free(block);
    for (int wait = 0; resident_bytes() > full - PURGED / 2; ++wait) {
      CHECK(wait < 1000, "nothing is purged");
      usleep(10000);
    }
  }
  for (size_t i = 0; i < sizeof variables; ++i) {
    CHECK(variables[i] == PATTERN, "variable %zu", i);
  }
}

// A library that allocates in a function of a name that is told when it is compiled.
#include <stdlib.h>

enum { BLOCKS = 10, SIZE = 1000 };
static void* volatile kept[BLOCKS];

__attribute__((noinline)) void NAME(void) {
  for (int i = 0; i < BLOCKS; ++i) kept[i] = malloc(SIZE);
}
void allocate(void) {
  NAME();
  kept[0] = kept[1];
}

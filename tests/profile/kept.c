// A library that leads to blocks, by variables of its own and of its thread.
#include <stdlib.h>

enum { BLOCKS = 10 };
static void* volatile kept[BLOCKS];
static _Thread_local void* volatile of_thread[BLOCKS];

void keep(void) {
  for (int i = 0; i < BLOCKS; ++i) kept[i] = malloc(99);
}
void keep_for_thread(void) {
  for (int i = 0; i < BLOCKS; ++i) of_thread[i] = malloc(99);
}

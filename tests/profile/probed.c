// Takes one sample and gives it back, for a debugger that looks on.
#include <allod.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  if (allod_profile_start(1) != 0) return 1;
  void* const block = malloc(1000);
  allod_profile_stop();
  printf("%p\n", block);
  fflush(stdout);
  free(block);
}

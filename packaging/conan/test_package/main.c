// Ends well if the program's malloc is Allod's.
#include <allod.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  char* const block = malloc(100);
  const int is_ours = allod_bounds(block, NULL, NULL);
  printf("allod %s: %s\n", allod_version(), is_ours ? "serves malloc" : "does not serve malloc");
  free(block);
  return is_ours ? 0 : 1;
}

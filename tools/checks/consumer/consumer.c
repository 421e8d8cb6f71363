/* A user's program. Prints the file that malloc comes from, as the loader sees it, and ends with
   success if Allod's prefixed functions work. */
#define _GNU_SOURCE
#include <allod.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  void* (*function)(size_t) = malloc;
  void* address;
  memcpy(&address, &function, sizeof address);
  Dl_info info;
  if (dladdr(address, &info) == 0) {
    return 1;
  }
  puts(info.dli_fname);

  char* block = malloc(100);
  char* prefixed = allod_malloc(100);
  if (block == NULL || prefixed == NULL || allod_version() == NULL) {
    return 1;
  }
  memset(block, 1, 100);
  memset(prefixed, 2, 100);
  int intact = block[99] == 1 && prefixed[99] == 2;
  free(block);
  allod_free(prefixed);
  return intact ? 0 : 1;
}

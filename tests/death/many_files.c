// A double free whose functions lie in a file each. Compiled by the test: as the program, and as
// the library of which the others are copies.
#include <dlfcn.h>
#include <stdlib.h>

typedef void function(void* const* rest);

// Calls the first of these functions, with the rest.
void step(void* const* rest) {
  ((function*)rest[0])(rest + 1);
  __asm__ volatile("");
}

static void* volatile block;

static void obtain(void* const* rest) {
  (void)rest;
  block = malloc(100);
}
static void give_back(void* const* rest) {
  (void)rest;
  free(block);
  __asm__ volatile("");
}

// A third of the files, which are the arguments, lies on the way to each of the three calls.
int main(int count, char** arguments) {
  function* const calls[] = {obtain, give_back, give_back};
  const int files = (count - 1) / 3;
  for (int i = 0; i < 3; ++i) {
    void* chain[files + 1];
    for (int k = 0; k < files; ++k) {
      void* const library = dlopen(arguments[1 + i * files + k], RTLD_NOW);
      if (library == NULL) return 2;
      chain[k] = dlsym(library, "step");
    }
    chain[files] = (void*)calls[i];
    step(chain);
  }
  return 1;
}

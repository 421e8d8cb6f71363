// Opens each library that it is told, has it allocate, and closes it: the next one may come to the
// same place.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    void* const library = dlopen(arguments[i], RTLD_NOW);
    if (library == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    void (*allocate)(void) = (void (*)(void))dlsym(library, "allocate");
    if (allocate == NULL) return 1;
    allocate();
    if (dlclose(library) != 0) return 1;
  }
  return 0;
}

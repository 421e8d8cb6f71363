// Opens a library by a path of its own, which the program does not have.
#include <dlfcn.h>
#include <stddef.h>

void* open_by_own_path(const char* name);

void* open_by_own_path(const char* name) {
  void* volatile library = dlopen(name, RTLD_NOW);
  return library;
}

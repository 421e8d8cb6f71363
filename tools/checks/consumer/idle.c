/* A user's program that calls no function of Allod, and not malloc either: what allocates are the
   libraries that it uses. Ends with success if Allod is there. */
#include <dlfcn.h>
#include <stddef.h>

int main(void) { return dlsym(RTLD_DEFAULT, "allod_version") == NULL; }

// The first malloc comes before any constructor, that of libc included, and so before libc knows
// the environment.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "numbers.h"

static void* early_block;
static bool environment_was_unknown;

static void preinitialise(int count, char** arguments, char** environment) {
  (void)count;
  (void)arguments;
  (void)environment;
  environment_was_unknown = environ == NULL;
  early_block = malloc(100);
}
__attribute__((section(".preinit_array"),
               used)) static void (*const preinitialiser)(int, char**, char**) = preinitialise;

CASE(first_malloc_before_libc) {
  CHECK(early_block != NULL, "malloc failed before libc");
  if (!environment_was_unknown) {
    skip_case("the C library knows the environment before any constructor");
  }
  CHECK(stats().reserved == 8 * MIB, "%zu bytes are reserved", stats().reserved);
  memset(early_block, 1, 100);
  free(early_block);
}

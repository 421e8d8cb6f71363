/* Cases of a program: `PROGRAM NAME...` runs these one after the other. A failed check ends it. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      fflush(stderr);                                                 \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

struct test_case {
  const char* name;
  void (*run)(void);
};

static inline int run_cases(const struct test_case* cases, size_t count, int argc, char** argv) {
  for (int named = 1; named < argc; ++named) {
    int is_known = 0;
    for (size_t i = 0; i < count; ++i) {
      if (strcmp(argv[named], cases[i].name) != 0) continue;
      cases[i].run();
      is_known = 1;
    }
    if (!is_known) return 2;
    puts(argv[named]);
    fflush(stdout);
  }
  return 0;
}

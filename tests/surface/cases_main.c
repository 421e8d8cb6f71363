// The main function of every program of cases.
#include <stdio.h>
#include <string.h>

#include "cases.h"

// The linker's names for the ends of the section that CASE fills.
extern const struct test_case* const __start_test_cases[];
extern const struct test_case* const __stop_test_cases[];

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s CASE | --list\n", argv[0]);
    return 2;
  }
  for (const struct test_case* const* entry = __start_test_cases; entry < __stop_test_cases;
       ++entry) {
    if (strcmp(argv[1], "--list") == 0) {
      puts((*entry)->name);
    } else if (strcmp(argv[1], (*entry)->name) == 0) {
      verify_allocator();
      case_name = (*entry)->name;
      (*entry)->run();
      return 0;
    }
  }
  if (strcmp(argv[1], "--list") != 0) {
    fprintf(stderr, "%s: no case named %s\n", argv[0], argv[1]);
    return 2;
  }
  return 0;
}

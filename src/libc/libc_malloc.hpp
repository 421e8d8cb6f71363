// glibc's <malloc.h> declarations for other C libraries. Programs that were compiled against glibc,
// or declare these functions themselves, link against them.
#pragma once
#pragma GCC system_header

#include <malloc.h>

#ifndef __GLIBC__
#include <stddef.h>

struct mallinfo {
  int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 {
  size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

extern "C" {
struct mallinfo mallinfo() noexcept;
struct mallinfo2 mallinfo2() noexcept;
}

enum : int {
  M_MXFAST = 1,
  M_TRIM_THRESHOLD = -1,
  M_TOP_PAD = -2,
  M_MMAP_THRESHOLD = -3,
  M_MMAP_MAX = -4,
  M_CHECK_ACTION = -5,
  M_PERTURB = -6,
  M_ARENA_TEST = -7,
  M_ARENA_MAX = -8,
};
#endif

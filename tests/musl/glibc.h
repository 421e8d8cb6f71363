// Included before the sources of other folders when their programs are built for musl: what these
// use of glibc. The functions of its <malloc.h> are in the library that is tested.
#pragma once

#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#define strerrorname_np strerror
#define LM_ID_NEWLM (-1)
#define M_TRIM_THRESHOLD (-1)
#define M_TOP_PAD (-2)
#define M_MMAP_THRESHOLD (-3)
#define M_MMAP_MAX (-4)
#define M_ARENA_MAX (-8)

struct mallinfo {
  int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 {
  size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo mallinfo(void);
struct mallinfo2 mallinfo2(void);
void* pvalloc(size_t size);
int mallopt(int parameter, int value);
int malloc_trim(size_t pad);
void malloc_stats(void);
int malloc_info(int options, FILE* stream);

// musl has one namespace.
static inline void* dlmopen(long space, const char* file, int mode) {
  (void)space, (void)file, (void)mode;
  return NULL;
}

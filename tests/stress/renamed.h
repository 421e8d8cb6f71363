/* Included before a source that is compiled with a sanitizer: the sanitizer's runtime has a malloc
 * of its own that cannot be replaced, so calls go to Allod by its own names. */
#include <malloc.h>
#include <stdlib.h>

#include "allod.h"

/* Statistics look at what running threads are changing, and say so: nothing to be proved. */
static inline struct mallinfo2 no_mallinfo2(void) {
  struct mallinfo2 none = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  return none;
}

#define malloc allod_malloc
#define calloc allod_calloc
#define realloc allod_realloc
#define free allod_free
#define memalign allod_memalign
#define aligned_alloc allod_aligned_alloc
#define posix_memalign allod_posix_memalign
#define malloc_usable_size allod_malloc_usable_size
#define malloc_trim allod_malloc_trim
#define mallinfo2 no_mallinfo2

// The allocation functions of FreeBSD's libc. jemalloc's other ones, as mallocx and mallctl, stay
// libc's: their blocks are foreign.
#include <errno.h>
#include <malloc_np.h>
#include <stdlib.h>

#include "allod.h"
#include "bsd/reallocate.hpp"

#define ALLOD_EXPORT extern "C" [[gnu::visibility("default")]]

namespace portable = allod::portable;
using portable::Process;
using portable::SetErrno;

ALLOD_EXPORT void* malloc(size_t size) { return Process::allocate<SetErrno>(size); }
ALLOD_EXPORT void free(void* block) { portable::release(block); }
ALLOD_EXPORT void* calloc(size_t count, size_t size) {
  return portable::allocate_zeroed(count, size);
}
ALLOD_EXPORT void* realloc(void* block, size_t size) {
  return portable::reallocate_to_some(block, size);
}
ALLOD_EXPORT void* reallocf(void* block, size_t size) {
  return portable::reallocate_or_free(block, size);
}
ALLOD_EXPORT void* reallocarray(void* block, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return SetErrno::out_of_memory(bytes);
  return realloc(block, bytes);
}
ALLOD_EXPORT void* aligned_alloc(size_t alignment, size_t size) {
  return allod_aligned_alloc(alignment, size);
}
ALLOD_EXPORT int posix_memalign(void** block, size_t alignment, size_t size) {
  return allod_posix_memalign(block, alignment, size);
}
ALLOD_EXPORT void* memalign(size_t alignment, size_t size) {
  return allod_memalign(alignment, size);
}
ALLOD_EXPORT void* valloc(size_t size) { return allod_valloc(size); }
ALLOD_EXPORT size_t malloc_usable_size(const void* block) { return portable::usable_size(block); }

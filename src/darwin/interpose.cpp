// The allocation functions of libmalloc in all images of a process that is started with
// DYLD_INSERT_LIBRARIES, or linked with the library: dyld reads the pairs of a section. Calls from
// here go to libmalloc's own.
#include <errno.h>
#include <malloc/malloc.h>
#include <stdlib.h>

#include "allod.h"
#include "bsd/reallocate.hpp"
#include "darwin/zone.hpp"

namespace portable = allod::portable;
using allod::darwin::kOtherZones;
using portable::Process;
using portable::SetErrno;

namespace {

void* in_place_of_malloc(size_t size) noexcept { return Process::allocate<SetErrno>(size); }
void in_place_of_free(void* block) noexcept { portable::release(block, kOtherZones); }
void* in_place_of_calloc(size_t count, size_t size) noexcept {
  return portable::allocate_zeroed(count, size);
}
void* in_place_of_realloc(void* block, size_t size) noexcept {
  return portable::reallocate_to_some(block, size, kOtherZones);
}
void* in_place_of_reallocf(void* block, size_t size) noexcept {
  return portable::reallocate_or_free(block, size, kOtherZones);
}
void* in_place_of_valloc(size_t size) noexcept { return allod_valloc(size); }
void* in_place_of_aligned_alloc(size_t alignment, size_t size) noexcept {
  return allod_aligned_alloc(alignment, size);
}
int in_place_of_posix_memalign(void** block, size_t alignment, size_t size) noexcept {
  return allod_posix_memalign(block, alignment, size);
}
size_t in_place_of_malloc_size(const void* block) noexcept {
  return portable::usable_size(block, kOtherZones);
}
size_t in_place_of_malloc_good_size(size_t size) noexcept { return portable::good_size(size); }

struct Pair {
  const void* ours;
  const void* theirs;
};

}  // namespace

#define ALLOD_PAIR(name) \
  {reinterpret_cast<const void*>(&in_place_of_##name), reinterpret_cast<const void*>(&name)}

[[gnu::used, gnu::section("__DATA,__interpose")]] static const Pair kPairs[] = {
    ALLOD_PAIR(malloc),           ALLOD_PAIR(free),           ALLOD_PAIR(calloc),
    ALLOD_PAIR(realloc),          ALLOD_PAIR(reallocf),       ALLOD_PAIR(valloc),
    ALLOD_PAIR(aligned_alloc),    ALLOD_PAIR(posix_memalign), ALLOD_PAIR(malloc_size),
    ALLOD_PAIR(malloc_good_size),
};

// libc's allocation functions.
#include <stdio.h>

#include "entry/surface.hpp"
#include "libc/libc_malloc.hpp"
#include "statistics/stats.hpp"

#define ALLOD_EXPORT extern "C" [[gnu::visibility("default"), gnu::hot]]
#if __has_attribute(copy)
#define ALLOD_ALIAS(target) [[gnu::visibility("default"), gnu::alias(#target), gnu::copy(target)]]
#else
#define ALLOD_ALIAS(target) [[gnu::visibility("default"), gnu::alias(#target)]]
#endif

using allod::entry::SetErrno;

// C23's sized frees, glibc's own names, and functions missing in <malloc.h>.
extern "C" {
void cfree(void*) noexcept;
void free_sized(void*, size_t) noexcept;
void free_aligned_sized(void*, size_t, size_t) noexcept;
size_t malloc_good_size(size_t) noexcept;
}

ALLOD_EXPORT void* malloc(size_t size) noexcept { return allod::entry::allocate<SetErrno>(size); }
ALLOD_EXPORT void free(void* block) noexcept { allod::entry::release(block); }
ALLOD_EXPORT void* calloc(size_t count, size_t size) noexcept {
  return allod::entry::allocate_zeroed(count, size);
}
ALLOD_EXPORT void* realloc(void* block, size_t size) noexcept {
  return allod::entry::reallocate(block, size);
}
ALLOD_EXPORT void* reallocarray(void* block, size_t count, size_t size) noexcept {
  return allod::surface::reallocarray(block, count, size);
}
ALLOD_EXPORT void free_sized(void* block, size_t size) noexcept {
  allod::entry::release(block, size);
}
ALLOD_EXPORT void free_aligned_sized(void* block, size_t, size_t size) noexcept {
  allod::entry::release(block, size);
}
ALLOD_EXPORT void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return allod::surface::aligned_alloc(alignment, size);
}
ALLOD_EXPORT int posix_memalign(void** block, size_t alignment, size_t size) noexcept {
  return allod::surface::posix_memalign(block, alignment, size);
}
ALLOD_EXPORT void* memalign(size_t alignment, size_t size) noexcept {
  return allod::surface::memalign(alignment, size);
}
ALLOD_EXPORT void* valloc(size_t size) noexcept { return allod::surface::valloc(size); }
ALLOD_EXPORT void* pvalloc(size_t size) noexcept { return allod::surface::pvalloc(size); }

ALLOD_EXPORT size_t malloc_usable_size(void* block) noexcept {
  return allod::entry::usable_size(block);
}
ALLOD_EXPORT size_t malloc_good_size(size_t size) noexcept {
  return allod::surface::good_size(size);
}
ALLOD_EXPORT int mallopt(int parameter, int value) noexcept {
  return allod::surface::mallopt(parameter, value);
}
ALLOD_EXPORT int malloc_trim(size_t) noexcept { return allod::surface::trim(); }
ALLOD_EXPORT void malloc_stats() noexcept { allod::print_stats_to_stderr(); }
ALLOD_EXPORT int malloc_info(int options, FILE* stream) noexcept {
  if (options != 0) {
    errno = EINVAL;
    return -1;
  }
  const auto write = [](const char* text, std::size_t length, void* file) {
    fwrite(text, 1, length, static_cast<FILE*>(file));
  };
  allod::Text out{write, stream};
  allod::write_stats_xml(out);
  return 0;
}
ALLOD_EXPORT struct mallinfo2 mallinfo2() noexcept {
  const allod_stats_t stats = allod::collect_summary();
  struct mallinfo2 info{};
  info.arena = stats.reserved - stats.huge;
  info.hblks = stats.huge_blocks;
  info.hblkhd = stats.huge;
  info.uordblks = stats.live - stats.huge;
  info.fordblks = stats.cached + stats.free_in_slabs + stats.dirty;
  info.keepcost = stats.dirty;
  return info;
}
// The fields are ints, so the values saturate.
ALLOD_EXPORT struct mallinfo mallinfo() noexcept {
  const struct mallinfo2 wide = mallinfo2();
  const auto narrow = [](size_t value) {
    return value > INT32_MAX ? INT32_MAX : static_cast<int>(value);
  };
  struct mallinfo info{};
  info.arena = narrow(wide.arena);
  info.hblks = narrow(wide.hblks);
  info.hblkhd = narrow(wide.hblkhd);
  info.uordblks = narrow(wide.uordblks);
  info.fordblks = narrow(wide.fordblks);
  info.keepcost = narrow(wide.keepcost);
  return info;
}

extern "C" {
ALLOD_ALIAS(free) void cfree(void*) noexcept;
ALLOD_ALIAS(malloc) void* __libc_malloc(size_t) noexcept;
ALLOD_ALIAS(calloc) void* __libc_calloc(size_t, size_t) noexcept;
ALLOD_ALIAS(realloc) void* __libc_realloc(void*, size_t) noexcept;
ALLOD_ALIAS(free) void __libc_free(void*) noexcept;
ALLOD_ALIAS(free) void __libc_cfree(void*) noexcept;
ALLOD_ALIAS(memalign) void* __libc_memalign(size_t, size_t) noexcept;
ALLOD_ALIAS(valloc) void* __libc_valloc(size_t) noexcept;
ALLOD_ALIAS(pvalloc) void* __libc_pvalloc(size_t) noexcept;
ALLOD_ALIAS(posix_memalign) int __posix_memalign(void**, size_t, size_t) noexcept;
}

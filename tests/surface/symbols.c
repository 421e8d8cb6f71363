// Which library answers to each name.
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"

static const char* const kLibcNames[] = {"malloc",
                                         "calloc",
                                         "realloc",
                                         "reallocarray",
                                         "free",
                                         "cfree",
                                         "free_sized",
                                         "free_aligned_sized",
                                         "posix_memalign",
                                         "aligned_alloc",
                                         "memalign",
                                         "valloc",
                                         "pvalloc",
                                         "malloc_usable_size",
                                         "malloc_good_size",
                                         "mallopt",
                                         "malloc_trim",
                                         "malloc_stats",
                                         "malloc_info",
                                         "mallinfo",
                                         "mallinfo2",
                                         "__libc_malloc",
                                         "__libc_calloc",
                                         "__libc_realloc",
                                         "__libc_free",
                                         "__libc_cfree",
                                         "__libc_memalign",
                                         "__libc_valloc",
                                         "__libc_pvalloc",
                                         "__posix_memalign"};

// operator new and delete: n w and n a are new and new[], d l and d a are delete and delete[]; m is
// a size, St11align_val_t an alignment, RKSt9nothrow_t nothrow.
// The letter of size_t in names of C++.
#if __SIZEOF_POINTER__ == 8
#define SIZE "m"
#else
#define SIZE "j"
#endif
static const char* const kOperatorNames[] = {"_Znw" SIZE,
                                             "_Zna" SIZE,
                                             "_Znw" SIZE "RKSt9nothrow_t",
                                             "_Zna" SIZE "RKSt9nothrow_t",
                                             "_Znw" SIZE "St11align_val_t",
                                             "_Zna" SIZE "St11align_val_t",
                                             "_Znw" SIZE "St11align_val_tRKSt9nothrow_t",
                                             "_Zna" SIZE "St11align_val_tRKSt9nothrow_t",
                                             "_ZdlPv",
                                             "_ZdaPv",
                                             "_ZdlPvRKSt9nothrow_t",
                                             "_ZdaPvRKSt9nothrow_t",
                                             "_ZdlPv" SIZE,
                                             "_ZdaPv" SIZE,
                                             "_ZdlPvSt11align_val_t",
                                             "_ZdaPvSt11align_val_t",
                                             "_ZdlPv" SIZE "St11align_val_t",
                                             "_ZdaPv" SIZE "St11align_val_t",
                                             "_ZdlPvSt11align_val_tRKSt9nothrow_t",
                                             "_ZdaPvSt11align_val_tRKSt9nothrow_t"};

// The twin of each libc name that has one.
static const char* const kPrefixedNames[] = {"allod_malloc",
                                             "allod_calloc",
                                             "allod_realloc",
                                             "allod_reallocarray",
                                             "allod_free",
                                             "allod_free_sized",
                                             "allod_free_aligned_sized",
                                             "allod_posix_memalign",
                                             "allod_aligned_alloc",
                                             "allod_memalign",
                                             "allod_valloc",
                                             "allod_pvalloc",
                                             "allod_malloc_usable_size",
                                             "allod_malloc_good_size",
                                             "allod_mallopt",
                                             "allod_malloc_trim",
                                             "allod_cfree",
                                             "allod_new",
                                             "allod_new_nothrow",
                                             "allod_new_aligned",
                                             "allod_new_aligned_nothrow",
                                             "allod_delete",
                                             "allod_delete_sized",
                                             "allod_delete_aligned",
                                             "allod_delete_sized_aligned"};

static void check_provider(const char* const* names, size_t count) {
  char expected[4096];
  char actual[4096];
  library_under_test(expected);
  for (size_t i = 0; i < count; ++i) {
    void* function = dlsym(RTLD_DEFAULT, names[i]);
    CHECK(function != NULL, "no function named %s", names[i]);
    CHECK(strcmp(provider_of(function, actual), expected) == 0, "%s is provided by '%s'", names[i],
          actual);
  }
}

CASE(libc_names_resolve_to_the_library) {
  check_provider(kLibcNames, sizeof kLibcNames / sizeof *kLibcNames);
}
CASE(operator_names_resolve_to_the_library) {
  check_provider(kOperatorNames, sizeof kOperatorNames / sizeof *kOperatorNames);
}
CASE(prefixed_names_resolve_to_the_library) {
  check_provider(kPrefixedNames, sizeof kPrefixedNames / sizeof *kPrefixedNames);
}

typedef void* (*allocate)(size_t);
typedef void* (*allocate_array)(size_t, size_t);
typedef void* (*reallocate)(void*, size_t);
typedef void* (*reallocate_array)(void*, size_t, size_t);
typedef void (*release)(void*);
typedef void (*release_sized)(void*, size_t);
typedef void (*release_aligned_sized)(void*, size_t, size_t);
typedef int (*allocate_posix)(void**, size_t, size_t);
typedef size_t (*measure)(void*);
typedef size_t (*round_up)(size_t);

// Whatever name a block was allocated by, any name frees it.
CASE(libc_aliases_share_the_heap) {
  release frees[] = {(release)find_function("free"), (release)find_function("__libc_free"),
                     (release)find_function("cfree"), (release)find_function("__libc_cfree")};
  for (size_t size = 1; size <= 4 * MIB; size = size * 3 + 1) {
    for (size_t i = 0; i < 4; ++i) {
      void* blocks[] = {
          ((allocate)find_function("__libc_malloc"))(size),
          ((allocate_array)find_function("__libc_calloc"))(1, size),
          ((reallocate)find_function("__libc_realloc"))(NULL, size),
          ((allocate_array)find_function("__libc_memalign"))(256, size),
          ((allocate)find_function("__libc_valloc"))(size),
          ((allocate)find_function("__libc_pvalloc"))(size),
          NULL,
          obtain(size),
      };
      CHECK(((allocate_posix)find_function("__posix_memalign"))(&blocks[6], 64, size) == 0,
            "__posix_memalign");
      for (size_t j = 0; j < sizeof blocks / sizeof *blocks; ++j) {
        CHECK(blocks[j] != NULL, "alias %zu of %zu bytes", j, size);
        CHECK(j != 1 || is_zero(blocks[j], size), "__libc_calloc is not all zero");
        CHECK(malloc_usable_size(blocks[j]) >= size, "alias %zu of %zu bytes", j, size);
        fill(blocks[j], size, j);
      }
      for (size_t j = 0; j < sizeof blocks / sizeof *blocks; ++j) {
        CHECK(holds(blocks[j], size, j), "blocks of two names overlap");
        frees[i](blocks[j]);
      }
    }
  }
}

CASE(prefixed_twins_work_and_share_the_heap) {
  allocate twin_malloc = (allocate)find_function("allod_malloc");
  allocate_array twin_calloc = (allocate_array)find_function("allod_calloc");
  reallocate twin_realloc = (reallocate)find_function("allod_realloc");
  reallocate_array twin_reallocarray = (reallocate_array)find_function("allod_reallocarray");
  release twin_free = (release)find_function("allod_free");
  release_sized twin_free_sized = (release_sized)find_function("allod_free_sized");
  release_aligned_sized twin_free_aligned_sized =
      (release_aligned_sized)find_function("allod_free_aligned_sized");
  allocate_posix twin_posix = (allocate_posix)find_function("allod_posix_memalign");
  allocate_array twin_aligned = (allocate_array)find_function("allod_aligned_alloc");
  allocate_array twin_memalign = (allocate_array)find_function("allod_memalign");
  allocate twin_valloc = (allocate)find_function("allod_valloc");
  allocate twin_pvalloc = (allocate)find_function("allod_pvalloc");
  measure twin_usable = (measure)find_function("allod_malloc_usable_size");
  round_up twin_good = (round_up)find_function("allod_malloc_good_size");
  for (size_t size = 1; size <= 4 * MIB; size = size * 3 + 1) {
    void* block = twin_malloc(size);
    CHECK(block != NULL && twin_usable(block) >= size, "allod_malloc(%zu)", size);
    CHECK(twin_usable(block) == malloc_usable_size(block), "the twins disagree on a size");
    fill(block, size, 1);
    block = twin_realloc(block, 2 * size);
    CHECK(block != NULL && holds(block, size, 1), "allod_realloc(p, %zu)", 2 * size);
    block = twin_reallocarray(block, 3, size);
    CHECK(block != NULL && holds(block, size, 1), "allod_reallocarray(p, 3, %zu)", size);
    twin_free(block);
    block = twin_calloc(3, size);
    CHECK(block != NULL && is_zero(block, 3 * size), "allod_calloc(3, %zu)", size);
    twin_free_sized(block, 3 * size);
    CHECK(twin_posix(&block, 128, size) == 0 && is_aligned(block, 128), "allod_posix_memalign");
    free(block);
    block = twin_aligned(256, size);
    CHECK(block != NULL && is_aligned(block, 256), "allod_aligned_alloc");
    twin_free_aligned_sized(block, 256, size);
    block = twin_memalign(512, size);
    CHECK(block != NULL && is_aligned(block, 512), "allod_memalign");
    twin_free(block);
    block = twin_valloc(size);
    CHECK(block != NULL && is_aligned(block, 4096), "allod_valloc");
    twin_free(block);
    block = twin_pvalloc(size);
    CHECK(block != NULL && is_aligned(block, 4096), "allod_pvalloc");
    twin_free(block);
    twin_free(obtain(size));
    CHECK(twin_good(size) >= size, "allod_malloc_good_size(%zu)", size);
  }
  errno = 0;
  CHECK(twin_malloc(SIZE_MAX) == NULL && errno == ENOMEM, "allod_malloc(SIZE_MAX)");
  errno = 0;
  CHECK(twin_calloc(SIZE_MAX, 2) == NULL && errno == ENOMEM, "allod_calloc(SIZE_MAX, 2)");
  errno = 0;
  CHECK(twin_aligned(3, 8) == NULL && errno == EINVAL, "allod_aligned_alloc(3, 8)");
  CHECK(twin_posix(NULL, 3, 8) == EINVAL, "allod_posix_memalign(NULL, 3, 8)");
  errno = 12345;
  twin_free(NULL);
  twin_free(twin_malloc(100));
  CHECK(errno == 12345, "allod_free set errno to %d", errno);
}

CASE(prefixed_twins_of_new_and_delete_share_the_heap) {
  allocate twin_new = (allocate)find_function("allod_new");
  allocate twin_nothrow = (allocate)find_function("allod_new_nothrow");
  allocate_array twin_aligned = (allocate_array)find_function("allod_new_aligned");
  allocate_array twin_aligned_nothrow = (allocate_array)find_function("allod_new_aligned_nothrow");
  release twin_delete = (release)find_function("allod_delete");
  release_sized twin_sized = (release_sized)find_function("allod_delete_sized");
  release_sized twin_delete_aligned = (release_sized)find_function("allod_delete_aligned");
  release_aligned_sized twin_sized_aligned =
      (release_aligned_sized)find_function("allod_delete_sized_aligned");
  for (size_t size = 1; size <= 4 * MIB; size = size * 3 + 1) {
    void* blocks[] = {twin_new(size), twin_nothrow(size), twin_aligned(size, 256),
                      twin_aligned_nothrow(size, 256)};
    for (size_t i = 0; i < 4; ++i) {
      CHECK(blocks[i] != NULL, "twin %zu of new, of %zu bytes", i, size);
      CHECK(i < 2 || is_aligned(blocks[i], 256), "twin %zu of new, of %zu bytes", i, size);
      fill(blocks[i], size, i);
    }
    for (size_t i = 0; i < 4; ++i) {
      CHECK(holds(blocks[i], size, i), "blocks of two names overlap");
    }
    twin_delete(blocks[0]);
    twin_sized(blocks[1], size);
    twin_delete_aligned(blocks[2], 256);
    twin_sized_aligned(blocks[3], size, 256);
    twin_delete(obtain(size));
    free(twin_nothrow(size));
  }
  CHECK(twin_nothrow(SIZE_MAX) == NULL, "allod_new_nothrow(SIZE_MAX)");
  CHECK(twin_aligned_nothrow(SIZE_MAX, 64) == NULL, "allod_new_aligned_nothrow(SIZE_MAX, 64)");
  twin_delete(NULL);
  twin_sized(NULL, 8);
  twin_delete_aligned(NULL, 64);
  twin_sized_aligned(NULL, 8, 64);
}

// Without a C++ runtime in the process, nothrow new still answers.
CASE(nothrow_new_works_in_a_c_program) {
  typedef void* (*new_nothrow)(size_t, const void*);
  static const char nothrow = 0;
  new_nothrow allocates = (new_nothrow)find_function("_Znw" SIZE "RKSt9nothrow_t");
  release deletes = (release)find_function("_ZdlPv");
  void* block = allocates(100, &nothrow);
  CHECK(block != NULL, "new (nothrow) of 100 bytes");
  fill(block, 100, 1);
  deletes(block);
  CHECK(allocates(SIZE_MAX, &nothrow) == NULL, "new (nothrow) of SIZE_MAX bytes");
}

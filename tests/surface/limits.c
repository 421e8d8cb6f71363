// Sizes that cannot be: every function refuses them cleanly, and goes on working.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cases.h"

enum {
  kBits = 8 * sizeof(size_t),
  kIsWide = kBits == 64,  // more addresses than any system gives
};
static size_t power(int exponent) { return (size_t)1 << exponent; }

static void* by_malloc(size_t size) { return malloc(size); }
static void* by_calloc_of_one(size_t size) { return calloc(1, size); }
static void* by_calloc_of_bytes(size_t size) { return calloc(size, 1); }
static void* by_realloc(size_t size) { return realloc(NULL, size); }
static void* by_reallocarray(size_t size) { return reallocarray(NULL, 1, size); }
static void* by_aligned_alloc(size_t size) { return aligned_alloc(64, size); }
static void* by_aligned_alloc_16(size_t size) { return aligned_alloc(16, size); }
static void* by_aligned_alloc_mib(size_t size) { return aligned_alloc(MIB, size); }
static void* by_memalign(size_t size) { return memalign(64, size); }
static void* by_memalign_8(size_t size) { return memalign(8, size); }
static void* by_memalign_mib(size_t size) { return memalign(MIB, size); }
static void* by_valloc(size_t size) { return valloc(size); }
static void* by_pvalloc(size_t size) { return pvalloc(size); }

static const struct {
  const char* name;
  void* (*allocate)(size_t size);
} kFunctions[] = {
    {"malloc(n)", by_malloc},
    {"calloc(1, n)", by_calloc_of_one},
    {"calloc(n, 1)", by_calloc_of_bytes},
    {"realloc(NULL, n)", by_realloc},
    {"reallocarray(NULL, 1, n)", by_reallocarray},
    {"aligned_alloc(16, n)", by_aligned_alloc_16},
    {"aligned_alloc(64, n)", by_aligned_alloc},
    {"aligned_alloc(1 MiB, n)", by_aligned_alloc_mib},
    {"memalign(8, n)", by_memalign_8},
    {"memalign(64, n)", by_memalign},
    {"memalign(1 MiB, n)", by_memalign_mib},
    {"valloc(n)", by_valloc},
    {"pvalloc(n)", by_pvalloc},
};

static void check_refused(size_t size) {
  for (size_t i = 0; i < sizeof kFunctions / sizeof *kFunctions; ++i) {
    errno = 0;
    void* block = hidden(kFunctions[i].allocate(hidden_size(size)));
    CHECK(block == NULL, "%s of %zu bytes is %p", kFunctions[i].name, size, block);
    CHECK(errno == ENOMEM, "%s of %zu bytes set errno to %d", kFunctions[i].name, size, errno);
  }
}

CASE(sizes_above_ptrdiff_max_are_refused) {
  size_t limit = PTRDIFF_MAX;
  for (size_t distance = 1; distance <= power(kBits - 2); distance *= 2) {
    check_refused(limit + distance);
    check_refused(SIZE_MAX - distance + 1);
  }
  for (size_t distance = 0; distance < 70; ++distance) {
    check_refused(limit + 1 + distance);
    check_refused(SIZE_MAX - distance);
  }
  check_refused(SIZE_MAX - 4095);
  check_refused(SIZE_MAX - 4096);
  check_refused(SIZE_MAX - 65535);
  check_refused(SIZE_MAX - 65536);
}

// Allowed by the standards, larger than any address space: rounding up must not wrap.
CASE(sizes_beyond_the_address_space_are_refused) {
  for (size_t distance = 0; distance < 70; ++distance) {
    check_refused((size_t)PTRDIFF_MAX - distance);
  }
  for (int exponent = 57; kIsWide && exponent <= 62; ++exponent) {
    check_refused(power(exponent));
    check_refused(power(exponent) - 1);
  }
  for (size_t distance = 4096; distance <= power(kIsWide ? 40 : 15); distance *= 2) {
    check_refused((size_t)PTRDIFF_MAX - distance);
  }
}

static bool kernel_gives(size_t size) {
  void* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory != MAP_FAILED && munmap(memory, size) == 0;
}

// More than all memory there is: what is known of each part of so large a block would take a good
// part of it.
CASE(what_the_kernel_refuses_to_give_is_refused) {
  if (!kIsWide) skip_case("the system has more memory than the process has addresses");
  size_t size = power(kIsWide ? 36 : 0);
  while (size < power(kIsWide ? 47 : 0) && kernel_gives(size)) size *= 2;
  if (size >= power(kIsWide ? 46 : 0)) skip_case("the kernel overcommits any size");
  char* block = obtain(100 * MIB);
  fill(block, 8 * MIB, 1);
  size_t resident = resident_bytes();
  for (; size < power(kIsWide ? 47 : 0); size *= 2) {
    check_refused(size);
    check_refused(size + size / 2 + 1);
    errno = 0;
    CHECK(hidden(realloc(block, hidden_size(size))) == NULL, "realloc to %zu bytes", size);
    CHECK(errno == ENOMEM, "realloc to %zu bytes set errno to %d", size, errno);
    CHECK(hidden(memalign(hidden_size(size), 100)) == NULL, "memalign(%zu, 100)", size);
  }
  CHECK(resident_bytes() < resident + 4 * MIB, "refusals take memory");
  CHECK(holds(block, 8 * MIB, 1), "a block whose realloc was refused has changed");
  free(block);
}

CASE(products_are_checked) {
  const size_t products[][2] = {
      {SIZE_MAX, 2},
      {SIZE_MAX, SIZE_MAX},
      {SIZE_MAX / 2 + 1, 2},
      {power(kBits / 2), power(kBits / 2)},
      {power(kBits / 2) + 1, power(kBits / 2)},
      {SIZE_MAX / 3 + 1, 3},
      {SIZE_MAX / 16 + 1, 16},
      {SIZE_MAX / 16 + 2, 16},
      {power(kBits / 2 + 1), power(kBits / 2 - 2)},
      {power(kBits - 4), 8},
      {power(kBits - 4), 16},
      {power(kBits - 4) + 1, 16},
      {PTRDIFF_MAX, 2},
      {PTRDIFF_MAX, 3},
  };
  for (size_t i = 0; i < sizeof products / sizeof *products; ++i) {
    for (size_t swapped = 0; swapped < 2; ++swapped) {
      size_t count = products[i][swapped];
      size_t size = products[i][1 - swapped];
      errno = 0;
      void* block = hidden(calloc(hidden_size(count), hidden_size(size)));
      CHECK(block == NULL, "calloc(%zu, %zu) is %p", count, size, block);
      CHECK(errno == ENOMEM, "calloc(%zu, %zu) set errno to %d", count, size, errno);
      errno = 0;
      block = hidden(reallocarray(NULL, hidden_size(count), hidden_size(size)));
      CHECK(block == NULL, "reallocarray(NULL, %zu, %zu) is %p", count, size, block);
      CHECK(errno == ENOMEM, "reallocarray(NULL, %zu, %zu) set errno to %d", count, size, errno);
    }
  }
}

// Adding an alignment to a size, or rounding a size up to it, must not wrap either.
CASE(sizes_and_alignments_together_are_checked) {
  void* const nothing = &(char){0};
  for (int exponent = 4; exponent < kBits; ++exponent) {
    const size_t alignment = power(exponent);
    const size_t sizes[] = {
        SIZE_MAX,
        SIZE_MAX - 1,
        SIZE_MAX - alignment,
        SIZE_MAX - alignment + 1,
        SIZE_MAX - alignment + 2,
        SIZE_MAX - 65535,
        (size_t)PTRDIFF_MAX + 1,
        (size_t)PTRDIFF_MAX,
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
      const size_t size = sizes[i];
      // 2^(kBits-1) bytes aligned to as much: the subtraction above has left a small size.
      if (size < power(kBits - 2)) continue;
      void* block = nothing;
      int error = posix_memalign(&block, hidden_size(alignment), hidden_size(size));
      CHECK(error == ENOMEM && block == nothing, "posix_memalign(%zu, %zu) is %d and %p", alignment,
            size, error, block);
      errno = 0;
      block = hidden(memalign(hidden_size(alignment), hidden_size(size)));
      CHECK(block == NULL && errno == ENOMEM, "memalign(%zu, %zu) is %p", alignment, size, block);
      errno = 0;
      block = hidden(aligned_alloc(hidden_size(alignment), hidden_size(size)));
      CHECK(block == NULL && errno == ENOMEM, "aligned_alloc(%zu, %zu) is %p", alignment, size,
            block);
    }
  }
  // The largest alignments: no system has an address besides 0 for these.
  for (size_t size = 0; size < 3; ++size) {
    void* block = nothing;
    CHECK(posix_memalign(&block, power(kBits - 1), hidden_size(size)) == ENOMEM, "%zu bytes", size);
    CHECK(block == nothing, "posix_memalign has written %p", block);
  }
  void* block = nothing;
  CHECK(posix_memalign(&block, SIZE_MAX, 1) == EINVAL, "an alignment that is no power of two");
  CHECK(posix_memalign(&block, power(kBits - 1) + 8, 1) == EINVAL, "nor is this");
  CHECK(block == nothing, "posix_memalign has written %p", block);
}

CASE(refusals_cost_no_memory) {
  size_t mapped = mapped_bytes();
  size_t resident = resident_bytes();
  for (int i = 0; i < 2000; ++i) {
    check_refused((size_t)PTRDIFF_MAX + 1 + (size_t)i);
    check_refused((size_t)PTRDIFF_MAX - (size_t)i);
  }
  CHECK(mapped_bytes() < mapped + 64 * MIB, "refusals map memory");
  CHECK(resident_bytes() < resident + 4 * MIB, "refusals take memory");
  for (size_t size = 1; size < 8 * MIB; size *= 2) {
    void* block = obtain(size);
    fill(block, size, size);
    CHECK(holds(block, size, size), "a block of %zu bytes after refusals", size);
    free(block);
  }
}

CASE(refusals_leave_living_blocks_alone) {
  void* before = obtain(3000);
  fill(before, 3000, 1);
  check_refused(SIZE_MAX);
  void* after = obtain(3000);
  fill(after, 3000, 2);
  check_refused((size_t)PTRDIFF_MAX + 1);
  CHECK(holds(before, 3000, 1) && holds(after, 3000, 2), "a refusal changed a living block");
  free(before);
  free(after);
}

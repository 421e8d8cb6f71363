// posix_memalign, aligned_alloc, memalign, valloc, pvalloc: each keeps its own standard's rules.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"

static void* const kUntouched = (void*)(uintptr_t)0x1234567;

static void* posix_aligned(size_t alignment, size_t size) {
  void* block = kUntouched;
  int result = posix_memalign(&block, hidden_size(alignment), hidden_size(size));
  CHECK(result == 0, "posix_memalign(&p, %zu, %zu) returned %d", alignment, size, result);
  return hidden(block);
}
static void* iso_aligned(size_t alignment, size_t size) {
  return hidden(aligned_alloc(hidden_size(alignment), hidden_size(size)));
}
static void* old_aligned(size_t alignment, size_t size) {
  return hidden(memalign(hidden_size(alignment), hidden_size(size)));
}

typedef void* (*aligned_function)(size_t alignment, size_t size);

static void check_matrix(const char* name, aligned_function allocate, size_t smallest_alignment) {
  enum { kSizes = 12, kLive = 3 };
  for (size_t alignment = smallest_alignment; alignment <= 64 * MIB; alignment *= 2) {
    size_t sizes[kSizes] = {0,
                            1,
                            7,
                            100,
                            1000,
                            5000,
                            100000,
                            alignment - 1,
                            alignment,
                            alignment + 1,
                            alignment * 3 / 2,
                            alignment * 3 + 5};
    for (size_t i = 0; i < kSizes; ++i) {
      size_t size = sizes[i] < 8 * (size_t)MIB ? sizes[i] : 8 * (size_t)MIB + sizes[i] % 3;
      // Enough of it to see an overlap, without touching gigabytes.
      size_t filled = size < 64 * KIB ? size : 64 * KIB;
      unsigned char* blocks[kLive];
      for (size_t j = 0; j < kLive; ++j) {
        blocks[j] = allocate(alignment, size);
        CHECK(blocks[j] != NULL, "%s of %zu bytes at %zu", name, size, alignment);
        CHECK(is_aligned(blocks[j], alignment), "%s of %zu bytes at %zu is %p", name, size,
              alignment, (void*)blocks[j]);
        CHECK(is_aligned(blocks[j], natural_alignment(size)), "%s of %zu bytes at %zu is %p", name,
              size, alignment, (void*)blocks[j]);
        size_t usable = malloc_usable_size(blocks[j]);
        CHECK(usable >= size, "%s of %zu bytes at %zu has %zu", name, size, alignment, usable);
        fill(blocks[j], filled, j);
        fill(blocks[j] + usable - filled, filled, j);
      }
      for (size_t j = 0; j < kLive; ++j) {
        size_t usable = malloc_usable_size(blocks[j]);
        CHECK(holds(blocks[j] + usable - filled, filled, j),
              "%s: blocks of %zu bytes at %zu overlap", name, size, alignment);
        free(blocks[j]);
      }
    }
  }
}

CASE(posix_memalign_aligns) { check_matrix("posix_memalign", posix_aligned, sizeof(void*)); }
CASE(aligned_alloc_aligns) { check_matrix("aligned_alloc", iso_aligned, 1); }
CASE(memalign_aligns) { check_matrix("memalign", old_aligned, 1); }

// Many live blocks of one alignment, as programs with aligned objects make them.
CASE(aligned_blocks_do_not_overlap) {
  enum { kBlocks = 4000 };
  static unsigned char* blocks[kBlocks];
  static const size_t alignments[] = {8, 16, 32, 64, 128, 256, 512, 1024, 4096, 65536};
  for (size_t i = 0; i < kBlocks; ++i) {
    size_t alignment = alignments[i % 10];
    size_t size = 1 + (i * 7919) % 3000;
    blocks[i] = i % 3 == 0   ? posix_aligned(alignment, size)
                : i % 3 == 1 ? iso_aligned(alignment, size)
                             : old_aligned(alignment, size);
    CHECK(blocks[i] != NULL && is_aligned(blocks[i], alignment), "%zu bytes at %zu: %p", size,
          alignment, (void*)blocks[i]);
    fill(blocks[i], size, i);
  }
  for (size_t i = 0; i < kBlocks; ++i) {
    size_t size = 1 + (i * 7919) % 3000;
    CHECK(holds(blocks[i], size, i), "aligned block %zu was overwritten", i);
    free(blocks[i]);
  }
}

CASE(posix_memalign_refuses_bad_alignment) {
  enum { kHalf = sizeof(void*) / 2 };
  static const size_t bad[] = {0,  1,    2,    3,        kHalf,        5,           6,   7,  9,
                               12, 20,   24,   40,       48,           96,          100, 15, 17,
                               63, 1000, 4095, SIZE_MAX, SIZE_MAX - 7, SIZE_MAX / 2};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    void* block = kUntouched;
    errno = 12345;
    int result = posix_memalign(&block, hidden_size(bad[i]), 100);
    CHECK(result == EINVAL, "posix_memalign(&p, %zu, 100) returned %d", bad[i], result);
    CHECK(block == kUntouched, "a failing posix_memalign stored %p", block);
    CHECK(errno == 12345, "a failing posix_memalign set errno to %d", errno);
  }
}

CASE(posix_memalign_out_of_memory_stores_nothing) {
  const size_t kFar = SIZE_MAX / (sizeof(size_t) > 4 ? 4 : 2) + 1;
  const size_t impossible[][2] = {
      {16, SIZE_MAX},      {16, (size_t)PTRDIFF_MAX + 1}, {16, PTRDIFF_MAX},
      {8, SIZE_MAX - 100}, {4096, SIZE_MAX - 4095},       {64 * MIB, (size_t)PTRDIFF_MAX - 4096},
      {kFar, 1},           {kFar, SIZE_MAX / 4 + 1},      {SIZE_MAX / 2 + 1, 1}};
  for (size_t i = 0; i < sizeof impossible / sizeof *impossible; ++i) {
    void* block = kUntouched;
    errno = 12345;
    int result =
        posix_memalign(&block, hidden_size(impossible[i][0]), hidden_size(impossible[i][1]));
    CHECK(result == ENOMEM, "posix_memalign(&p, %zu, %zu) returned %d", impossible[i][0],
          impossible[i][1], result);
    CHECK(block == kUntouched, "a failing posix_memalign stored %p", block);
    CHECK(errno == 12345, "a failing posix_memalign set errno to %d", errno);
  }
}

CASE(aligned_alloc_refuses_bad_alignment) {
  static const size_t bad[] = {0, 3, 5, 6, 7, 12, 24, 48, 100, 1000, 4095, 65537, SIZE_MAX};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    errno = 0;
    void* block = iso_aligned(bad[i], 96);
    CHECK(block == NULL, "aligned_alloc(%zu, 96) is %p", bad[i], block);
    CHECK(errno == EINVAL, "aligned_alloc(%zu, 96) set errno to %d", bad[i], errno);
  }
}

CASE(aligned_alloc_takes_any_size) {
  for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
    for (size_t size = 0; size < 300; ++size) {
      unsigned char* block = iso_aligned(alignment, size);
      CHECK(block != NULL && is_aligned(block, alignment), "aligned_alloc(%zu, %zu) is %p",
            alignment, size, (void*)block);
      fill(block, size, size);
      free(block);
    }
  }
}

CASE(memalign_rounds_alignment_up) {
  static const size_t alignments[][2] = {{0, 8},       {1, 8},         {3, 8},       {12, 16},
                                         {17, 32},     {24, 32},       {33, 64},     {100, 128},
                                         {129, 256},   {1000, 1024},   {3000, 4096}, {4097, 8192},
                                         {5000, 8192}, {65537, 131072}};
  for (size_t i = 0; i < sizeof alignments / sizeof *alignments; ++i) {
    // Several at once: a single block can be aligned by chance.
    void* blocks[20];
    for (size_t j = 0; j < 20; ++j) {
      blocks[j] = old_aligned(alignments[i][0], 40 + j);
      CHECK(blocks[j] != NULL, "memalign(%zu, %zu)", alignments[i][0], 40 + j);
      CHECK(is_aligned(blocks[j], alignments[i][1]), "memalign(%zu, %zu) is %p", alignments[i][0],
            40 + j, blocks[j]);
    }
    for (size_t j = 0; j < 20; ++j) {
      free(blocks[j]);
    }
  }
  static const size_t beyond[] = {SIZE_MAX, SIZE_MAX / 2 + 2};
  for (size_t i = 0; i < sizeof beyond / sizeof *beyond; ++i) {
    errno = 0;
    void* block = old_aligned(beyond[i], 8);
    CHECK(block == NULL, "memalign(%zu, 8) is %p", beyond[i], block);
    CHECK(errno == EINVAL, "memalign(%zu, 8) set errno to %d", beyond[i], errno);
  }
}

CASE(valloc_and_pvalloc_align_to_pages) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t size = 0; size < 10 * page; size += 509) {
    unsigned char* block = hidden(valloc(hidden_size(size)));
    CHECK(block != NULL && is_aligned(block, page), "valloc(%zu) is %p", size, (void*)block);
    CHECK(malloc_usable_size(block) >= size, "valloc(%zu) is too small", size);
    memset(block, 1, size);
    unsigned char* whole = hidden(pvalloc(hidden_size(size)));
    CHECK(whole != NULL && is_aligned(whole, page), "pvalloc(%zu) is %p", size, (void*)whole);
    size_t rounded = (size + page - 1) / page * page;
    CHECK(malloc_usable_size(whole) >= rounded, "pvalloc(%zu) is not whole pages", size);
    memset(whole, 2, rounded);
    CHECK(size == 0 || (block[0] == 1 && block[size - 1] == 1), "valloc and pvalloc overlap");
    free(block);
    free(whole);
  }
}

CASE(aligned_blocks_can_be_reallocated) {
  for (size_t alignment = 16; alignment <= 4 * MIB; alignment *= 4) {
    static const size_t sizes[] = {24, 1000, 10000, 100 * KIB, 2 * MIB};
    for (size_t from = 0; from < 5; ++from) {
      for (size_t to = 0; to < 5; ++to) {
        void* block = old_aligned(alignment, sizes[from]);
        CHECK(block != NULL, "memalign(%zu, %zu)", alignment, sizes[from]);
        fill(block, sizes[from], 9);
        block = hidden(realloc(block, sizes[to]));
        CHECK(block != NULL, "realloc of an aligned block");
        CHECK(holds(block, sizes[from] < sizes[to] ? sizes[from] : sizes[to], 9),
              "realloc from %zu aligned to %zu, to %zu bytes lost content", sizes[from], alignment,
              sizes[to]);
        fill(block, sizes[to], 10);
        free(block);
      }
    }
  }
}

CASE(aligned_blocks_are_used_again) {
  for (size_t alignment = 32; alignment <= 16 * MIB; alignment *= 8) {
    size_t before = resident_bytes();
    for (int round = 0; round < 2000; ++round) {
      unsigned char* block = posix_aligned(alignment, 100 * KIB);
      for (size_t touched = 0; touched < 100 * KIB; touched += 4096) {
        block[touched] = 1;
      }
      free(block);
    }
    CHECK(resident_bytes() < before + 64 * MIB, "blocks of 100 KiB at %zu leak", alignment);
  }
}

// malloc, calloc, realloc, reallocarray and free: what a block is, and what it keeps.
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"

enum { kMaxSizes = 1024 };

CASE(malloc_aligns_every_size_to_4096) {
  enum { kSizes = 4097, kPerSize = 5 };
  static void* blocks[kSizes][kPerSize];
  for (size_t size = 0; size < kSizes; ++size) {
    for (size_t i = 0; i < kPerSize; ++i) {
      void* block = obtain(size);
      CHECK(is_aligned(block, natural_alignment(size)), "malloc(%zu) is %p", size, block);
      fill(block, size, size * kPerSize + i);
      blocks[size][i] = block;
    }
  }
  for (size_t size = 0; size < kSizes; ++size) {
    for (size_t i = 0; i < kPerSize; ++i) {
      CHECK(holds(blocks[size][i], size, size * kPerSize + i),
            "block %zu of %zu bytes was overwritten by another", i, size);
      free(blocks[size][i]);
    }
  }
}

CASE(malloc_aligns_larger_sizes) {
  size_t sizes[kMaxSizes];
  size_t count = interesting_sizes(sizes, kMaxSizes, 64 * MIB);
  for (size_t i = 0; i < count; ++i) {
    void* first = obtain(sizes[i]);
    void* second = obtain(sizes[i]);
    CHECK(is_aligned(first, natural_alignment(sizes[i])), "malloc(%zu) is %p", sizes[i], first);
    CHECK(is_aligned(second, natural_alignment(sizes[i])), "malloc(%zu) is %p", sizes[i], second);
    if (sizes[i] <= 8 * MIB) {
      fill(first, sizes[i], 1);
      fill(second, sizes[i], 2);
      CHECK(holds(first, sizes[i], 1), "blocks of %zu bytes overlap", sizes[i]);
      free(first);
      CHECK(holds(second, sizes[i], 2), "free wrote to another block of %zu bytes", sizes[i]);
    } else {
      free(first);
    }
    free(second);
  }
  for (size_t size = 4097; size < 300000; size += 997) {
    void* block = obtain(size);
    CHECK(is_aligned(block, 16), "malloc(%zu) is %p", size, block);
    free(block);
  }
}

CASE(calloc_and_realloc_align_as_malloc) {
  void* moving = NULL;
  for (size_t size = 1; size <= 20000; size += size < 4096 ? 1 : 61) {
    void* cleared = hidden(calloc(1, size));
    CHECK(cleared != NULL && is_aligned(cleared, natural_alignment(size)), "calloc(1, %zu) is %p",
          size, cleared);
    moving = hidden(realloc(moving, size));
    CHECK(moving != NULL && is_aligned(moving, natural_alignment(size)), "realloc(p, %zu) is %p",
          size, moving);
    free(cleared);
  }
  free(moving);
}

CASE(blocks_of_no_bytes_are_unique) {
  enum { kBlocks = 1000 };
  static void* blocks[4 * kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks[4 * i] = hidden(malloc(hidden_size(0)));
    blocks[4 * i + 1] = hidden(calloc(hidden_size(0), 8));
    blocks[4 * i + 2] = hidden(calloc(8, hidden_size(0)));
    blocks[4 * i + 3] = hidden(realloc(NULL, hidden_size(0)));
  }
  for (size_t i = 0; i < 4 * kBlocks; ++i) {
    CHECK(blocks[i] != NULL, "a block of no bytes is NULL");
    // Unique also as memory: a byte of usable size is never shared.
    size_t usable = malloc_usable_size(blocks[i]);
    memset(blocks[i], (int)(i & 0xff), usable);
    for (size_t j = 0; j < i; ++j) {
      CHECK(blocks[i] != blocks[j], "two blocks of no bytes are both %p", blocks[i]);
    }
  }
  for (size_t i = 0; i < 4 * kBlocks; ++i) {
    free(blocks[i]);
  }
}

static void check_calloc(size_t count, size_t size) {
  unsigned char* block = hidden(calloc(count, size));
  CHECK(block != NULL, "calloc(%zu, %zu)", count, size);
  CHECK(is_zero(block, count * size), "calloc(%zu, %zu) is not all zero", count, size);
  memset(block, 0xff, malloc_usable_size(block));
  free(block);
}

CASE(calloc_is_zero_in_recycled_memory_of_every_small_size) {
  enum { kBlocks = 24 };
  for (size_t size = 1; size <= 2100; ++size) {
    void* blocks[kBlocks];
    for (size_t i = 0; i < kBlocks; ++i) {
      blocks[i] = obtain(size);
      memset(blocks[i], 0xff, malloc_usable_size(blocks[i]));
    }
    for (size_t i = 0; i < kBlocks; ++i) {
      free(blocks[i]);
    }
    for (size_t i = 0; i < kBlocks; ++i) {
      blocks[i] = hidden(calloc(1, size));
      CHECK(blocks[i] != NULL && is_zero(blocks[i], size), "calloc(1, %zu)", size);
    }
    for (size_t i = 0; i < kBlocks; ++i) {
      memset(blocks[i], 0xff, size);
      free(blocks[i]);
    }
  }
}

CASE(calloc_is_zero_fresh_and_again) {
  size_t sizes[kMaxSizes];
  size_t count = interesting_sizes(sizes, kMaxSizes, 10 * MIB);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < count; ++i) {
      check_calloc(1, sizes[i]);
    }
  }
  for (int round = 0; round < 50; ++round) {
    check_calloc(100, KIB);
    check_calloc(KIB, 100);
    check_calloc(7, 13);
  }
  for (int round = 0; round < 5; ++round) {
    check_calloc(10, MIB);
  }
}

CASE(calloc_is_zero_in_memory_that_was_split_and_joined) {
  enum { kPieces = 100 };
  for (int round = 0; round < 10; ++round) {
    void* pieces[kPieces];
    for (size_t i = 0; i < kPieces; ++i) {
      pieces[i] = obtain(100 * KIB);
      memset(pieces[i], 0xff, 100 * KIB);
    }
    for (size_t i = 0; i < kPieces; ++i) {
      free(pieces[(i * 37) % kPieces]);
    }
    unsigned char* whole = hidden(calloc(10, MIB));
    CHECK(whole != NULL && is_zero(whole, 10 * MIB), "joined pieces are not all zero");
    memset(whole, 0xff, 10 * MIB);
    free(whole);
    for (size_t i = 0; i < kPieces; ++i) {
      pieces[i] = hidden(calloc(25, 4 * KIB));
      CHECK(pieces[i] != NULL && is_zero(pieces[i], 100 * KIB),
            "a piece of a split block is not all zero");
    }
    for (size_t i = 0; i < kPieces; ++i) {
      memset(pieces[i], 0xff, 100 * KIB);
      free(pieces[i]);
    }
  }
}

// What is known to be clear must stop being known the moment that anything of it was handed out,
// even when the program wrote a single byte at its far end.
CASE(calloc_is_zero_where_one_byte_was_written) {
  static const size_t sizes[] = {48,        1000,      4096,    32 * KIB, 64 * KIB,
                                 100 * KIB, 512 * KIB, 1 * MIB, 4 * MIB,  32 * MIB};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    for (size_t part = 0; part <= 8; ++part) {
      unsigned char* block = obtain(sizes[i]);
      size_t usable = malloc_usable_size(block);
      block[part == 8 ? usable - 1 : part * (usable / 8)] = 0xff;
      free(block);
      check_calloc(1, sizes[i]);
      check_calloc(1, sizes[i] / 2 + 1);
    }
  }
}

// Grown by realloc, a cleared block may end in dirty memory; shrunk and freed, it must be cleared
// again.
CASE(calloc_is_zero_after_realloc_of_cleared_blocks) {
  for (size_t size = 16; size <= 8 * MIB; size *= 2) {
    unsigned char* block = hidden(calloc(1, size));
    CHECK(block != NULL && is_zero(block, size), "calloc(1, %zu)", size);
    block = hidden(realloc(block, 2 * size));
    CHECK(block != NULL && is_zero(block, size), "realloc lost the zeros of %zu bytes", size);
    memset(block, 0xff, 2 * size);
    block = hidden(realloc(block, size / 2));
    CHECK(block != NULL, "realloc(p, %zu)", size / 2);
    check_calloc(1, size);
    check_calloc(2, size);
    free(block);
    check_calloc(1, size);
  }
}

static void* grow_or_shrink(void* block, size_t from, size_t to) {
  size_t kept = from < to ? from : to;
  void* moved = hidden(realloc(block, to));
  CHECK(moved != NULL, "realloc(p, %zu) of %zu bytes", to, from);
  CHECK(is_aligned(moved, natural_alignment(to)), "realloc(p, %zu) is %p", to, moved);
  CHECK(holds(moved, kept, 7), "realloc from %zu to %zu bytes lost content", from, to);
  fill(moved, to, 7);
  return moved;
}

CASE(realloc_keeps_content_by_single_bytes) {
  void* block = obtain(0);
  for (size_t size = 0; size < 10000; ++size) {
    block = grow_or_shrink(block, size, size + 1);
  }
  for (size_t size = 10000; size > 1; --size) {
    block = grow_or_shrink(block, size, size - 1);
  }
  free(block);
}

CASE(realloc_keeps_content_through_all_classes_to_64_mib) {
  size_t sizes[kMaxSizes];
  size_t count = 0;
  for (size_t size = 1; size <= 64 * MIB; size += size / (size < MIB ? 9 : 4) + 1) {
    sizes[count++] = size;
  }
  sizes[count++] = 64 * MIB;
  void* block = obtain(1);
  fill(block, 1, 7);
  for (size_t i = 1; i < count; ++i) {
    block = grow_or_shrink(block, sizes[i - 1], sizes[i]);
  }
  for (size_t i = count - 1; i > 0; --i) {
    block = grow_or_shrink(block, sizes[i], sizes[i - 1]);
  }
  free(block);
}

CASE(realloc_keeps_content_between_any_two_sizes) {
  static const size_t sizes[] = {1,        15,      16,       17,     100,    1000,
                                 1024,     1025,    4095,     4096,   4097,   16 * KIB,
                                 32 * KIB, 32769,   64 * KIB, 65537,  200000, 512 * KIB,
                                 MIB,      MIB + 1, 2 * MIB,  5 * MIB};
  size_t count = sizeof sizes / sizeof *sizes;
  for (size_t from = 0; from < count; ++from) {
    for (size_t to = 0; to < count; ++to) {
      void* before = obtain(sizes[from]);
      void* block = obtain(sizes[from]);
      void* after = obtain(sizes[from]);
      fill(before, sizes[from], 1);
      fill(block, sizes[from], 7);
      fill(after, sizes[from], 2);
      // A free neighbour in one half of the tries, a living one in the other.
      if ((from + to) % 2 == 0) {
        free(after);
        after = NULL;
      }
      block = grow_or_shrink(block, sizes[from], sizes[to]);
      CHECK(holds(before, sizes[from], 1), "realloc wrote to a neighbour of %zu bytes",
            sizes[from]);
      CHECK(after == NULL || holds(after, sizes[from], 2),
            "realloc wrote to a neighbour of %zu bytes", sizes[from]);
      free(before);
      free(block);
      free(after);
    }
  }
}

CASE(realloc_of_null_allocates) {
  for (size_t size = 1; size <= 16 * MIB; size *= 4) {
    void* block = hidden(realloc(NULL, size));
    CHECK(block != NULL, "realloc(NULL, %zu)", size);
    fill(block, size, size);
    CHECK(holds(block, size, size), "a block of %zu bytes", size);
    free(block);
  }
}

CASE(realloc_to_no_bytes_frees) {
  static const size_t sizes[] = {1, 100, 10000, 100 * KIB, 3 * MIB, 40 * MIB};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    size_t rounds = 1024 * (size_t)MIB / (sizes[i] + 4 * KIB);
    size_t before = resident_bytes();
    for (size_t round = 0; round < rounds; ++round) {
      unsigned char* block = obtain(sizes[i]);
      for (size_t touched = 0; touched < sizes[i]; touched += 4096) block[touched] = 1;
      errno = 12345;
      void* result = hidden(realloc(block, hidden_size(0)));
      CHECK(result == NULL, "realloc(p, 0) is %p", result);
      CHECK(errno == 12345, "realloc(p, 0) set errno to %d", errno);
    }
    size_t after = resident_bytes();
    CHECK(after < before + 128 * MIB, "realloc(p, 0) of %zu bytes leaks: %zu KiB more", sizes[i],
          (after - before) / KIB);
  }
}

CASE(failing_realloc_leaves_the_block) {
  const size_t kLarge = sizeof(size_t) > 4 ? (SIZE_MAX >> 16) + 1 : SIZE_MAX / 2 + 1;
  // With 32 bits, a block may have 2 GiB - 64 KiB.
  const size_t kTooLarge = (size_t)PTRDIFF_MAX - (sizeof(size_t) > 4 ? 65536 : 65534);
  const size_t kHuge = sizeof(size_t) > 4 ? SIZE_MAX / 4 + 1 : kLarge;
  static const size_t sizes[] = {0, 1, 100, 5000, 40000, 100 * KIB, 3 * MIB, 40 * MIB};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    // The last ones look like the block's own size to whoever counts in fewer bits.
    size_t impossible[] = {
        SIZE_MAX, SIZE_MAX - 4096,   (size_t)PTRDIFF_MAX + 1,   (size_t)PTRDIFF_MAX, kTooLarge,
        kLarge,   kLarge + sizes[i], kLarge + sizes[i] + 60000, kHuge + sizes[i]};
    void* block = obtain(sizes[i]);
    fill(block, sizes[i], 3);
    for (size_t j = 0; j < sizeof impossible / sizeof *impossible; ++j) {
      errno = 0;
      void* result = hidden(realloc(hidden(block), hidden_size(impossible[j])));
      CHECK(result == NULL, "realloc(p, %zu) is %p", impossible[j], result);
      CHECK(errno == ENOMEM, "realloc(p, %zu) set errno to %d", impossible[j], errno);
      CHECK(holds(block, sizes[i], 3), "a failing realloc changed a block of %zu bytes", sizes[i]);
    }
    free(block);
  }
}

CASE(reallocarray_multiplies_and_keeps_content) {
  size_t count = 1;
  void* block = hidden(reallocarray(NULL, count, 24));
  CHECK(block != NULL, "reallocarray(NULL, 1, 24)");
  fill(block, 24, 5);
  for (; count < 100000; count += count / 3 + 1) {
    size_t next = count + count / 3 + 1;
    block = hidden(reallocarray(block, next, 24));
    CHECK(block != NULL, "reallocarray(p, %zu, 24)", next);
    CHECK(holds(block, count * 24, 5), "reallocarray to %zu lost content", next);
    fill(block, next * 24, 5);
  }
  const size_t kHalf = (size_t)1 << sizeof(size_t) * 4;
  const size_t products[][2] = {{SIZE_MAX, 2},         {2, SIZE_MAX},
                                {kHalf, kHalf},        {SIZE_MAX / 2 + 1, 2},
                                {3, SIZE_MAX / 3 + 1}, {2 * kHalf, kHalf / 4}};
  for (size_t i = 0; i < sizeof products / sizeof *products; ++i) {
    errno = 0;
    void* result = hidden(
        reallocarray(hidden(block), hidden_size(products[i][0]), hidden_size(products[i][1])));
    CHECK(result == NULL, "reallocarray(p, %zu, %zu)", products[i][0], products[i][1]);
    CHECK(errno == ENOMEM, "reallocarray set errno to %d", errno);
    CHECK(holds(block, count * 24, 5), "a failing reallocarray changed the block");
  }
  CHECK(hidden(reallocarray(hidden(block), hidden_size(0), 24)) == NULL,
        "reallocarray(p, 0, 24) is not NULL");
}

CASE(free_keeps_errno) {
  size_t sizes[kMaxSizes];
  size_t count = interesting_sizes(sizes, kMaxSizes, 64 * MIB);
  static unsigned char* blocks[kMaxSizes];
  for (int round = 0; round < 4; ++round) {
    for (size_t i = 0; i < count; ++i) {
      blocks[i] = obtain(sizes[i]);
      if (sizes[i] > 0) {
        blocks[i][sizes[i] - 1] = 1;
      }
    }
    for (size_t i = 0; i < count; ++i) {
      errno = 12345;
      free(blocks[round % 2 == 0 ? i : count - 1 - i]);
      CHECK(errno == 12345, "free of %zu bytes set errno to %d", sizes[i], errno);
    }
  }
  for (size_t alignment = 16; alignment <= 64 * MIB; alignment *= 2) {
    void* block = hidden(memalign(alignment, 1000));
    CHECK(block != NULL, "memalign(%zu, 1000)", alignment);
    errno = 12345;
    free(block);
    CHECK(errno == 12345, "free of an aligned block set errno to %d", errno);
  }
}

static void* free_all_of_another_thread(void* argument) {
  void** blocks = argument;
  for (size_t i = 0; blocks[i] != NULL; ++i) {
    errno = 12345;
    free(blocks[i]);
    CHECK(errno == 12345, "free of another thread's block set errno to %d", errno);
  }
  return NULL;
}

CASE(free_of_another_threads_block_keeps_errno) {
  enum { kBlocks = 20000 };
  static void* blocks[kBlocks + 1];
  for (size_t i = 0; i < kBlocks; ++i)
    blocks[i] = obtain(1 + i * 7919 % (i % 100 ? 3000 : 2000000));
  run_thread(free_all_of_another_thread, blocks);
}

CASE(freeing_null_does_nothing) {
  void (*cfree)(void*) = (void (*)(void*))find_function("cfree");
  void (*free_sized)(void*, size_t) = (void (*)(void*, size_t))find_function("free_sized");
  void (*free_aligned_sized)(void*, size_t, size_t) =
      (void (*)(void*, size_t, size_t))find_function("free_aligned_sized");
  errno = 12345;
  for (int i = 0; i < 1000; ++i) {
    free(hidden(NULL));
    cfree(NULL);
    free_sized(NULL, 0);
    free_sized(NULL, 100);
    free_aligned_sized(NULL, 64, 0);
    free_aligned_sized(NULL, 4096, 1 * MIB);
  }
  CHECK(errno == 12345, "freeing NULL set errno to %d", errno);
  void* block = obtain(100);
  free(block);
}

CASE(cfree_frees) {
  void (*cfree)(void*) = (void (*)(void*))find_function("cfree");
  size_t before = resident_bytes();
  for (int i = 0; i < 20000; ++i) {
    void* block = obtain(100 * KIB);
    memset(block, 1, 100 * KIB);
    errno = 12345;
    cfree(block);
    CHECK(errno == 12345, "cfree set errno to %d", errno);
  }
  CHECK(resident_bytes() < before + 64 * MIB, "cfree leaks");
}

CASE(free_sized_takes_the_size_that_was_asked_for) {
  void (*free_sized)(void*, size_t) = (void (*)(void*, size_t))find_function("free_sized");
  size_t sizes[kMaxSizes];
  size_t count = interesting_sizes(sizes, kMaxSizes, 64 * MIB);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < count; ++i) {
      void* allocated = obtain(sizes[i]);
      void* cleared = hidden(calloc(1, sizes[i]));
      void* resized = hidden(realloc(obtain(10), sizes[i] + 1));
      CHECK(cleared != NULL && resized != NULL, "%zu bytes", sizes[i]);
      memset(allocated, 1, sizes[i] < 100000 ? sizes[i] : 100000);
      errno = 12345;
      free_sized(allocated, sizes[i]);
      free_sized(cleared, sizes[i]);
      free_sized(resized, sizes[i] + 1);
      CHECK(errno == 12345, "free_sized of %zu bytes set errno to %d", sizes[i], errno);
    }
  }
  size_t before = resident_bytes();
  for (size_t i = 0; i < 6000; ++i) {
    size_t size = i % 2 == 0 ? 100 * KIB : 1 + i * 5;
    void* block = obtain(size);
    memset(block, 1, size);
    free_sized(block, size);
  }
  CHECK(resident_bytes() < before + 64 * MIB, "free_sized leaks");
}

CASE(free_aligned_sized_takes_what_was_asked_for) {
  void (*free_aligned_sized)(void*, size_t, size_t) =
      (void (*)(void*, size_t, size_t))find_function("free_aligned_sized");
  static const size_t sizes[] = {1, 16, 100, 1000, 4096, 40000, 100 * KIB, 2 * MIB};
  for (int round = 0; round < 5; ++round) {
    for (size_t alignment = 8; alignment <= 16 * MIB; alignment *= 2) {
      for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        void* block = hidden(aligned_alloc(alignment, sizes[i]));
        CHECK(block != NULL, "aligned_alloc(%zu, %zu)", alignment, sizes[i]);
        fill(block, sizes[i], i);
        CHECK(holds(block, sizes[i], i), "a block of %zu bytes", sizes[i]);
        errno = 12345;
        free_aligned_sized(block, alignment, sizes[i]);
        CHECK(errno == 12345, "free_aligned_sized set errno to %d", errno);
      }
    }
  }
}

CASE(blocks_are_used_again) {
  static const size_t sizes[] = {100 * MIB, 10 * MIB, MIB, 100 * KIB, 40000, 5000, 1000, 16};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    size_t before = resident_bytes();
    size_t rounds = 1024 * (size_t)MIB / (sizes[i] + 4 * KIB);
    for (size_t round = 0; round < rounds; ++round) {
      unsigned char* block = obtain(sizes[i]);
      for (size_t touched = 0; touched < sizes[i]; touched += 4096) block[touched] = 1;
      if (sizes[i] >= MIB || round % 1000 == 0) {
        size_t now = resident_bytes();
        CHECK(now < before + sizes[i] + 64 * MIB, "one block of %zu bytes at a time takes %zu KiB",
              sizes[i], (now - before) / KIB);
      }
      free(block);
    }
  }
}

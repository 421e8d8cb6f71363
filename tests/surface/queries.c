// What a program can ask about its heap, and tell it.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"

enum { kMaxSizes = 1024 };

typedef size_t (*good_size_function)(size_t);

CASE(usable_size_is_enough_and_all_writable) {
  enum { kLive = 64 };
  unsigned char* blocks[kLive] = {NULL};
  size_t usable[kLive] = {0};
  for (size_t size = 0; size < 40000; size += size < 2100 ? 1 : 97) {
    size_t slot = size % kLive;
    if (blocks[slot] != NULL) {
      CHECK(holds(blocks[slot], usable[slot], slot), "usable bytes of two blocks overlap");
      CHECK(malloc_usable_size(blocks[slot]) == usable[slot], "the usable size changed");
      free(blocks[slot]);
    }
    blocks[slot] = obtain(size);
    usable[slot] = malloc_usable_size(blocks[slot]);
    CHECK(usable[slot] >= size, "malloc(%zu) has %zu usable bytes", size, usable[slot]);
    fill(blocks[slot], usable[slot], slot);
  }
  for (size_t slot = 0; slot < kLive; ++slot) {
    CHECK(holds(blocks[slot], usable[slot], slot), "usable bytes of two blocks overlap");
    free(blocks[slot]);
  }
  size_t sizes[kMaxSizes];
  size_t count = interesting_sizes(sizes, kMaxSizes, 16 * MIB);
  for (size_t i = 0; i < count; ++i) {
    void* before = obtain(sizes[i]);
    void* after = obtain(sizes[i]);
    size_t size_before = malloc_usable_size(before);
    size_t size_after = malloc_usable_size(after);
    CHECK(size_before >= sizes[i] && size_after >= sizes[i], "malloc(%zu)", sizes[i]);
    fill(before, size_before, 1);
    fill(after, size_after, 2);
    CHECK(holds(before, size_before, 1), "usable bytes of %zu overlap", sizes[i]);
    free(before);
    CHECK(holds(after, size_after, 2), "usable bytes of %zu overlap", sizes[i]);
    free(after);
  }
  CHECK(malloc_usable_size(hidden(NULL)) == 0, "the usable size of NULL is not 0");
}

CASE(usable_bytes_survive_realloc) {
  for (size_t size = 1; size <= 4 * MIB; size += size / 5 + 1) {
    void* block = obtain(size);
    size_t usable = malloc_usable_size(block);
    fill(block, usable, 4);
    void* grown = hidden(realloc(block, usable));
    CHECK(grown != NULL && holds(grown, size, 4), "realloc to the usable size of %zu", size);
    free(grown);
  }
}

CASE(good_size_tells_what_malloc_gives) {
  good_size_function good_size = (good_size_function)find_function("malloc_good_size");
  size_t previous = 0;
  for (size_t size = 0; size < 600000; size += size < 5000 ? 1 : 499) {
    size_t good = good_size(size);
    CHECK(good >= size, "malloc_good_size(%zu) is %zu", size, good);
    CHECK(good >= previous, "malloc_good_size(%zu) is %zu, less than that of a smaller size", size,
          good);
    CHECK(good_size(good) == good, "malloc_good_size(%zu) is not a good size", size);
    void* block = obtain(good);
    size_t usable = malloc_usable_size(block);
    CHECK(usable >= good, "malloc(%zu) has %zu usable bytes", good, usable);
    fill(block, usable, size);
    free(block);
    previous = good;
  }
  for (size_t size = MIB; size <= SIZE_MAX >> (sizeof(size_t) > 4 ? 24 : 2); size *= 2) {
    CHECK(good_size(size + 1) > size, "malloc_good_size(%zu) is too small", size + 1);
  }
  for (size_t distance = 0; distance < 100; ++distance) {
    size_t size = SIZE_MAX - distance;
    CHECK(good_size(size) >= size, "malloc_good_size(%zu) wraps", size);
  }
}

CASE(mallopt_knows_its_parameters) {
  static const struct {
    const char* name;
    int parameter;
    int value;
  } known[] = {{"M_TRIM_THRESHOLD", M_TRIM_THRESHOLD, 128 * KIB},
               {"M_TOP_PAD", M_TOP_PAD, 64 * KIB},
               {"M_MMAP_THRESHOLD", M_MMAP_THRESHOLD, 256 * KIB},
               {"M_MMAP_MAX", M_MMAP_MAX, 1000},
               {"M_ARENA_MAX", M_ARENA_MAX, 2}};
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    CHECK(mallopt(known[i].parameter, known[i].value) == 1, "mallopt(%s, %d)", known[i].name,
          known[i].value);
  }
  for (size_t size = 1; size <= 8 * MIB; size *= 2) {
    void* block = obtain(size);
    fill(block, size, size);
    CHECK(holds(block, size, size), "a block of %zu bytes after mallopt", size);
    free(block);
  }
}

CASE(mallopt_refuses_unknown_parameters) {
  static const int unknown[] = {12345, -12345, 1000000, -100, 77};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; ++i) {
    CHECK(mallopt(unknown[i], 1) == 0, "mallopt(%d, 1) is not 0", unknown[i]);
  }
}

static void allocate_and_free_large_blocks(void** blocks, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = obtain(64 * KIB);
    memset(blocks[i], 1, 64 * KIB);
  }
  for (size_t i = 0; i < count; ++i) {
    free(blocks[i]);
  }
}

// An emulator has records of its own for addresses that are reserved, and translates code when it
// runs for the first time: a part of the blocks comes before.
CASE(trim_gives_memory_back) {
  enum { kBlocks = 1024, kBefore = kBlocks / 3 };
  static void* blocks[kBlocks];
  allocate_and_free_large_blocks(blocks, kBefore);
  malloc_trim(0);
  size_t before = resident_bytes();
  allocate_and_free_large_blocks(blocks, kBlocks);
  size_t freed = resident_bytes();
  int released = malloc_trim(0);
  size_t trimmed = resident_bytes();
  CHECK(released == 0 || released == 1, "malloc_trim(0) is %d", released);
  CHECK(trimmed <= before + 8 * MIB, "%zu KiB stay after malloc_trim(0)", (trimmed - before) / KIB);
  CHECK(trimmed + 16 * MIB > freed || released == 1,
        "malloc_trim(0) released memory and returned %d", released);
  CHECK(malloc_trim(0) == 0, "malloc_trim(0) found more the second time");
}

static void allocate_and_free_small_blocks(void** blocks, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    size_t size = 16 + i % 300;
    blocks[i] = obtain(size);
    memset(blocks[i], 1, size);
  }
  for (size_t i = 0; i < count; ++i) {
    free(blocks[(i * 7919) % count]);
  }
  malloc_trim(0);
}

CASE(trim_gives_memory_of_small_blocks_back) {
  enum { kBlocks = 220000, kBefore = kBlocks / 2 };
  static void* blocks[kBlocks];
  memset(blocks, 1, sizeof blocks);
  allocate_and_free_small_blocks(blocks, kBefore);
  size_t before = resident_bytes();
  allocate_and_free_small_blocks(blocks, kBlocks);
  size_t trimmed = resident_bytes();
  CHECK(trimmed <= before + 12 * MIB, "%zu KiB stay after malloc_trim(0)",
        (trimmed - before) / KIB);
}

CASE(trim_gives_pages_between_living_blocks_back) {
  enum { kBlocks = 60000, kSize = 1000, kEvery = 64 };
  static void* blocks[kBlocks];
  memset(blocks, 1, sizeof blocks);
  // A page that is larger than what lies between two living blocks holds one of them.
  size_t most = sysconf(_SC_PAGESIZE) > 16384 ? SIZE_MAX / 2 : 20 * MIB;
  malloc_trim(0);
  size_t before = resident_bytes();
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < kBlocks; ++i) {
      if (round == 1 && i % kEvery == 0) continue;
      blocks[i] = obtain(kSize);
      fill(blocks[i], kSize, i);
    }
    for (size_t i = 0; i < kBlocks; ++i) {
      if (i % kEvery != 0) free(blocks[i]);
    }
    malloc_trim(0);
    size_t trimmed = resident_bytes();
    CHECK(trimmed <= before + most, "%zu KiB stay after malloc_trim(0)", (trimmed - before) / KIB);
    for (size_t i = 0; i < kBlocks; i += kEvery) {
      CHECK(holds(blocks[i], kSize, i), "malloc_trim touched a living block");
    }
  }
  for (size_t i = 0; i < kBlocks; i += kEvery) free(blocks[i]);
}

CASE(trim_leaves_living_blocks_alone) {
  enum { kBlocks = 3000 };
  static void* blocks[kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks[i] = obtain(i * 11);
    fill(blocks[i], i * 11, i);
  }
  for (size_t i = 0; i < kBlocks; i += 2) {
    free(blocks[i]);
    blocks[i] = NULL;
  }
  for (size_t pad = 0; pad <= 4 * MIB; pad = pad * 4 + 1) {
    malloc_trim(pad);
  }
  for (size_t i = 1; i < kBlocks; i += 2) {
    CHECK(holds(blocks[i], i * 11, i), "malloc_trim touched a living block");
    free(blocks[i]);
  }
}

// What the call writes to a descriptor, with the standard stream sent to a file meanwhile.
static size_t written_to(int descriptor, void (*call)(void)) {
  FILE* file = tmpfile();
  CHECK(file != NULL, "tmpfile");
  int saved = dup(descriptor);
  CHECK(saved >= 0 && dup2(fileno(file), descriptor) == descriptor, "dup2");
  call();
  CHECK(dup2(saved, descriptor) == descriptor, "dup2");
  off_t length = lseek(fileno(file), 0, SEEK_END);
  fclose(file);
  close(saved);
  return (size_t)length;
}

CASE(stats_go_to_standard_error) {
  free(obtain(1000));
  size_t errors = written_to(STDERR_FILENO, malloc_stats);
  size_t output = written_to(STDOUT_FILENO, malloc_stats);
  CHECK(errors > 20, "malloc_stats wrote %zu bytes to standard error", errors);
  CHECK(output == 0, "malloc_stats wrote %zu bytes to standard output", output);
}

// The test runner parses what this prints.
CASE(info_is_xml) {
  void* small = obtain(100);
  void* large = obtain(3 * MIB);
  CHECK(malloc_info(0, stdout) == 0, "malloc_info(0, stdout)");
  CHECK(fflush(stdout) == 0, "the output was not written");
  free(small);
  free(large);
}

CASE(info_refuses_unknown_options) {
  char* text = NULL;
  size_t length = 0;
  FILE* stream = open_memstream(&text, &length);
  CHECK(stream != NULL, "open_memstream");
  // glibc returns EINVAL where its manual says -1.
  CHECK(malloc_info(1, stream) != 0, "malloc_info(1, stream) succeeds");
  fclose(stream);
  CHECK(length == 0, "malloc_info wrote %zu bytes for unknown options", length);
  free(text);
}

// glibc counts blocks with a mapping of their own apart.
static size_t bytes_in_use(void) {
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

static void check_counting(size_t size, size_t count) {
  static void* blocks[20000];
  CHECK(count <= sizeof blocks / sizeof *blocks, "too many blocks");
  size_t before = bytes_in_use();
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = obtain(size);
  }
  size_t during = bytes_in_use();
  for (size_t i = 0; i < count; ++i) {
    free(blocks[i]);
  }
  size_t after = bytes_in_use();
  CHECK(during >= before + size * count, "%zu blocks of %zu bytes add %zu bytes to %zu", count,
        size, during - before, before);
  CHECK(during <= before + (size + size / 4 + 64) * count + 256 * KIB,
        "%zu blocks of %zu bytes add %zu bytes to %zu", count, size, during - before, before);
  // The hardened library keeps some in quarantine, and the addresses of large ones. In the debug
  // library some wait, too.
  const char* library = getenv("TEST_LIBRARY");
  size_t kept =
      library != NULL && (strstr(library, "hardened") != NULL || strstr(library, "debug") != NULL)
          ? 8 * MIB + (during - before) / 2
          : 64 * KIB;
  CHECK(after <= before + kept, "%zu freed blocks of %zu bytes leave %zu of %zu bytes", count, size,
        after - before, during - before);
}

CASE(mallinfo2_counts_bytes_in_use) {
  check_counting(16, 20000);
  check_counting(100, 10000);
  check_counting(3000, 5000);
  check_counting(40000, 500);
  check_counting(300000, 100);
  check_counting(5 * MIB, 20);
  check_counting(100 * MIB, 2);
}

CASE(mallinfo_agrees_with_mallinfo2) {
  void* blocks[100];
  for (size_t i = 0; i < 100; ++i) {
    blocks[i] = obtain(1000);
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  struct mallinfo narrow = mallinfo();
#pragma GCC diagnostic pop
  struct mallinfo2 wide = mallinfo2();
  CHECK((size_t)narrow.uordblks == wide.uordblks, "uordblks: %d and %zu", narrow.uordblks,
        wide.uordblks);
  CHECK(wide.uordblks >= 100000, "uordblks is %zu", wide.uordblks);
  CHECK(wide.arena + wide.hblkhd >= wide.uordblks, "arena %zu, hblkhd %zu, uordblks %zu",
        wide.arena, wide.hblkhd, wide.uordblks);
  for (size_t i = 0; i < 100; ++i) {
    free(blocks[i]);
  }
}

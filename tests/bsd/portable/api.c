/* The C interface: blocks, threads that come and go, options, mistakes. */
#include <allod.h>

#include <errno.h>

#include "cases.h"
#include "threads.h"

enum { kBlocks = 2000, kThreads = 1000 };

/* Known at run time alone. */
static volatile size_t too_much = SIZE_MAX / 2;

static void fill(unsigned char* block, size_t size, unsigned char value) {
  memset(block, value, size);
}
static int is_all(const unsigned char* block, size_t size, unsigned char value) {
  for (size_t i = 0; i < size; ++i) {
    if (block[i] != value) return 0;
  }
  return 1;
}
static allod_stats_t stats(void) {
  allod_stats_t now;
  CHECK(allod_stats_get(&now, sizeof now) == 0);
  return now;
}

static void blocks_of_all_sizes(void) {
  static unsigned char* blocks[kBlocks];
  static size_t sizes[kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) {
    sizes[i] = i % 100 == 99 ? i * 4096 : i;
    blocks[i] = allod_malloc(sizes[i]);
    CHECK(blocks[i] != NULL && (size_t)blocks[i] % (sizes[i] > 8 ? 16u : 8u) == 0);
    CHECK(allod_malloc_usable_size(blocks[i]) >= sizes[i]);
    fill(blocks[i], sizes[i], (unsigned char)i);
  }
  allod_check();
  for (size_t i = 0; i < kBlocks; i += 2) {
    const size_t size = sizes[i] * 3 / 2 + 1;
    unsigned char* const moved = allod_realloc(blocks[i], size);
    CHECK(moved != NULL && is_all(moved, sizes[i], (unsigned char)i));
    blocks[i] = moved;
  }
  for (size_t i = 0; i < kBlocks; ++i) {
    CHECK(is_all(blocks[i], sizes[i], (unsigned char)i));
    allod_free(blocks[i]);
  }
  allod_check();
  CHECK(allod_version()[0] != 0);
}

static void zeros_and_limits(void) {
  for (size_t size = 1; size < ((size_t)64 << 20); size = size * 3 + 1) {
    unsigned char* const block = allod_malloc(size);
    CHECK(block != NULL);
    fill(block, size, 0xff);
    allod_free(block);
    unsigned char* const zeros = allod_calloc(size, 1);
    CHECK(zeros != NULL && is_all(zeros, size, 0));
    allod_free(zeros);
  }
  errno = 0;
  CHECK(allod_calloc(too_much, 3) == NULL && errno == ENOMEM);
  CHECK(allod_malloc(too_much) == NULL);
  void* block = allod_malloc(10);
  CHECK(allod_realloc(block, 0) == NULL);
  allod_free(NULL);
}

static void alignment(void) {
  for (size_t alignment = 8; alignment <= ((size_t)4 << 20); alignment *= 2) {
    void* const block = allod_aligned_alloc(alignment, 100);
    CHECK(block != NULL && (size_t)block % alignment == 0);
    void* other = NULL;
    CHECK(allod_posix_memalign(&other, alignment, 5000) == 0 && (size_t)other % alignment == 0);
    allod_free(block);
    allod_free(other);
  }
  errno = 0;
  CHECK(allod_aligned_alloc(24, 100) == NULL && errno == EINVAL);
}

static void memory_goes_back(void) {
  const size_t size = (size_t)64 << 20;
  unsigned char* const block = allod_malloc(size);
  CHECK(block != NULL);
  fill(block, size, 1);
  allod_free(block);
  for (int i = 0; i < 100; ++i) allod_free(allod_calloc(100, 1));
  allod_malloc_trim(0);
  const allod_stats_t after = stats();
  CHECK(after.dirty < size / 2);
  CHECK(after.purged >= size / 2 || after.reserved < size);
  unsigned char* const zeros = allod_calloc(size, 1);
  CHECK(zeros != NULL && is_all(zeros, size, 0));
  allod_free(zeros);
}

/* By a thread of Allod's own. */
static void memory_goes_back_while_idle(void) {
  CHECK(allod_option_set("PURGE_DELAY", "20") == 0);
  for (int i = 0; i < 3; ++i) {
    const size_t size = (size_t)64 << 20;
    unsigned char* const block = allod_malloc(size);
    CHECK(block != NULL);
    fill(block, size, 1);
    allod_free(block);
    while (stats().dirty > size / 4) rest();
  }
  CHECK(allod_option_set("PURGE_DELAY", "500") == 0);
}

/* The last error belongs to the program. */
static void last_error_stays(void) {
  set_last_error(1234);
  for (size_t size = 1; size < ((size_t)16 << 20); size *= 2) {
    void* const block = allod_malloc(size);
    allod_free(block);
  }
  allod_malloc_trim(0);
  CHECK(last_error() == 1234);
}

static THREAD_FUNCTION allocate_in_thread(void* argument) {
  void* kept = NULL;
  for (size_t i = 1; i < 400; ++i) {
    void* const block = allod_malloc(i * 7 % 3000);
    CHECK(block != NULL);
    if (i == 200) {
      kept = block;
    } else {
      allod_free(block);
    }
  }
  *(void**)argument = kept; /* freed by another thread */
  return 0;
}
static void run_threads(int count) {
  for (int i = 0; i < count; ++i) {
    void* kept = NULL;
    thread_t thread;
    CHECK(start_thread(&thread, allocate_in_thread, &kept));
    CHECK(join_thread(thread));
    CHECK(kept != NULL);
    allod_free(kept);
  }
}

/* What a thread had must be there for the next one. */
static void a_thousand_threads_come_and_go(void) {
  run_threads(50);
  allod_malloc_trim(0); /* by itself, memory goes back at any time */
  const allod_stats_t before = stats();
  run_threads(kThreads);
  allod_malloc_trim(0);
  const allod_stats_t after = stats();
  printf("KiB live %lu %lu, metadata %lu %lu\n", (unsigned long)(before.live >> 10),
         (unsigned long)(after.live >> 10), (unsigned long)(before.metadata >> 10),
         (unsigned long)(after.metadata >> 10));
  CHECK(after.live_blocks <= before.live_blocks + 10);
  CHECK(after.metadata <= before.metadata + ((size_t)64 << 10));
  CHECK(after.reserved == before.reserved);
  const size_t free_before = before.cached + before.free_in_slabs + before.dirty;
  const size_t free_after = after.cached + after.free_in_slabs + after.dirty;
  CHECK(free_after <= free_before + ((size_t)1 << 20));
  allod_check();
}

static THREAD_FUNCTION churn(void* argument) {
  size_t random = (size_t)argument;
  unsigned char* blocks[64] = {0};
  for (int i = 0; i < 40000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    unsigned char** const place = &blocks[random >> 58];
    allod_free(*place);
    const size_t size = (random >> 40) % 5000;
    *place = allod_malloc(size);
    CHECK(*place != NULL);
    fill(*place, size < 16 ? size : 16, (unsigned char)i);
  }
  for (size_t i = 0; i < 64; ++i) allod_free(blocks[i]);
  return 0;
}
static void threads_at_once(void) {
  thread_t threads[16];
  for (size_t i = 0; i < 16; ++i) CHECK(start_thread(&threads[i], churn, (void*)(i + 1)));
  for (size_t i = 0; i < 16; ++i) CHECK(join_thread(threads[i]));
  allod_check();
}

/* Threads that hold whatever they hold when the process ends must not keep it from ending. */
static THREAD_FUNCTION churn_for_ever(void* argument) {
  for (;;) churn(argument);
  return 0;
}
static void the_process_ends_while_threads_allocate(void) {
  thread_t thread;
  for (size_t i = 0; i < 4; ++i) CHECK(start_thread(&thread, churn_for_ever, (void*)(i + 1)));
  churn((void*)7);
}

static int count_block(void* block, size_t bytes, void* context) {
  CHECK(block != NULL && bytes >= 100);
  ++*(int*)context;
  return 0;
}
static void heaps(void) {
  allod_heap_options_t wishes;
  memset(&wishes, 0, sizeof wishes);
  wishes.struct_size = sizeof wishes;
  wishes.name = "test";
  wishes.byte_limit = 1 << 20;
  allod_heap_t* const heap = allod_heap_new_ex(&wishes);
  CHECK(heap != NULL && strcmp(allod_heap_name(heap), "test") == 0);
  void* blocks[100];
  for (size_t i = 0; i < 100; ++i) {
    blocks[i] = allod_heap_malloc(heap, 100);
    CHECK(blocks[i] != NULL && allod_heap_contains(heap, blocks[i]));
  }
  errno = 0;
  CHECK(allod_heap_malloc(heap, 2 << 20) == NULL && errno == ENOMEM);
  int count = 0;
  CHECK(allod_heap_walk(heap, count_block, &count) == 0 && count == 100);
  blocks[0] = allod_realloc(blocks[0], 5000);
  CHECK(allod_heap_contains(heap, blocks[0]));
  allod_free(blocks[0]);
  allod_heap_free(heap, blocks[1]);
  allod_heap_stats_t figures;
  CHECK(allod_heap_stats_get(heap, &figures, sizeof figures) == 0 && figures.live_blocks == 98);
  allod_heap_destroy(heap);

  static unsigned char buffer[1 << 20];
  memset(&wishes, 0, sizeof wishes);
  wishes.struct_size = sizeof wishes;
  wishes.memory = buffer;
  wishes.memory_bytes = sizeof buffer;
  allod_heap_t* const within = allod_heap_new_ex(&wishes);
  CHECK(within != NULL);
  unsigned char* const block = allod_heap_calloc(within, 100, 10);
  CHECK(block >= buffer && block < buffer + sizeof buffer && is_all(block, 1000, 0));
  allod_heap_destroy(within);

  memset(&wishes, 0, sizeof wishes);
  wishes.struct_size = sizeof wishes;
  wishes.hardened = 1;
  errno = 0;
  CHECK(allod_heap_new_ex(&wishes) == NULL && errno == ENOSYS);
  allod_check();
}

static void options(void) {
  CHECK(allod_option_set("PURGE_DELAY", "0") == 0);
  CHECK(allod_option_set("ALLOD_PURGE_DELAY", "x") == EINVAL);
  CHECK(allod_option_set("REGION_SIZE", "64M") == EPERM);
  CHECK(allod_option_set("NO_SUCH_OPTION", "1") == ENOENT);
  CHECK(allod_option_set("PROFILE", "1") == ENOSYS);
}

static void double_free(void) {
  void* const block = allod_malloc(5 << 20);
  allod_free(block);
  allod_free(block);
}
static void invalid_free(void) {
  char* const block = allod_malloc(5 << 20);
  allod_free(block + (1 << 20));
}
static void nothing(void) {}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {
      {"blocks_of_all_sizes", blocks_of_all_sizes},
      {"zeros_and_limits", zeros_and_limits},
      {"alignment", alignment},
      {"memory_goes_back", memory_goes_back},
      {"memory_goes_back_while_idle", memory_goes_back_while_idle},
      {"last_error_stays", last_error_stays},
      {"a_thousand_threads_come_and_go", a_thousand_threads_come_and_go},
      {"threads_at_once", threads_at_once},
      {"heaps", heaps},
      {"options", options},
      {"double_free", double_free},
      {"invalid_free", invalid_free},
      {"nothing", nothing},
      {"the_process_ends_while_threads_allocate", the_process_ends_while_threads_allocate},
  };
  return run_cases(cases, sizeof cases / sizeof cases[0], argc, argv);
}

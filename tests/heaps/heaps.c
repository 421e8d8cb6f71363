// First-class heaps through the C API.
#include <allod.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

static allod_heap_t* new_heap(void) {
  allod_heap_t* heap = allod_heap_new();
  CHECK(heap != NULL, "no heap");
  return heap;
}
static allod_heap_stats_t stats_of(allod_heap_t* heap) {
  allod_heap_stats_t stats;
  CHECK(allod_heap_stats_get(heap, &stats, sizeof stats) == 0, "no statistics");
  return stats;
}

CASE(every_size_holds_what_is_written) {
  enum { SIZES = 512 };
  size_t sizes[SIZES];
  const size_t count = interesting_sizes(sizes, SIZES, 12 * MIB);
  allod_heap_t* heap = new_heap();
  unsigned char* blocks[SIZES];
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = allod_heap_malloc(heap, sizes[i]);
    CHECK(blocks[i] != NULL, "size %zu", sizes[i]);
    CHECK(is_aligned(blocks[i], natural_alignment(sizes[i])), "size %zu", sizes[i]);
    CHECK(allod_malloc_usable_size(blocks[i]) >= sizes[i], "size %zu", sizes[i]);
    fill(blocks[i], sizes[i], i);
  }
  for (size_t i = 0; i < count; ++i) CHECK(holds(blocks[i], sizes[i], i), "size %zu", sizes[i]);
  CHECK(stats_of(heap).live_blocks == count, "%zu blocks", stats_of(heap).live_blocks);
  for (size_t i = 0; i < count; ++i) {
    i % 2 ? allod_free(blocks[i]) : allod_heap_free_sized(heap, blocks[i], sizes[i]);
  }
  CHECK(stats_of(heap).live == 0, "%zu bytes", stats_of(heap).live);
  allod_heap_collect(heap);
  CHECK(stats_of(heap).held == 0, "%zu bytes", stats_of(heap).held);
  allod_heap_delete(heap);
}

CASE(the_whole_family_works) {
  allod_heap_t* heap = new_heap();
  for (size_t size = 1; size < 6 * MIB; size = size * 3 + 1) {
    unsigned char* dirty = allod_heap_malloc(heap, size);
    memset(dirty, 0xff, size);
    allod_heap_free(heap, dirty);
    void* zero = allod_heap_calloc(heap, 1, size);
    CHECK(zero != NULL && is_zero(zero, size), "size %zu", size);
    allod_heap_free(heap, zero);
  }
  errno = 0;
  CHECK(allod_heap_calloc(heap, hidden_size(SIZE_MAX / 2), 3) == NULL, "overflow");
  CHECK(errno == ENOMEM, "errno %d", errno);
  errno = 0;
  CHECK(allod_heap_reallocarray(heap, NULL, hidden_size(SIZE_MAX / 2), 3) == NULL, "overflow");
  CHECK(errno == ENOMEM, "errno %d", errno);
  errno = 0;
  CHECK(allod_heap_malloc(heap, hidden_size(SIZE_MAX)) == NULL, "impossible");
  CHECK(errno == ENOMEM, "errno %d", errno);
  errno = 0;
  CHECK(allod_heap_aligned_alloc(heap, hidden_size(24), 100) == NULL, "alignment");
  CHECK(errno == EINVAL, "errno %d", errno);
  for (size_t alignment = 1; alignment <= MIB; alignment *= 2) {
    void* block = allod_heap_aligned_alloc(heap, alignment, 100);
    CHECK(is_aligned(block, alignment) && allod_heap_contains(heap, block), "%zu", alignment);
    allod_free(block);
  }
  char* text = allod_heap_strdup(heap, "a text");
  CHECK(strcmp(text, "a text") == 0 && allod_heap_contains(heap, text), "%s", text);
  char* part = allod_heap_strndup(heap, "a text", 3);
  CHECK(strcmp(part, "a t") == 0, "%s", part);
  void* first = allod_heap_realloc(heap, NULL, 10);
  CHECK(allod_heap_contains(heap, first), "realloc of nothing");
  CHECK(allod_heap_realloc(heap, first, 0) == NULL, "realloc to nothing");
  allod_heap_free(heap, NULL);
  CHECK(stats_of(heap).live_blocks == 2, "%zu blocks", stats_of(heap).live_blocks);
  allod_heap_destroy(heap);
  allod_heap_destroy(NULL);
  allod_heap_delete(NULL);
}

CASE(a_resized_block_stays_in_its_heap) {
  allod_heap_t* heap = new_heap();
  allod_heap_t* other = new_heap();
  size_t size = 10;
  unsigned char* block = allod_heap_malloc(heap, size);
  fill(block, size, 1);
  for (int step = 0; step < 50; ++step) {
    const size_t next = step < 32 ? size * 3 / 2 : size / 2;
    block = step % 2 ? allod_realloc(block, next) : allod_heap_realloc(heap, block, next);
    CHECK(block != NULL && holds(block, next < size ? next : size, (uint64_t)step + 1),
          "%zu to %zu", size, next);
    CHECK(allod_heap_contains(heap, block), "%zu to %zu", size, next);
    CHECK(stats_of(heap).live_blocks == 1, "%zu blocks", stats_of(heap).live_blocks);
    size = next;
    fill(block, size, (uint64_t)step + 2);
  }
  fill(block, size, 7);
  block = allod_heap_realloc(other, block, size + 100);
  CHECK(allod_heap_contains(other, block) && holds(block, size, 7), "moved");
  CHECK(stats_of(heap).live_blocks == 0, "left behind");
  void* plain = allod_malloc(100);
  plain = allod_heap_realloc(other, plain, 50);
  CHECK(allod_heap_contains(other, plain), "moved");
  void* empty = allod_heap_realloc(other, allod_malloc(hidden_size(0)), 50);
  CHECK(allod_heap_contains(other, empty), "moved");
  allod_heap_destroy(other);
  allod_heap_destroy(heap);
}

static void* free_all(void* blocks) {
  for (void** at = blocks; *at != NULL; ++at) allod_free(*at);
  return NULL;
}

CASE(other_threads_free_its_blocks) {
  enum { BLOCKS = 20000 };
  static void* blocks[BLOCKS + 1];
  allod_heap_t* heap = new_heap();
  size_t held = 0;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < BLOCKS; ++i) blocks[i] = allod_heap_malloc(heap, (size_t)i % 300);
    if (round == 1) held = stats_of(heap).held;
    run_thread(free_all, blocks);
    CHECK(stats_of(heap).live_blocks == 0, "%zu blocks", stats_of(heap).live_blocks);
  }
  CHECK(stats_of(heap).held <= held, "%zu bytes", stats_of(heap).held);
  allod_heap_destroy(heap);
}

CASE(blocks_outlive_a_heap_that_is_deleted) {
  enum { BLOCKS = 5000 };
  static void* blocks[BLOCKS + 1];
  for (int round = 0; round < 20; ++round) {
    allod_heap_t* heap = new_heap();
    for (int i = 0; i < BLOCKS; ++i) {
      const size_t size = i == 0 ? 5 * MIB : (size_t)i % 300 + 1;
      blocks[i] = allod_heap_malloc(heap, size);
      fill(blocks[i], size, (uint64_t)i);
    }
    allod_heap_delete(heap);
    for (int i = 0; i < BLOCKS; ++i) {
      const size_t size = i == 0 ? 5 * MIB : (size_t)i % 300 + 1;
      CHECK(holds(blocks[i], size, (uint64_t)i), "block %d", i);
    }
    blocks[1] = allod_realloc(blocks[1], 1000);
    round % 2 ? run_thread(free_all, blocks) : (void)free_all(blocks);
  }
  allod_malloc_trim(0);
  CHECK(resident_bytes() < 30 * (size_t)MIB, "%zu bytes", resident_bytes());
}

CASE(everything_is_gone_with_a_heap_that_is_destroyed) {
  size_t resident = 0;
  for (int round = 0; round < 60; ++round) {
    allod_heap_t* heap = new_heap();
    for (int i = 0; i < 10000; ++i) {
      unsigned char* block = allod_heap_malloc(heap, (size_t)i % 500 + 1);
      block[0] = 1;
    }
    memset(allod_heap_malloc(heap, 5 * MIB), 1, 5 * MIB);
    allod_heap_destroy(heap);
    if (round != 20) continue;
    // What is free may be resident or not, as time passes.
    allod_malloc_trim(0);
    resident = resident_bytes();
  }
  allod_malloc_trim(0);
  CHECK(resident_bytes() < resident + 2 * (size_t)MIB, "%zu after %zu", resident_bytes(), resident);
}

CASE(thousands_of_heaps_are_cheap) {
  enum { HEAPS = 5000 };
  static allod_heap_t* heaps[HEAPS];
  allod_heap_destroy(new_heap());
  const size_t before = resident_bytes();
  for (int i = 0; i < HEAPS; ++i) heaps[i] = new_heap();
  const size_t each = (resident_bytes() - before) / HEAPS;
  CHECK(each <= 1024, "%zu bytes for an empty heap", each);
  for (int i = 0; i < HEAPS; ++i) CHECK(allod_heap_malloc(heaps[i], 100) != NULL, "heap %d", i);
  for (int i = 0; i < HEAPS; ++i) allod_heap_destroy(heaps[i]);
  size_t after = 0;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < HEAPS; ++i) heaps[i] = new_heap();
    for (int i = 0; i < HEAPS; ++i) allod_heap_destroy(heaps[i]);
    // The debug library keeps some that are gone for a while.
    if (round == 0) after = mapped_bytes();
  }
  CHECK(mapped_bytes() <= after, "heaps are not reused");
}

struct limit {
  int calls;
  size_t size;
  void* reserve;
};

static int on_limit(allod_heap_t* heap, size_t size, void* context) {
  struct limit* limit = context;
  ++limit->calls;
  limit->size = size;
  if (limit->reserve == NULL) return 0;
  allod_heap_free(heap, limit->reserve);
  limit->reserve = NULL;
  return 1;
}

CASE(a_limit_is_kept) {
  struct limit limit = {0, 0, NULL};
  allod_heap_options_t options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.byte_limit = MIB;
  options.on_limit = on_limit;
  options.on_limit_context = &limit;
  allod_heap_t* heap = allod_heap_new_ex(&options);
  // The hardened library puts a word behind each block, and both fit into a class.
  enum { kWord = 8 };
  limit.reserve = allod_heap_malloc(heap, 64 * KIB - kWord);
  size_t blocks = 0;
  errno = 0;
  while (allod_heap_malloc(heap, KIB - kWord) != NULL) ++blocks;
  CHECK(errno == ENOMEM, "errno %d", errno);
  CHECK(blocks == KIB, "%zu blocks", blocks);
  CHECK(limit.calls == 2 && limit.size == KIB - kWord, "%d calls", limit.calls);
  CHECK(stats_of(heap).limit == MIB && stats_of(heap).live == MIB, "live");
  CHECK(stats_of(heap).refused == 2, "refused");
  CHECK(allod_heap_malloc(heap, 6 * MIB) == NULL, "huge");
  allod_heap_set_limit(heap, 8 * MIB);
  void* huge = allod_heap_malloc(heap, 6 * MIB);
  CHECK(huge != NULL, "huge");
  CHECK(allod_realloc(huge, 10 * MIB) == NULL, "beyond the limit");
  allod_heap_set_limit(heap, 0);
  huge = allod_realloc(huge, 10 * MIB);
  CHECK(allod_heap_contains(heap, huge), "grown");
  allod_heap_destroy(heap);
}

CASE(options_are_checked) {
  allod_heap_options_t options;
  memset(&options, 0, sizeof options);
  errno = 0;
  CHECK(allod_heap_new_ex(&options) == NULL && errno == EINVAL, "no size");
  options.struct_size = sizeof options + 8;
  errno = 0;
  CHECK(allod_heap_new_ex(&options) == NULL && errno == EINVAL, "too large");
  options.struct_size = offsetof(allod_heap_options_t, byte_limit);
  options.name = "only a name";
  options.byte_limit = 1;
  allod_heap_t* heap = allod_heap_new_ex(&options);
  CHECK(strcmp(allod_heap_name(heap), "only a name") == 0, "%s", allod_heap_name(heap));
  CHECK(stats_of(heap).limit == 0, "what the caller does not know is not read");
  CHECK(allod_heap_stats_get(heap, NULL, 0) == EINVAL, "no place");
  allod_heap_destroy(heap);
}

struct walk {
  allod_heap_t* heap;
  size_t blocks;
  size_t bytes;
};

static int free_each(void* block, size_t bytes, void* context) {
  struct walk* walk = context;
  ++walk->blocks;
  walk->bytes += bytes;
  allod_heap_free(walk->heap, block);
  return walk->blocks == 3000 ? 7 : 0;
}

CASE(its_blocks_can_be_walked) {
  allod_heap_t* heap = new_heap();
  struct walk walk = {heap, 0, 0};
  CHECK(allod_heap_walk(heap, free_each, &walk) == 0 && walk.blocks == 0, "empty");
  for (size_t i = 0; i < 4000; ++i) CHECK(allod_heap_malloc(heap, i) != NULL, "%zu", i);
  CHECK(allod_heap_walk(heap, free_each, &walk) == 7, "not ended");
  CHECK(stats_of(heap).live_blocks == 1000, "%zu blocks", stats_of(heap).live_blocks);
  walk.blocks = 5000;
  CHECK(allod_heap_walk(heap, free_each, &walk) == 0, "ended");
  CHECK(walk.blocks == 6000 && stats_of(heap).live == 0, "%zu blocks", walk.blocks);
  allod_heap_destroy(heap);
}

struct text {
  char bytes[65536];
  size_t length;
};

static void append(const char* piece, size_t length, void* context) {
  struct text* text = context;
  CHECK(text->length + length < sizeof text->bytes, "too long");
  memcpy(text->bytes + text->length, piece, length);
  text->length += length;
  text->bytes[text->length] = '\0';
}

CASE(statistics_name_it) {
  static struct text text;
  allod_heap_options_t options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.name = "a \"name\"\n";
  allod_heap_t* heap = allod_heap_new_ex(&options);
  CHECK(allod_heap_malloc(heap, 100) != NULL, "no block");
  allod_stats_json(append, &text);
  const char* row = strstr(text.bytes, "{\"name\": \"a \\\"name\\\"\\u000a\", \"id\": ");
  CHECK(row != NULL && strstr(row, "\"live\": 112, \"live_blocks\": 1"), "%s", text.bytes);
  text.length = 0;
  allod_heap_stats_json(heap, append, &text);
  CHECK(strncmp(text.bytes, row, 8) == 0 || strstr(text.bytes, "\"held\": 65536"), "%s",
        text.bytes);
  text.length = 0;
  allod_stats_text(append, &text);
  CHECK(strstr(text.bytes, " \"a \\\"name\\\"\\u000a\": 112 B in 1 blocks"), "%s", text.bytes);
  allod_heap_destroy(heap);
  text.length = 0;
  allod_stats_json(append, &text);
  CHECK(strstr(text.bytes, "\"heaps\": []"), "%s", text.bytes);
}

CASE(statistics_are_utf8_whatever_the_name_is) {
  static struct text text;
  allod_heap_options_t options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  // Two characters, a cut one, a surrogate, too long a form, what is beyond the last character.
  options.name =
      "\xc3\xa9\xf0\x9f\x98\x80\xc3|\xed\xa0\x80|\xe0\x80\x80|\xf4\x90\x80\x80|\xff\x7f\\";
  allod_heap_t* heap = allod_heap_new_ex(&options);
  allod_stats_json(append, &text);
  CHECK(strstr(text.bytes,
               "{\"name\": \"\xc3\xa9\xf0\x9f\x98\x80\\ufffd|\\ufffd\\ufffd\\ufffd|"
               "\\ufffd\\ufffd\\ufffd|\\ufffd\\ufffd\\ufffd\\ufffd|\\ufffd\\u007f\\\\\""),
        "%s", text.bytes);
  allod_heap_destroy(heap);
}

// --- fork --------------------------------------------------------------------------------

static allod_heap_t* busy_heaps[4];
static volatile int stop;

static void* keep_busy(void* argument) {
  allod_heap_t* heap = busy_heaps[(size_t)argument % 4];
  void* blocks[64] = {NULL};
  for (size_t i = 0; !stop; ++i) {
    allod_free(blocks[i % 64]);
    blocks[i % 64] = allod_heap_malloc(heap, i % 1000 + 1);
  }
  return NULL;
}

CASE(forks_find_heaps_at_rest) {
  pthread_t threads[4];
  for (size_t i = 0; i < 4; ++i) busy_heaps[i] = new_heap();
  for (size_t i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, keep_busy, (void*)i);
  for (int round = 0; round < 40; ++round) {
    const pid_t child = fork();
    CHECK(child >= 0, "no fork");
    if (child == 0) {
      alarm(60);
      for (size_t i = 0; i < 4; ++i) {
        for (int block = 0; block < 200; ++block) {
          CHECK(allod_heap_malloc(busy_heaps[i], (size_t)block * 5) != NULL, "no block");
        }
        CHECK(stats_of(busy_heaps[i]).live_blocks >= 200, "blocks are lost");
      }
      allod_check();
      allod_heap_delete(busy_heaps[0]);
      for (size_t i = 1; i < 4; ++i) allod_heap_destroy(busy_heaps[i]);
      allod_check();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(status == 0, "the child of round %d ended with %d", round, status);
  }
  stop = 1;
  for (size_t i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  for (size_t i = 0; i < 4; ++i) allod_heap_destroy(busy_heaps[i]);
  allod_check();
}

// --- runtimes --------------------------------------------------------------------------------

struct runtime {
  uint64_t last;
  int calls;
  int forced;
  int depth;
};

static void deferred(int force, uint64_t heartbeat, void* context) {
  struct runtime* runtime = context;
  CHECK(runtime->depth++ == 0, "called within itself");
  CHECK(heartbeat > runtime->last, "%llu after %llu", (unsigned long long)heartbeat,
        (unsigned long long)runtime->last);
  runtime->last = heartbeat;
  ++runtime->calls;
  runtime->forced += force;
  // Enough for many slow paths.
  void* blocks[300];
  for (int i = 0; i < 300; ++i) blocks[i] = allod_malloc(2000);
  for (int i = 0; i < 300; ++i) allod_free(blocks[i]);
  --runtime->depth;
}

CASE(deferred_frees_are_called_with_a_heartbeat) {
  struct runtime runtime = {0, 0, 0, 0};
  allod_register_deferred_free(deferred, &runtime);
  enum { BLOCKS = 20000 };
  static void* blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; ++i) blocks[i] = allod_malloc(100);
  const int plain = runtime.calls;
  CHECK(plain >= 50 && plain < BLOCKS / 10, "%d calls", plain);
  allod_heap_t* heap = new_heap();
  for (int i = 0; i < BLOCKS; ++i) CHECK(allod_heap_malloc(heap, 100) != NULL, "no block");
  const int own = runtime.calls - plain;
  CHECK(own >= 50 && own < BLOCKS / 10, "%d calls", own);
  CHECK(runtime.forced == 0, "forced");
  allod_collect(0);
  CHECK(runtime.forced == 0, "forced");
  allod_collect(1);
  CHECK(runtime.forced == 1, "not forced");
  allod_register_deferred_free(NULL, NULL);
  const int calls = runtime.calls;
  for (int i = 0; i < BLOCKS; ++i) allod_free(blocks[i]);
  for (int i = 0; i < BLOCKS; ++i) allod_free(allod_calloc(1, (size_t)i));
  CHECK(runtime.calls == calls, "still called");
  allod_heap_destroy(heap);
}

CASE(collecting_gives_memory_back) {
  enum { BLOCKS = 200000 };
  static void* blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; ++i) blocks[i] = memset(allod_malloc(200), 1, 200);
  // Some of it goes by itself when this takes long.
  const size_t before = resident_bytes();
  for (int i = 0; i < BLOCKS; ++i) allod_free(blocks[i]);
  allod_collect(1);
  CHECK(resident_bytes() + 20 * (size_t)MIB < before, "%zu of %zu", resident_bytes(), before);
}

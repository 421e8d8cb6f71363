// One of the heaps that it makes first has TEST_NAME as its name, if that is set.
// Frees a block to another heap than its own: misuse named|nameless|plain
// Uses a heap that is gone: misuse destroyed|deleted|nameless-gone
// Frees a block of such a heap: misuse freed-late
// Leaves blocks: misuse leaks|many-leaks|exit
// Frees a large block on two threads at the same instant: misuse at-once
// Frees to another heap in a signal handler: misuse interrupted
// In hardened heaps, beside another thread, just before they go: misuse late
// In a hardened heap, and tells the block's address: misuse hardened-...
#include <allod.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static void leave_blocks(allod_heap_options_t options, const char* how) {
  options.name = "leaky";
  options.report_leaks = 1;
  allod_heap_t* heap = allod_heap_new_ex(&options);
  const int count = strcmp(how, "many-leaks") == 0 ? 25 : 1;
  void* freed = allod_heap_malloc(heap, 100);
  for (int i = 0; i < count; ++i) {
    if (allod_heap_malloc(heap, 100) == NULL) return;
  }
  allod_heap_free(heap, freed);
  if (strcmp(how, "exit") != 0) allod_heap_destroy(heap);
}

static unsigned char* told(allod_heap_t* heap, size_t size) {
  unsigned char* block = allod_heap_malloc(heap, size);
  printf("%p\n", (void*)block);
  fflush(stdout);
  return block;
}

// One of two neighbours, of which the other lies behind it: blocks come in random order, and the
// last one of a slab has none.
static unsigned char* told_neighbour(allod_heap_t* heap, size_t size, unsigned char** behind) {
  enum { kBlocks = 400 };
  unsigned char* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) blocks[i] = allod_heap_malloc(heap, size);
  // Of such sizes with their canaries, the classes are the multiples of 16.
  const uintptr_t distance = (size + 8 + 15) / 16 * 16;
  for (int i = 0; i < kBlocks; ++i) {
    for (int j = 0; j < kBlocks; ++j) {
      if ((uintptr_t)blocks[i] + distance != (uintptr_t)blocks[j]) continue;
      printf("%p\n", (void*)blocks[i]);
      fflush(stdout);
      *behind = blocks[j];
      return blocks[i];
    }
  }
  return NULL;
}

// So that what has been freed does not wait any more.
static void free_many(allod_heap_t* heap) {
  for (int i = 0; i < 800; ++i) allod_free(allod_heap_malloc(heap, 100));
}

// Through memory, or the compiler would leave stores to free memory out.
static void store(unsigned char* volatile at, unsigned char value) { *at = value; }
// What is there may be any value by chance.
static void change(unsigned char* volatile at) { *at ^= 2; }

static void misuse_hardened(const char* how) {
  allod_heap_options_t options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.name = "guarded";
  options.hardened = 1;
  allod_heap_t* heap = allod_heap_new_ex(&options);
  if (strcmp(how, "twice") == 0) {
    void* volatile block = told(heap, 100);
    allod_free(block);
    allod_free(block);
  }
  if (strcmp(how, "interior") == 0) allod_free(told(heap, 100) + 16);
  if (strcmp(how, "overflow") == 0) {
    unsigned char* block = told(heap, 100);
    store(block + 100, 0);
    allod_heap_free(heap, block);
  }
  if (strcmp(how, "overflow-at-end") == 0) {
    unsigned char* block = told(heap, 104);
    store(block + 104, 0);
    allod_free(block);
  }
  if (strcmp(how, "overflow-huge") == 0) {
    unsigned char* block = told(heap, 10000000);
    change(block + 10000000);
    allod_free(block);
  }
  if (strcmp(how, "realloc") == 0) {
    unsigned char* block = told(heap, 100);
    change(block + 100);
    if (allod_realloc(block, 50) == NULL) return;
  }
  if (strcmp(how, "underflow") == 0) {
    unsigned char* behind = NULL;
    if (told_neighbour(heap, 100, &behind) == NULL) return;
    change(behind - 1);
    allod_free(behind);
  }
  // Zeros, as a text's end leaves them, all over the end of a block with something in it.
  if (strncmp(how, "zeros", 5) == 0) {
    unsigned char* behind = NULL;
    unsigned char* block =
        strcmp(how, "zeros-before") == 0 ? told_neighbour(heap, 40, &behind) : told(heap, 40);
    if (block == NULL) return;
    for (int i = 0; i < 40; ++i) store(block + i, 1);
    for (int i = 40; i < 48; ++i) store(block + i, 0);
    if (strcmp(how, "zeros") == 0) allod_free(block);
    if (strcmp(how, "zeros-asked") == 0) allod_malloc_usable_size(block);
    if (strcmp(how, "zeros-resized") == 0 && allod_realloc(block, 50) == NULL) return;
    if (strcmp(how, "zeros-bounds") == 0 && allod_room(block, 1000) > 40) return;
    if (strcmp(how, "zeros-bounds") == 0) allod_free(block);
    allod_free(behind);
  }
  if (strcmp(how, "realloc-freed") == 0) {
    void* block = told(heap, 100);
    allod_free(block);
    if (allod_realloc(block, 50) == NULL) return;
  }
  // All the way out of the slab.
  if (strcmp(how, "behind-slab") == 0) {
    unsigned char* block = told(heap, 100);
    for (;; block += 16) store(block, 1);
  }
  if (strcmp(how, "behind-huge") == 0) {
    unsigned char* block = told(heap, 10000000);
    for (;; block += 4096) store(block, 1);
  }
  if (strncmp(how, "written", 7) == 0) {
    unsigned char* block = told(heap, 100);
    allod_free(block);
    store(block + 20, 1);
    if (strcmp(how, "written") == 0) free_many(heap);
    if (strcmp(how, "written-collected") == 0) allod_heap_collect(heap);
    if (strcmp(how, "written-destroyed") == 0) allod_heap_destroy(heap);
    if (strcmp(how, "written-deleted") == 0) allod_heap_delete(heap);
  }
}

// Two threads free the same block at the same instant.
static atomic_int turn;
static void* volatile contested;
static void* free_in_turn(void* unused) {
  for (int i = 1; i <= 400; ++i) {
    while (turn < i) {
    }
    allod_free(contested);
    atomic_fetch_add(&turn, 1000000);
    while (turn > 1000000) {
    }
  }
  return unused;
}
static void free_at_once(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, free_in_turn, NULL) != 0) return;
  for (int i = 1; i <= 400; ++i) {
    allod_heap_t* heap = allod_heap_new();
    contested = allod_heap_malloc(heap, 5 << 20);
    turn = i;
    for (volatile int later = 0; later < i % 100; ++later) {
    }
    allod_free(contested);
    while (turn < 1000000) {
    }
    allod_heap_destroy(heap);
    turn = i;
  }
  pthread_join(thread, NULL);
}

// A handler frees to the wrong heap, whatever it has interrupted.
enum { kInterruptions = 1000 };
static allod_heap_t* wrong;
static atomic_int frees;
static void free_to_the_wrong_heap(int signal) {
  (void)signal;
  // The timer may go off once more before it is stopped.
  if (frees == kInterruptions) return;
  allod_heap_free(wrong, contested);
  ++frees;
}
static void be_interrupted(allod_heap_t* heap, allod_heap_t* other) {
  wrong = other;
  contested = allod_heap_malloc(heap, 100);
  struct sigaction action = {.sa_handler = free_to_the_wrong_heap, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval often = {{0, 200}, {0, 200}};
  setitimer(ITIMER_REAL, &often, NULL);
  while (frees < kInterruptions) allod_heap_free(heap, allod_heap_malloc(heap, 100));
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
}

static atomic_bool stops;
static void* use(void* heap) {
  while (!stops) allod_free(allod_heap_malloc(heap, 64));
  return NULL;
}
static void misuse_late(allod_heap_options_t options) {
  options.name = "guarded";
  options.hardened = 1;
  for (int i = 0; i < 300; ++i) {
    allod_heap_t* heap = allod_heap_new_ex(&options);
    unsigned char* blocks[4];
    for (int j = 0; j < 4; ++j) blocks[j] = allod_heap_malloc(heap, 100);
    stops = false;
    pthread_t thread;
    if (pthread_create(&thread, NULL, use, heap) != 0) return;
    for (int j = 0; j < 4; ++j) {
      change(blocks[j] + 100);
      allod_free(blocks[j]);
    }
    stops = true;
    pthread_join(thread, NULL);
    i % 2 ? allod_heap_destroy(heap) : (void)allod_heap_delete(heap);
  }
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  allod_heap_options_t options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  const char* name = getenv("TEST_NAME");
  options.name = name != NULL ? name : "one";
  allod_heap_t* one = allod_heap_new_ex(&options);
  allod_heap_t* other = allod_heap_new();
  if (strcmp(arguments[1], "named") == 0) allod_heap_free(other, allod_heap_malloc(one, 100));
  if (strcmp(arguments[1], "nameless") == 0) allod_heap_free(one, allod_heap_malloc(other, 100));
  if (strcmp(arguments[1], "plain") == 0) allod_heap_free(one, allod_malloc(100));
  // The wrong free has no effect where the program goes on, and so the right one is right.
  if (strncmp(arguments[1], "goes-on", 7) == 0) {
    allod_option_set("ABORT_ON_ERROR", "0");
    const bool is_plain = strcmp(arguments[1], "goes-on-plain") == 0;
    void* block = is_plain ? allod_malloc(100) : allod_heap_malloc(other, 100);
    allod_heap_free_sized(one, block, 100);
    allod_free(block);
    if (!allod_heap_contains(one, allod_heap_realloc(one, allod_malloc(0), 10))) return 3;
  }
  if (strcmp(arguments[1], "destroyed") == 0) {
    void* block = allod_heap_malloc(one, 100);
    allod_heap_destroy(one);
    allod_heap_free(one, block);
  }
  if (strcmp(arguments[1], "freed-late") == 0) {
    void* block = allod_heap_malloc(one, 100);
    allod_heap_destroy(one);
    allod_free(block);
  }
  if (strcmp(arguments[1], "deleted") == 0) {
    allod_heap_delete(one);
    // The next heap is another one.
    other = allod_heap_new();
    return allod_heap_malloc(one, 100) != NULL;
  }
  if (strcmp(arguments[1], "late") == 0) misuse_late(options);
  if (strcmp(arguments[1], "at-once") == 0) free_at_once();
  if (strcmp(arguments[1], "interrupted") == 0) be_interrupted(one, other);
  if (strncmp(arguments[1], "hardened-", 9) == 0) misuse_hardened(arguments[1] + 9);
  if (strcmp(arguments[1], "nameless-gone") == 0) {
    allod_heap_destroy(other);
    allod_heap_destroy(other);
  }
  if (strstr(arguments[1], "leaks") != NULL || strcmp(arguments[1], "exit") == 0) {
    options.name = NULL;
    leave_blocks(options, arguments[1]);
  }
  return 0;
}

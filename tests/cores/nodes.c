// On which memory node the pages of blocks lie, as the kernel says. Each phase prints how many
// pages of a thread's blocks are on the node on which it runs, and how many there are.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kNodes = 2, kPage = 4096, kBlocks = 4096, kThreads = 24, kFew = 100 };
enum { kSmall = 2 << 20, kMedium = 4 << 20, kHuge = 5 << 20 };

static _Noreturn void fail(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

// --- where threads run, and where pages lie
// ------------------------------------------------------

static void run_on(int node) {
  char path[64];
  snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
  FILE* const list = fopen(path, "r");
  cpu_set_t set;
  CPU_ZERO(&set);
  int first;
  while (list != NULL && fscanf(list, "%d", &first) == 1) {
    int last = first;
    if (fscanf(list, "-%d", &last) != 1) last = first;
    for (int i = first; i <= last; ++i) CPU_SET(i, &set);
    if (fgetc(list) != ',') break;
  }
  if (list != NULL) fclose(list);
  if (sched_setaffinity(0, sizeof set, &set) != 0) fail("there is no such node");
}

static _Atomic int near_pages;
static _Atomic int all_pages;
static void look_at(const char* block, size_t bytes, int node) {
  void* pages[256];
  int nodes[256];
  const uintptr_t end = (uintptr_t)block + bytes;
  for (uintptr_t at = (uintptr_t)block & -(uintptr_t)kPage; at < end;) {
    unsigned long count = 0;
    for (; count < 256 && at < end; at += kPage) pages[count++] = (void*)at;
    // Without a target, this only asks.
    if (syscall(SYS_move_pages, 0, count, pages, NULL, nodes, 0) != 0) fail("move_pages");
    for (unsigned long i = 0; i < count; ++i) {
      if (nodes[i] < 0) continue;
      ++all_pages;
      if (nodes[i] == node) ++near_pages;
    }
  }
}
static void say(const char* phase) {
  printf("%s %d of %d\n", phase, near_pages, all_pages);
  fflush(stdout);
  near_pages = all_pages = 0;
}

// --- blocks
// ---------------------------------------------------------------------------------------

// Of many sizes: some in slabs with others, some alone in one, and huge ones.
struct Set {
  char* blocks[kBlocks];
  size_t bytes[kBlocks];
  int count;
};
static char* written(size_t bytes) {
  char* const block = malloc(bytes);
  if (block == NULL) fail("no memory");
  memset(block, 1, bytes);
  // Otherwise compilers would not write what is freed soon.
  __asm__ volatile("" : : "r"(block) : "memory");
  return block;
}
static void add(struct Set* set, size_t bytes) {
  if (set->count == kBlocks) fail("too many blocks");
  char* const block = written(bytes);
  set->blocks[set->count] = block;
  set->bytes[set->count++] = bytes;
}
static void allocate(struct Set* set) {
  for (size_t done = 0, size = 48; done < kSmall; done += size) {
    add(set, size);
    size = size < 30000 ? size + size / 3 : 48;
  }
  for (size_t done = 0, size = 70000; done < kMedium; done += size) {
    add(set, size);
    size = size < 1000000 ? size + size / 2 : 70000;
  }
  add(set, kHuge);
  add(set, kHuge + (1 << 20));
}
static void release(struct Set* set) {
  while (set->count > 0) free(set->blocks[--set->count]);
}
static void look(const struct Set* set, int node) {
  for (int i = 0; i < set->count; ++i) look_at(set->blocks[i], set->bytes[i], node);
}

// --- phases
// ---------------------------------------------------------------------------------------

static struct Set sets[3];

static void* use_and_free(void* node) {
  run_on((int)(intptr_t)node);
  allocate(&sets[0]);
  look(&sets[0], (int)(intptr_t)node);
  release(&sets[0]);
  return NULL;
}
// Leaves its blocks to others.
static void* use(void* node) {
  run_on((int)(intptr_t)node);
  allocate(&sets[0]);
  return NULL;
}
static void* free_and_use(void* node) {
  run_on((int)(intptr_t)node);
  release(&sets[0]);
  allocate(&sets[1]);
  look(&sets[1], (int)(intptr_t)node);
  release(&sets[1]);
  return NULL;
}
static void* move(void* unused) {
  (void)unused;
  run_on(0);
  for (int i = 0; i < 2; ++i) {
    allocate(&sets[0]);
    release(&sets[0]);
  }
  allocate(&sets[0]);
  run_on(1);
  // It works there for a while.
  for (int i = 0; i < 2; ++i) {
    allocate(&sets[1]);
    release(&sets[1]);
  }
  allocate(&sets[1]);
  look(&sets[1], 1);
  say("moved");
  // Its earlier blocks go back to where they came from.
  release(&sets[0]);
  allocate(&sets[2]);
  look(&sets[2], 1);
  say("moved-and-freed");
  return NULL;
}
// A large block that was just freed, and the next one of that size.
static void* move_at_once(void* unused) {
  (void)unused;
  run_on(0);
  // More than once, as nothing is kept at first.
  for (int i = 0; i < 8; ++i) free(written(kHuge));
  run_on(1);
  char* const block = written(kHuge);
  look_at(block, kHuge, 1);
  say("huge");
  free(block);
  return NULL;
}
// Too little for a domain or a cache of its own.
static void* do_little(void* node) {
  void* blocks[kFew];
  run_on((int)(intptr_t)node);
  for (size_t i = 0; i < kFew; ++i) blocks[i] = written(4096 + 32 * i);
  for (size_t i = 0; i < kFew; ++i) look_at(blocks[i], 4096 + 32 * i, (int)(intptr_t)node);
  for (size_t i = 0; i < kFew; ++i) free(blocks[i]);
  return NULL;
}

static void run(void* (*work)(void*), int node) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, work, (void*)(intptr_t)node) != 0) fail("pthread_create");
  pthread_join(thread, NULL);
}
static void run_some(int node) {
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    if (pthread_create(&threads[i], NULL, do_little, (void*)(intptr_t)node) != 0) fail("thread");
  }
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
}

// As numactl does.
static void interleave(char** arguments) {
  const unsigned long nodes = (1UL << kNodes) - 1;
  const int kInterleave = 3;
  if (syscall(SYS_set_mempolicy, kInterleave, &nodes, 64UL) != 0) fail("set_mempolicy");
  arguments[1] = "reuse";
  execv("/proc/self/exe", arguments);
  fail("exec");
}

int main(int count, char** arguments) {
  const char* const phase = count > 1 ? arguments[1] : "";
  if (strcmp(phase, "interleave") == 0) {
    interleave(arguments);
  } else if (strcmp(phase, "reuse") == 0) {
    // Node by node, so that each finds what the other has left.
    run(use_and_free, 0);
    say("fresh");
    run(use_and_free, 1);
    say("reuse");
    run(use_and_free, 0);
    say("reuse-again");
  } else if (strcmp(phase, "pass") == 0) {
    run(use, 0);
    run(free_and_use, 1);
    say("pass");
    run(use_and_free, 0);
    say("pass-back");
  } else if (strcmp(phase, "move") == 0) {
    run(move, 0);
  } else if (strcmp(phase, "huge") == 0) {
    // The first thread has a domain from the start.
    move_at_once(NULL);
  } else if (strcmp(phase, "share") == 0) {
    run_some(0);
    say("share");
    run_some(1);
    say("share-other");
    run_some(0);
    say("share-again");
  } else {
    fail("nodes reuse|pass|move|huge|share|interleave");
  }
  return 0;
}

// Memory that the system lists as readable, and that cannot be read: a search for leaks goes past
// it, and finds what lies behind. And searches at odd places, which find what there is, too.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cases.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

enum { PAGES = 8, BLOCKS = 100 };

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

__attribute__((noinline)) static void leak(void) {
  for (int i = 0; i < BLOCKS; ++i) memset(obtain(77), 0, 77);
}
// Blocks that only the words at `place` lead to.
__attribute__((noinline)) static void keep_at(void** place) {
  for (int i = 0; i < BLOCKS; ++i) place[i] = obtain(55);
}
__attribute__((noinline)) static void overwrite_stack(void) {
  volatile char bytes[1 << 16];
  for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = 0;
}

static void install_guard(char* at) {
  if (madvise(at, page(), MADV_GUARD_INSTALL) != 0) skip_case("the system has no such guards");
}

CASE(a_file_that_has_become_shorter) {
  FILE* file = tmpfile();
  CHECK(file != NULL && ftruncate(fileno(file), (off_t)(PAGES * page())) == 0, "file");
  char* mapped = mmap(NULL, PAGES * page(), PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
  CHECK(mapped != MAP_FAILED, "mmap");
  memset(mapped, 1, PAGES * page());
  CHECK(ftruncate(fileno(file), 1) == 0, "ftruncate");
  keep_at((void**)mapped);
  leak();
  overwrite_stack();
}

CASE(guards_in_a_mapping) {
  char* mapped =
      mmap(NULL, PAGES * page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED, "mmap");
  keep_at((void**)mapped);
  install_guard(mapped + 2 * page());
  keep_at((void**)(mapped + 5 * page()));
  leak();
  overwrite_stack();
}

static char* volatile stack_of_a_coroutine;

CASE(guards_in_a_block) {
  char* block = aligned_alloc(page(), PAGES * page());
  CHECK(block != NULL, "aligned_alloc");
  stack_of_a_coroutine = block;
  install_guard(block);
  keep_at((void**)(block + 3 * page()));
  leak();
  overwrite_stack();
}

static void* kept_by_data[BLOCKS];

static bool has_mappings(void) {
  FILE* list = fopen("/proc/self/maps", "r");
  CHECK(list != NULL, "maps");
  const bool has_some = fgetc(list) != EOF;
  fclose(list);
  return has_some;
}
static void* keep_and_exit(void* unused) {
  while (has_mappings()) continue;
  keep_at(kept_by_data);
  leak();
  overwrite_stack();
  exit(0);
  return unused;
}
// The system takes the process's memory for that of its first thread.
CASE(the_first_thread_has_ended) {
  start_thread(keep_and_exit, NULL);
  pthread_exit(NULL);
}

static struct {
  char begin[16 * KIB];  // on the page of other data
  void* kept[BLOCKS];
  char stack[64 * KIB];
} signals;
static void exit_in_handler(int signal) { exit(signal == 0); }
CASE(a_search_on_a_stack_for_signals) {
  const stack_t stack = {.ss_sp = signals.stack, .ss_size = sizeof signals.stack};
  struct sigaction action = {.sa_handler = exit_in_handler, .sa_flags = SA_ONSTACK};
  CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0, "signal");
  leak();
  // One of these may be left in a register, which the signal saves.
  keep_at(signals.kept);
  overwrite_stack();
  CHECK(raise(SIGUSR1) == 0, "raise");
}

// Wrong calls of the C functions, each of which the debug library sees at once.
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "functions.h"

static size_t size(void) { return parameter("TEST_SIZE"); }

CASE(double_free_at_once) {
  void* block = tell_block(allocating_function(size()));
  freeing_function(block);
  misusing_function(block);
  survive();
}

CASE(double_free_after_other_frees) {
  enum { kOthers = 32 };
  void* others[kOthers];
  void* kept = allocating_function(size());
  void* block = tell_block(allocating_function(size()));
  for (size_t i = 0; i < kOthers; ++i) {
    others[i] = allocating_function(size());
  }
  freeing_function(block);
  for (size_t i = 0; i < kOthers; ++i) {
    freeing_function(others[i]);
  }
  misusing_function(block);
  freeing_function(kept);
  survive();
}

CASE(double_free_by_another_thread) {
  void* block = tell_block(allocating_function(size()));
  here_then_there(freeing_function, misusing_function, block);
  survive();
}

// By a thread that the constructor of a library waits for.
CASE(double_free_while_a_library_is_loaded) {
  CHECK(dlopen(getenv("TEST_CONSTRUCTOR"), RTLD_NOW) != NULL, "%s", dlerror());
  survive();
}

// What the parent's thread is called is known by then.
CASE(double_free_in_a_child) {
  freeing_function(allocating_function(size()));
  const pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) {
    void* block = tell_block(allocating_function(size()));
    freeing_function(block);
    misusing_function(block);
    survive();
    return;
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child, "waitpid");
  if (WIFSIGNALED(status)) raise(WTERMSIG(status));
  CHECK(status == 0, "the child ended with %d", status);
}

CASE(double_free_after_realloc) {
  void* block = tell_block(allocating_function(size()));
  void* moved = reallocating_function(block, 2 * size());
  misusing_function(block);
  freeing_function(moved);
  survive();
}

static volatile sig_atomic_t interruptions;
static void allocate_and_free(int signal) {
  (void)signal;
  const int saved = errno;
  freeing_function(allocating_function(100));
  interruptions = interruptions + 1;
  errno = saved;
}

// Blocks wait when they are freed, and come back when as many have been freed later.
static void have_at_hand(size_t bytes) {
  enum { kBlocks = 300, kFrees = 4000 };
  void* blocks[kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) blocks[i] = allocating_function(bytes);
  for (size_t i = 0; i < kBlocks; ++i) freeing_function(blocks[i]);
  for (size_t i = 0; i < kFrees; ++i) freeing_function(allocating_function(3000));
}

// No standard allows it, and programs do it. What both need is at hand before, so that the only
// lock is that of the records.
CASE(a_handler_allocates) {
  have_at_hand(100);
  const struct sigaction action = {.sa_handler = allocate_and_free, .sa_flags = SA_RESTART};
  CHECK(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
  struct itimerval interval = {{0, 200}, {0, 200}};
  CHECK(setitimer(ITIMER_REAL, &interval, NULL) == 0, "setitimer");
  while (interruptions < 200) freeing_function(allocating_function(3000));
  interval = (struct itimerval){{0, 0}, {0, 0}};
  CHECK(setitimer(ITIMER_REAL, &interval, NULL) == 0, "setitimer");
  survive();
}

CASE(free_of_an_address_in_a_block) {
  unsigned char* block = tell_block(allocating_function(size()));
  misusing_function(block + parameter("TEST_OFFSET"));
  freeing_function(block);
  survive();
}

// Behind the last block of its slab: an address that never is a block.
CASE(free_of_the_end_of_a_slab) {
  unsigned char* block = tell_block(allocating_function(size()));
  void* address = (void*)(((uintptr_t)block & ~(uintptr_t)0xffff) + parameter("TEST_OFFSET"));
  misusing_function(tell_address(address));
  freeing_function(block);
  survive();
}

static void free_foreign(void* address) {
  misusing_function(tell_address(address));
  survive();
}

CASE(free_of_a_stack_address) {
  long local[4] = {0};
  free_foreign(hidden(local));
}

static long static_storage[1024];
CASE(free_of_a_static_address) { free_foreign(static_storage + 64); }

CASE(free_of_a_code_address) { free_foreign(find_function("misusing_function")); }

CASE(free_of_a_mapped_address) {
  void* mapped = mmap(NULL, 256 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED, "mmap");
  free_foreign(mapped);
}

// The test gives the address: a small integer, one that is not canonical.
CASE(free_of_a_number) { free_foreign((void*)parameter("TEST_ADDRESS")); }

CASE(realloc_of_a_freed_block) {
  void* block = tell_block(allocating_function(size()));
  freeing_function(block);
  void* moved = misusing_realloc(block, parameter("TEST_NEW_SIZE"));
  CHECK(moved == NULL, "the realloc of a freed block gives a block");
  survive();
}

CASE(realloc_of_an_address_in_a_block) {
  unsigned char* block = tell_block(allocating_function(size()));
  void* moved = misusing_realloc(block + parameter("TEST_OFFSET"), size() + 1);
  CHECK(moved == NULL, "the realloc of an address in a block gives a block");
  freeing_function(block);
  survive();
}

CASE(realloc_of_a_foreign_address) {
  void* moved = misusing_realloc(tell_address(static_storage), 100);
  CHECK(moved == NULL, "the realloc of a foreign address gives a block");
  survive();
}

CASE(free_sized_with_the_wrong_size) {
  void* block = tell_block(allocating_function(size()));
  misusing_free_sized(block, parameter("TEST_CLAIMED"));
  survive();
}

CASE(free_aligned_sized_with_the_wrong_size) {
  void* block = hidden(aligned_alloc(64, size()));
  CHECK(block != NULL, "aligned_alloc");
  tell_block(block);
  misusing_free_aligned_sized(block, 64, parameter("TEST_CLAIMED"));
  survive();
}

// What the sized functions are for is no misuse.
CASE(free_sized_with_the_right_size) {
  for (size_t bytes = 0; bytes < 6 * MIB; bytes = bytes * 3 + 1) {
    misusing_free_sized(allocating_function(bytes), bytes);
    misusing_free_sized(hidden(calloc(bytes, 2)), bytes * 2);
    misusing_free_sized(hidden(realloc(obtain(10), bytes + 1)), bytes + 1);
    misusing_free_aligned_sized(hidden(aligned_alloc(256, bytes)), 256, bytes);
    misusing_free_aligned_sized(hidden(aligned_alloc(16, bytes)), 16, bytes);
  }
  survive();
}

OWN_FRAME void* recursing_function(int depth, void* block) {
  void* result = depth > 0 ? recursing_function(depth - 1, block) : block;
  if (depth == 0) {
    if (block == NULL) {
      result = allocating_function(100);
    } else {
      misusing_function(block);
    }
  }
  KEEP_FRAME();
  return result;
}

// Deeper than a report shows.
CASE(double_free_deep_in_the_stack) {
  void* block = tell_block(recursing_function(200, NULL));
  recursing_function(200, block);
  recursing_function(200, block);
  survive();
}

// What the release library sees when the process ends.
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

#include "functions.h"

static size_t size(void) { return parameter("TEST_SIZE"); }

CASE(double_free_seen_at_exit) {
  void* block = tell_block(allocating_function(size()));
  freeing_function(block);
  misusing_function(block);
}

CASE(interior_free_seen_at_exit) {
  unsigned char* block = tell_block(allocating_function(size()));
  misusing_function(block + parameter("TEST_OFFSET"));
}

// The inbox waits for a slow path of this thread.
CASE(double_free_by_the_owner_and_another_thread_seen_at_exit) {
  void* block = tell_block(allocating_function(size()));
  here_then_there(misusing_function, freeing_function, block);
}

static void leave(int number) {
  (void)number;
  exit(0);
}

// The handler finds the heap anywhere: in the midst of a fast path, of a slow one, of a lock.
CASE(exit_from_a_signal_handler) {
  signal(SIGALRM, leave);
  const struct itimerval soon = {{0, 0}, {0, (suseconds_t)parameter("TEST_MICROSECONDS")}};
  CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0, "setitimer");
  enum { kBlocks = 100 };
  static void* blocks[kBlocks];
  for (size_t i = 0;; ++i) {
    free(blocks[i % kBlocks]);
    blocks[i % kBlocks] = malloc(i * i * 31 % (i % 10 == 0 ? 8 << 20 : 5000));
  }
}

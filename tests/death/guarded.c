// Blocks on pages of their own: what is done to them that must not be done, and what may be. All
// run with every allocation guarded, as long as there are pages.
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "functions.h"

enum { kPage = 4096 };

static size_t size(void) { return parameter("TEST_SIZE"); }

// A block at the start of its page, or at its end: which of the two is left to chance.
static unsigned char* block_at(int start) {
  for (int i = 0; i < 100; ++i) {
    unsigned char* block = allocating_function(size());
    if (((uintptr_t)block % kPage == 0) == (start != 0)) return tell_block(block);
    freeing_function(block);
  }
  CHECK(0, "no block lies where it should");
  return NULL;
}

OWN_FRAME void accessing_function(void* address) {
  volatile unsigned char* byte = hidden(address);
  *byte = *byte ^ 1;
  KEEP_FRAME();
}

CASE(access_after_free) {
  unsigned char* block = tell_block(allocating_function(size()));
  freeing_function(block);
  accessing_function(block + parameter("TEST_OFFSET"));
}

// Of no file: *address = 0.
CASE(access_after_free_by_code_of_its_own) {
#ifdef __x86_64__
  static const unsigned char code[] = {0xc6, 0x07, 0x00, 0xc3};
#else
  static const uint32_t code[] = {0x3900001f, 0xd65f03c0};
#endif
  void* page = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED, "mmap");
  memcpy(page, code, sizeof code);
  __builtin___clear_cache(page, (char*)page + sizeof code);
  CHECK(mprotect(page, kPage, PROT_READ | PROT_EXEC) == 0, "mprotect");
  tell("code", (uintptr_t)page);
  unsigned char* block = tell_block(allocating_function(size()));
  freeing_function(block);
  ((void (*)(void*))page)(block);
}

static void doing_nothing(void* unused) { (void)unused; }

CASE(access_after_free_by_another_thread) {
  unsigned char* block = tell_block(allocating_function(size()));
  here_then_there(doing_nothing, freeing_function, block);
  accessing_function(block);
}

CASE(access_after_free_in_a_child) {
  unsigned char* block = tell_block(allocating_function(size()));
  freeing_function(block);
  const pid_t child = fork();
  if (child == 0) accessing_function(block);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child, "waitpid");
  tell("child", (uintptr_t)child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "the child ended with %d", status);
  survive();
}

// With blocks between, of which each has the page of the one before.
CASE(access_after_free_long_ago) {
  unsigned char* block = tell_block(allocating_function(size()));
  freeing_function(block);
  for (size_t i = 0; i < parameter("TEST_BETWEEN"); ++i) {
    freeing_function(allocating_function(size()));
  }
  accessing_function(block);
}

CASE(access_past_the_end) {
  unsigned char* block = block_at(0);
  accessing_function(block + size() + parameter("TEST_OFFSET"));
}

CASE(access_past_the_end_of_a_large_block) {
  unsigned char* block = tell_block(allocating_function(size()));
  accessing_function(block + size() + parameter("TEST_OFFSET"));
}

// Over the guard: in a page of which nothing was ever freed.
CASE(access_far_past_the_end) {
  unsigned char* block = tell_block(allocating_function(size()));
  accessing_function(block + parameter("TEST_OFFSET"));
}

CASE(access_before_the_start) {
  unsigned char* block = block_at(1);
  accessing_function(block - parameter("TEST_OFFSET"));
}

// Where the page goes on, the free sees it.
CASE(write_behind_a_block_at_the_start) {
  unsigned char* block = block_at(1);
  accessing_function(block + size() + parameter("TEST_OFFSET"));
  misusing_function(block);
  survive();
}

CASE(write_before_a_block_at_the_end) {
  unsigned char* block = block_at(0);
  accessing_function(block - parameter("TEST_OFFSET"));
  misusing_function(block);
  survive();
}

CASE(a_fault_elsewhere) {
  tell_block(allocating_function(100));
  accessing_function((void*)parameter("TEST_ADDRESS"));
}

CASE(a_signal_from_outside) {
  tell_block(allocating_function(100));
  kill(getpid(), SIGSEGV);
}

// A handler of the program that goes on, and one that passes the fault on.
static sigjmp_buf back;
static void jump_back(int number) { siglongjmp(back, number); }

CASE(a_handler_of_the_program_goes_on) {
  unsigned char* block = tell_block(allocating_function(100));
  freeing_function(block);
  CHECK(signal(SIGSEGV, jump_back) != SIG_ERR, "signal");
  if (sigsetjmp(back, 1) == 0) {
    accessing_function(block);
    CHECK(0, "the page can be accessed");
  }
  survive();
}

static struct sigaction handler_before;
static void pass_on(int number, siginfo_t* info, void* context) {
  handler_before.sa_sigaction(number, info, context);
}

CASE(a_handler_of_the_program_passes_on) {
  struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGSEGV, &action, &handler_before) == 0, "sigaction");
  CHECK((handler_before.sa_flags & SA_SIGINFO) != 0, "nobody watches");
  unsigned char* block = tell_block(allocating_function(size()));
  freeing_function(block);
  accessing_function(block + parameter("TEST_OFFSET"));
}

// A report for programs comes before the one for people, which nobody reads meanwhile.
static int to_programs[2];
static int to_people[2];

static void fill_pipe(int end) {
  static const char line[kPage] = {'\n'};
  CHECK(fcntl(end, F_SETFL, O_NONBLOCK) == 0, "fcntl");
  while (write(end, line, sizeof line) > 0 || write(end, line, 1) > 0) {
  }
  CHECK(fcntl(end, F_SETFL, 0) == 0, "fcntl");
}

static _Atomic(unsigned char*) freed_block;

// Has the page of its block again before the report is read.
static void* free_and_obtain_again(void* unused) {
  enum { kBefore = 2000, kTries = 100000 };
  // By then a thread has memory of its own.
  for (int i = 0; i < kBefore; ++i) freeing_function(allocating_function(size()));
  unsigned char* block = tell_block(allocating_function(size()));
  const uintptr_t page = (uintptr_t)block / kPage;
  freeing_function(block);
  freed_block = block;
  char text[kPage];
  CHECK(read(to_programs[0], text, 1) == 1, "read");
  int tries = 0;
  for (; tries < kTries; ++tries) {
    void* other = allocating_function(size());
    if ((uintptr_t)other / kPage == page) break;
    freeing_function(other);
  }
  if (tries == kTries) _exit(3);
  while (read(to_people[0], text, sizeof text) > 0) {
  }
  return unused;
}

CASE(a_block_is_handed_out_during_the_report) {
  CHECK(pipe(to_programs) == 0 && pipe(to_people) == 0, "pipe");
  char number[16];
  snprintf(number, sizeof number, "%d", to_programs[1]);
  int (*set_option)(const char*, const char*) =
      (int (*)(const char*, const char*))find_function("allod_option_set");
  CHECK(set_option("REPORT_FD", number) == 0, "allod_option_set");
  fill_pipe(to_people[1]);
  CHECK(dup2(to_people[1], STDERR_FILENO) == STDERR_FILENO, "dup2");
  start_thread(free_and_obtain_again, NULL);
  while (freed_block == NULL) sched_yield();
  accessing_function(freed_block);
  survive();
}

CASE(a_signal_from_outside_and_an_access_after_free) {
  CHECK(kill(getpid(), SIGSEGV) == 0, "kill");
  unsigned char* block = tell_block(allocating_function(size()));
  freeing_function(block);
  accessing_function(block + parameter("TEST_OFFSET"));
}

// --- what may be done ----------------------------------------------------------------------------

static int is_guarded(void* block) {
  // Its page ends with it, or begins with it, which other blocks of these sizes do once in a while.
  const uintptr_t at = (uintptr_t)block;
  return at % kPage == 0 || at % kPage >= kPage - 112;
}

CASE(guarded_blocks_are_like_others) {
  for (size_t bytes = 0; bytes <= kPage; bytes += 1 + bytes / 8) {
    unsigned char* block = obtain(bytes);
    CHECK(malloc_usable_size(block) >= bytes, "usable size of %zu", bytes);
    CHECK((uintptr_t)block % (bytes < 9 ? 8 : 16) == 0, "%p for %zu", (void*)block, bytes);
    fill(block, bytes, bytes);
    unsigned char* larger = hidden(realloc(block, bytes + 50));
    CHECK(larger != NULL && holds(larger, bytes, bytes), "realloc from %zu", bytes);
    unsigned char* smaller = hidden(realloc(larger, bytes / 2 + 1));
    CHECK(smaller != NULL && holds(smaller, bytes < 2 ? bytes : bytes / 2, bytes), "realloc");
    free(smaller);
    unsigned char* zeros = hidden(calloc(1, bytes));
    for (size_t i = 0; i < bytes; ++i) CHECK(zeros[i] == 0, "calloc of %zu", bytes);
    free(zeros);
    for (size_t alignment = 16; alignment <= 4 * kPage; alignment *= 2) {
      void* aligned = hidden(memalign(alignment, bytes));
      CHECK((uintptr_t)aligned % alignment == 0, "alignment %zu of %zu", alignment, bytes);
      free(aligned);
    }
  }
  survive();
}

CASE(a_bounded_number_is_guarded) {
  enum { kBlocks = 200 };
  static void* blocks[kBlocks];
  size_t guarded = 0;
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks[i] = allocating_function(100);
    guarded += is_guarded(blocks[i]);
  }
  tell("guarded", guarded);
  for (size_t i = 0; i < kBlocks; ++i) free(blocks[i]);
  survive();
}

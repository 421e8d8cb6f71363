// Blocks that the program has freed, and still points to.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

enum { SIZE = 100, SWEEPS = 3, FOR_EVER = 500000 };

// Has a system call fail, if its first argument has one of these bits.
static void refuse(unsigned number, unsigned bits) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  filter_system_calls(steps, sizeof steps / sizeof *steps);
}
// Threads of the program come by clone3.
__attribute__((constructor)) static void refuse_as_wished(void) {
  const char* what = getenv("TEST_REFUSED");
  if (what == NULL) return;
  if (strcmp(what, "watch") == 0) refuse(SYS_userfaultfd, ~0U);
  if (strcmp(what, "thread") == 0) refuse(SYS_clone, CLONE_THREAD);
}

static char* volatile global;
static _Thread_local char* volatile of_thread;

// An address that no sweep takes for one.
typedef uintptr_t secret;
static secret hide(const void* block) { return ~(uintptr_t)block; }

// Allocates and frees so often. Does the block come back?
__attribute__((noinline)) static bool comes_back(secret block, size_t size, int tries) {
  for (int i = 0; i < tries; ++i) {
    void* other = malloc(size);
    const bool same = hide(other) == block;
    free(other);
    if (same) return true;
  }
  return false;
}
// What earlier calls have left on the stack.
__attribute__((noinline)) static void clear_stack(void) {
  volatile char old[16384];
  memset((void*)old, 0, sizeof old);
}
__attribute__((noinline)) static secret free_one(char* volatile* pointer, size_t size,
                                                 size_t offset) {
  char* block = obtain(size);
  *pointer = block + offset;
  const secret hidden_block = hide(block);
  free(block);
  return hidden_block;
}
// Until blocks of which nothing is left have been used again, one after the other: so there were
// sweeps, and none of them let go of these. The number of such blocks.
static int sweeps_without(const secret* blocks, size_t count, size_t size, int most,
                          const char* where) {
  int sweeps = 0;
  for (int i = 0; i < most; ++i) {
    char* volatile local;
    const secret forgotten = free_one(&local, size, 0);
    local = NULL;
    clear_stack();
    for (int tries = 0; tries < FOR_EVER; ++tries) {
      void* other = malloc(size);
      const secret hidden = hide(other);
      free(other);
      for (size_t k = 0; k < count; ++k) CHECK(hidden != blocks[k], "used again: %s", where);
      if (hidden == forgotten) {
        ++sweeps;
        break;
      }
    }
  }
  return sweeps;
}
static void must_keep(secret block, size_t size, const char* where) {
  clear_stack();
  CHECK(sweeps_without(&block, 1, size, SWEEPS, where) > 0, "no sweeps");
}
// What looks like a pointer is taken for one, and now and then something is left in a frame: that
// may happen twice.
static void must_let_go(secret block, size_t size, const char* where) {
  static int misses;
  clear_stack();
  CHECK(comes_back(block, size, FOR_EVER) || ++misses <= 2, "never used again: %s", where);
}

CASE(a_pointer_keeps_a_freed_block) {
  static const size_t offsets[] = {0, 40, SIZE - 1, SIZE};
  for (size_t i = 0; i < sizeof offsets / sizeof *offsets; ++i) {
    const secret block = free_one(&global, SIZE, offsets[i]);
    must_keep(block, SIZE, "a global");
    global = NULL;
    must_let_go(block, SIZE, "a global");
  }
}

CASE(a_pointer_may_lie_anywhere) {
  char* volatile* in_block = obtain(sizeof *in_block);
  secret block = free_one(in_block, SIZE, 8);
  must_keep(block, SIZE, "a block in use");
  free((void*)in_block);
  must_let_go(block, SIZE, "a block that is freed itself");

  block = free_one(&of_thread, SIZE, 0);
  must_keep(block, SIZE, "thread-local");
  of_thread = NULL;
  must_let_go(block, SIZE, "thread-local");

  char* volatile local;
  block = free_one(&local, SIZE, 0);
  must_keep(block, SIZE, "the stack");
  local = NULL;
  must_let_go(block, SIZE, "the stack");
}

// Something may be left of one block. Not of all of many.
enum { POINTERS = 16, MOST_SECRETS = 256 };
static secret secrets[MOST_SECRETS];
static size_t secret_count;
// Of freed blocks, between the two places and as far from each other as can be.
static void point_from(char* from, char* to) {
  const size_t words = (size_t)(to - from) / sizeof(char*);
  const size_t count = words < POINTERS ? words : POINTERS;
  for (size_t i = 0; i < count; ++i) {
    char* const place = from + (words - 1) * i / (count - 1) * sizeof(char*);
    secrets[secret_count++] = free_one((char* volatile*)(void*)place, SIZE, 8);
  }
}
static void must_keep_secrets(const char* where, size_t size) {
  char message[100];
  snprintf(message, sizeof message, "%s of %zu bytes", where, size);
  clear_stack();
  CHECK(sweeps_without(secrets, secret_count, SIZE, SWEEPS, message) > 0, "no sweeps");
  secret_count = 0;
}

// Pages in which no block is in use are not read. These have one, among others that are free.
CASE(pointers_may_lie_anywhere_in_blocks_of_any_size) {
  static const size_t sizes[] = {16, 100, 1000, 5000, 40000, 300000, 3 * MIB, 6 * MIB};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    enum { BLOCKS = 25, EACH = 3 };
    char* blocks[BLOCKS];
    for (size_t k = 0; k < BLOCKS; ++k) blocks[k] = obtain(sizes[i]);
    for (size_t k = 0; k < BLOCKS; ++k) {
      if (k % EACH != 1) free(blocks[k]);
    }
    for (size_t k = 1; k < BLOCKS; k += EACH) point_from(blocks[k], blocks[k] + sizes[i]);
    must_keep_secrets("blocks", sizes[i]);
    for (size_t k = 1; k < BLOCKS; k += EACH) free(blocks[k]);
  }
}

CASE(pointers_may_lie_in_what_a_block_has_grown_by) {
  static const size_t sizes[] = {20000, 300000, 2 * MIB, 6 * MIB};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const size_t size = sizes[i] * 3 / 2;
    char* block = realloc(obtain(sizes[i]), size);
    CHECK(block != NULL, "realloc");
    point_from(block + sizes[i], block + size);
    must_keep_secrets("the end", size);
    free(block);
  }
}

CASE(pointers_may_lie_where_nothing_can_be_written_any_more) {
  static const int protections[] = {PROT_READ, PROT_READ | PROT_EXEC};
  for (size_t i = 0; i < sizeof protections / sizeof *protections; ++i) {
    const size_t size = MIB;
    char* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "mmap");
    point_from(memory, memory + size);
    CHECK(mprotect(memory, size, protections[i]) == 0, "mprotect");
    must_keep_secrets("memory that is only read", size);
    CHECK(munmap(memory, size) == 0, "munmap");
  }
}

CASE(large_blocks_are_kept_too) {
  static const size_t sizes[] = {5000, 300000, 6 * MIB};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const secret block = free_one(&global, sizes[i], sizes[i] / 2);
    clear_stack();
    CHECK(!comes_back(block, sizes[i], sizes[i] > MIB ? 150 : 1200), "%zu bytes are used again",
          sizes[i]);
    global = NULL;
    clear_stack();
    void* other = obtain(sizes[i]);
    memset(other, 1, sizes[i]);
    free(other);
  }
}

enum { AT_ONCE = 200, LARGEST = 3000 };
static void* free_much(void* unused) {
  void* blocks[100];
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < 100; ++i) blocks[i] = memset(obtain(i * 37 % LARGEST + 1), 1, 1);
    for (size_t i = 0; i < 100; ++i) free(blocks[i]);
  }
  free(memset(obtain(500 * KIB), 1, 100 * KIB));
  return unused;
}
// Each frees less than is wanted for a sweep, and is gone when that is over.
CASE(what_short_threads_free_does_not_pile_up) {
  pthread_attr_t small;
  CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 64 * KIB) == 0, "attr");
  for (int round = 0; round < 25; ++round) {
    pthread_t threads[AT_ONCE];
    for (int i = 0; i < AT_ONCE; ++i) {
      CHECK(pthread_create(&threads[i], &small, free_much, NULL) == 0, "pthread_create");
    }
    for (int i = 0; i < AT_ONCE; ++i) CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
  }
  // Some 100 to 200, and 700 where it does.
  CHECK(resident_bytes() < (size_t)500 * MIB, "%zu MiB", resident_bytes() / MIB);
}

static secret of_sleeper;
static volatile bool may_end;
static int awake[2];
static void* sleep_with_pointer(void* unused) {
  char* volatile local;
  of_sleeper = free_one(&local, SIZE, 0);
  CHECK(write(awake[1], "x", 1) == 1, "write");
  while (!may_end) usleep(1000);
  CHECK(local != NULL, "a pointer");
  return unused;
}
CASE(the_stack_of_another_thread_counts) {
  pthread_t thread;
  CHECK(pipe(awake) == 0, "pipe");
  CHECK(pthread_create(&thread, NULL, sleep_with_pointer, NULL) == 0, "pthread_create");
  char byte;
  CHECK(read(awake[0], &byte, 1) == 1, "read");
  must_keep(of_sleeper, SIZE, "a stack");
  may_end = true;
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

static void* churn(void* unused) {
  for (int round = 0; round < 3; ++round) {
    char* volatile local;
    const secret block = free_one(&local, SIZE, 0);
    CHECK(!comes_back(block, SIZE, 20000), "used again");
    local = NULL;
  }
  return unused;
}
CASE(threads_sweep_beside_each_other) {
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) {
    CHECK(pthread_create(&threads[i], NULL, churn, NULL) == 0, "pthread_create");
  }
  for (int i = 0; i < 4; ++i) CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
}

static volatile bool is_over;

// The only pointer goes from page to page, to where a sweep was and to where it was not yet.
enum { PLACES = 1 << 20 };
static char* volatile places[PLACES];
static void* move_on(void* unused) {
  uint32_t at = 0;
  for (uint32_t i = 0; !is_over; ++i) {
    const uint32_t next = (at + (i * 2654435761U >> 12)) % PLACES;
    if (next == at) continue;
    places[next] = places[at];
    places[at] = NULL;
    at = next;
  }
  return unused;
}
CASE(a_pointer_may_move) {
  const secret block = free_one(&places[0], SIZE, 50);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, move_on, NULL) == 0, "pthread_create");
  must_keep(block, SIZE, "a place that changes");
  is_over = true;
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

static sem_t is_ready;
static int end_of_pipe[2];

enum { SIGNAL_STACK = 64 * KIB };
static char signal_stacks[3][SIGNAL_STACK];
static void set_signal_stack(void* memory, int flags) {
  const stack_t stack = {.ss_sp = memory, .ss_size = SIGNAL_STACK, .ss_flags = flags};
  CHECK(sigaltstack(&stack, NULL) == 0, "sigaltstack");
}
static void* rest_with_signal_stack(void* memory) {
  set_signal_stack(memory, 0);
  CHECK(sem_post(&is_ready) == 0, "sem_post");
  while (!is_over) sched_yield();
  set_signal_stack(memory, SS_DISABLE);
  return NULL;
}
// There are sweeps beside two threads that have these for their signals.
static void sweep_beside(void* first, void* second) {
  void* const memory[2] = {first, second};
  pthread_t threads[2];
  CHECK(sem_init(&is_ready, 0, 0) == 0, "sem_init");
  for (int i = 0; i < 2; ++i) {
    CHECK(pthread_create(&threads[i], NULL, rest_with_signal_stack, memory[i]) == 0, "thread");
  }
  for (int i = 0; i < 2; ++i) CHECK(sem_wait(&is_ready) == 0, "sem_wait");
  must_keep(free_one(&global, SIZE, 0), SIZE, "a global");
  is_over = true;
  for (int i = 0; i < 2; ++i) CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
}
// They would overwrite each other's registers.
CASE(threads_that_share_a_signal_stack_are_stopped_on_their_own) {
  sweep_beside(signal_stacks[0], signal_stacks[0] + SIGNAL_STACK / 2);
  CHECK(is_zero(signal_stacks, sizeof signal_stacks), "a thread was stopped there");
}
// Goroutines have no room for a signal on theirs.
CASE(threads_with_signal_stacks_are_stopped_on_these) {
  stack_t before = {0};
  const stack_t too_small = {.ss_sp = signal_stacks[1], .ss_size = 1};
  set_signal_stack(signal_stacks[0], 0);
  set_signal_stack(signal_stacks[0], SS_DISABLE);
  CHECK(sigaltstack(&too_small, &before) == -1 && errno == ENOMEM, "%s", strerror(errno));
  CHECK(sigaltstack(NULL, &before) == 0 && before.ss_flags == SS_DISABLE, "%d", before.ss_flags);
  sweep_beside(signal_stacks[0], signal_stacks[1]);
  CHECK(!is_zero(signal_stacks[0], SIGNAL_STACK), "the first was not");
  CHECK(!is_zero(signal_stacks[1], SIGNAL_STACK), "the second was not");
}

static void* sleep_without_signals(void* id) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  *(long*)id = syscall(SYS_gettid);
  CHECK(sem_post(&is_ready) == 0, "sem_post");
  char byte;
  CHECK(read(end_of_pipe[0], &byte, 1) == 0, "read");
  pthread_sigmask(SIG_UNBLOCK, &all, NULL);
  return NULL;
}
static void read_status(long thread, char* text, size_t size) {
  snprintf(text, size, "/proc/self/task/%ld/status", thread);
  const int file = open(text, O_RDONLY);
  const ssize_t length = read(file, text, size - 1);
  CHECK(length > 0 && close(file) == 0, "status");
  text[length] = '\0';
}
static unsigned long long pending_signals(long thread) {
  char text[4096];
  read_status(thread, text, sizeof text);
  unsigned long long signals = 0;
  const char* const line = strstr(text, "\nSigPnd:");
  CHECK(line != NULL && sscanf(line, "\nSigPnd: %llx", &signals) == 1, "SigPnd");
  return signals;
}

static atomic_int urgent_signals;
static void count_urgent(int signal) { urgent_signals += signal == SIGURG; }

// One that tells its id, and ends with the pipe. Threads are stopped by a signal that is not thrown
// away with its handler.
static pthread_t start_one(void* (*body)(void*), long* id) {
  pthread_t thread;
  signal(SIGURG, count_urgent);
  CHECK(pipe(end_of_pipe) == 0 && sem_init(&is_ready, 0, 0) == 0, "pipe");
  CHECK(pthread_create(&thread, NULL, body, id) == 0, "pthread_create");
  CHECK(sem_wait(&is_ready) == 0, "sem_wait");
  return thread;
}
static void end_unasked(pthread_t thread, long id) {
  CHECK(pending_signals(id) == 0, "%llx are pending", pending_signals(id));
  CHECK(close(end_of_pipe[1]) == 0 && pthread_join(thread, NULL) == 0, "pthread_join");
}

// Each program with GLib has a thread that blocks all signals: it is not asked to stop.
CASE(a_thread_that_blocks_signals_is_not_asked) {
  long id = 0;
  const pthread_t thread = start_one(sleep_without_signals, &id);
  for (int i = 0; i < 40; ++i) churn(NULL);
  end_unasked(thread, id);
  char* block = malloc(SIZE);
  global = block;
  free(block);
  CHECK(!comes_back(hide(block), SIZE, FOR_EVER), "used again");
}

// A thread that sweeps, until it is told.
static void* churn_until_over(void* unused) {
  while (!is_over) churn(NULL);
  return unused;
}
static pthread_t begin_to_churn(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, churn_until_over, NULL) == 0, "pthread_create");
  return thread;
}
static void end_churning(pthread_t thread) {
  is_over = true;
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

CASE(a_signal_that_the_program_handles_is_its_own) {
  pthread_t thread;
  signal(SIGURG, count_urgent);
  CHECK(pthread_create(&thread, NULL, churn, NULL) == 0, "pthread_create");
  int sent = 0;
  for (; pthread_tryjoin_np(thread, NULL) != 0; ++sent) CHECK(raise(SIGURG) == 0, "raise");
  CHECK(urgent_signals == sent, "%d of %d came", urgent_signals, sent);
  CHECK(signal(SIGURG, SIG_DFL) == count_urgent, "another handler");
}

// It goes with its handler otherwise.
CASE(a_signal_that_the_program_waits_for_is_its_own) {
  sigset_t urgent;
  sigemptyset(&urgent);
  sigaddset(&urgent, SIGURG);
  CHECK(pthread_sigmask(SIG_BLOCK, &urgent, NULL) == 0 && raise(SIGURG) == 0, "raise");
  const pthread_t sweeping = begin_to_churn();
  for (int i = 0; i < 5; ++i) churn(NULL);
  end_churning(sweeping);
  const struct timespec now = {0};
  CHECK(sigtimedwait(&urgent, NULL, &now) == SIGURG, "it is gone");
  CHECK(sigtimedwait(&urgent, NULL, &now) == -1, "there is another");
}

// The thread that is about to execute it runs, and is sent one although it blocks them: as if it
// had come just before.
CASE(no_signal_of_a_sweep_comes_to_a_program_that_is_executed) {
  sigset_t all;
  sigfillset(&all);
  if (getenv("TEST_EXECUTED") == NULL) {
    pthread_t thread;
    sigset_t pending;
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    CHECK(pthread_create(&thread, NULL, churn, NULL) == 0, "pthread_create");
    do {
      CHECK(sigpending(&pending) == 0, "sigpending");
    } while (sigisemptyset(&pending) == 1 && pthread_tryjoin_np(thread, NULL) != 0);
    CHECK(setenv("TEST_EXECUTED", "1", 1) == 0, "setenv");
    execl("/proc/self/exe", "sweep", "no_signal_of_a_sweep_comes_to_a_program_that_is_executed",
          (char*)NULL);
    CHECK(false, "execl: %s", strerror(errno));
  }
  pthread_sigmask(SIG_UNBLOCK, &all, NULL);
}

static void* read_until_cancelled(void* unused) {
  char byte;
  CHECK(read(end_of_pipe[0], &byte, 1) == 0, "read");
  return unused;
}
// Whoever stops it waits for it: it may not be gone.
CASE(a_thread_that_is_stopped_is_cancelled_later) {
  CHECK(pipe(end_of_pipe) == 0, "pipe");
  const pthread_t sweeping = begin_to_churn();
  for (int round = 0; round < 1000; ++round) {
    pthread_t threads[4];
    for (int i = 0; i < 4; ++i) {
      CHECK(pthread_create(&threads[i], NULL, read_until_cancelled, NULL) == 0, "create");
    }
    for (int i = 0; i < 4; ++i) CHECK(pthread_cancel(threads[i]) == 0, "pthread_cancel");
    for (int i = 0; i < 4; ++i) CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
  }
  end_churning(sweeping);
}

// It has the handler, too, if threads are just being stopped, and nobody lets it go on.
CASE(a_child_of_a_fork_that_tells_nobody_is_not_stopped) {
  const pthread_t sweeping = begin_to_churn();
  for (int round = 0; round < 2000; ++round) {
    const pid_t child = _Fork();
    if (child == 0) _exit(raise(SIGURG));
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child: %x", status);
  }
  end_churning(sweeping);
}

// Private memory of the device is like any other.
CASE(a_pointer_may_lie_in_private_zeros) {
  const int zeros = open("/dev/zero", O_RDWR);
  char* volatile* place = mmap(NULL, 4 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, zeros, 0);
  CHECK(zeros >= 0 && place != MAP_FAILED, "/dev/zero");
  must_keep(free_one(place, SIZE, 0), SIZE, "private zeros");
}

// The system writes each end of a line in a name as four characters.
CASE(mappings_may_have_names_of_any_length) {
  enum { DEPTH = 17, NAME = 250 };
  char name[NAME + 1] = {0};
  memset(name, '\n', NAME);
  for (int i = 0; i < DEPTH; ++i) CHECK(mkdir(name, 0700) == 0 && chdir(name) == 0, "mkdir");
  const int file = open("file", O_RDWR | O_CREAT, 0600);
  CHECK(file >= 0 && ftruncate(file, 4 * KIB) == 0, "file");
  char* volatile* place = mmap(NULL, 4 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  CHECK(place != MAP_FAILED, "mmap");
  must_keep(free_one(place, SIZE, 0), SIZE, "a file with a long name");
  char* volatile local;
  must_keep(free_one(&local, SIZE, 0), SIZE, "the stack above it");
}

static void* keep_and_end(void* unused) {
  must_keep(free_one(&global, SIZE, 0), SIZE, "a global");
  exit(0);
  return unused;
}
// The system takes the process's memory for that of its first thread.
CASE(the_first_thread_may_have_ended) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, keep_and_end, NULL) == 0, "pthread_create");
  pthread_exit(NULL);
}

static void* keep_below_stack(void* memory) {
  point_from(memory, (char*)memory + 4 * KIB);
  must_keep_secrets("what lies below a stack", 4 * KIB);
  return NULL;
}
CASE(a_stack_may_lie_above_other_memory) {
  enum { BYTES = MIB };
  char* memory = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED, "mmap");
  pthread_attr_t attributes;
  pthread_t thread;
  CHECK(pthread_attr_init(&attributes) == 0, "attributes");
  CHECK(pthread_attr_setstack(&attributes, memory + BYTES, BYTES) == 0, "stack");
  CHECK(pthread_create(&thread, &attributes, keep_below_stack, memory) == 0, "create");
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

// Of another thread, whose pointers are those of blocks that were this one's: they come back here.
static char* volatile* _Atomic of_other_thread;
static void keep_for_other_thread(const char* where, int times) {
  while (of_other_thread == NULL) continue;
  char* const begin = (char*)of_other_thread;
  point_from(begin, begin + POINTERS * sizeof(char*));
  clear_stack();
  for (int i = 0; i < times; ++i) {
    CHECK(sweeps_without(secrets, secret_count, SIZE, SWEEPS, where) > 0, "no sweeps");
  }
  is_over = true;
}

static void wait_until_over(int signal) {
  while (!is_over || signal == 0) continue;
}
static void* keep_for_first_thread(void* unused) {
  keep_for_other_thread("a stack that was left for one of signals", 1);
  return unused;
}
__attribute__((noinline)) static void take_signal_below(void) {
  char* volatile local[POINTERS] = {NULL};
  of_other_thread = local;
  CHECK(raise(SIGUSR1) == 0 && local[0] != NULL, "raise");
}
// What is in use of the usual stack lies below then.
CASE(a_signal_stack_may_lie_on_the_stack_of_the_first_thread) {
  char memory[64 * KIB];
  const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
  struct sigaction action = {.sa_handler = wait_until_over, .sa_flags = SA_ONSTACK};
  pthread_t thread;
  CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0, "signal");
  CHECK(pthread_create(&thread, NULL, keep_for_first_thread, NULL) == 0, "pthread_create");
  take_signal_below();
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

static void* resize_in_place(void* unused) {
  enum { ROOM = 20000 };
  char* block = obtain(ROOM);
  of_other_thread = (char* volatile*)(void*)block;
  for (size_t i = 0; !is_over; ++i) {
    char* const same = realloc(block, ROOM - 8 * (i & 1));
    CHECK(same == block, "it has moved");
  }
  free(block);
  return unused;
}
CASE(a_block_that_is_resized_is_looked_at) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, resize_in_place, NULL) == 0, "pthread_create");
  keep_for_other_thread("a block in realloc", 20);
  CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

// What cannot be seen for now is kept for now.
CASE(nothing_is_let_go_of_while_there_are_no_descriptors) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  const rlim_t most = limit.rlim_cur;
  const secret block = free_one(&global, SIZE, 0);
  limit.rlim_cur = 0;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  CHECK(!comes_back(block, SIZE, 100000), "used again");
  limit.rlim_cur = most;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  must_keep(block, SIZE, "a global");
  global = NULL;
  must_let_go(block, SIZE, "a global");
}

static void await_state(long id, char wanted) {
  char state = 0;
  while (state != wanted) {
    char text[4096];
    read_status(id, text, sizeof text);
    const char* const line = strstr(text, "\nState:");
    CHECK(line != NULL && sscanf(line, "\nState: %c", &state) == 1, "State");
  }
}
static int receiving[2];
static atomic_long receiver, poller;
static secret given_to_the_system;
static void* receive_with_timeout(void* unused) {
  receiver = syscall(SYS_gettid);
  const long got = syscall(SYS_recvfrom, receiving[0], ~given_to_the_system, 0, 0, NULL, NULL);
  CHECK(got == 0, "recvfrom: %s", strerror(errno));
  return unused;
}
static int written_to[2], filled[2];
static atomic_long writer, filler;
enum { MUCH = MIB };
static void* write_much(void* unused) {
  char* bytes = calloc(1, MUCH);
  writer = syscall(SYS_gettid);
  const ssize_t written = write(written_to[1], bytes, MUCH);
  CHECK(written == MUCH, "write: %zd", written);
  free(bytes);
  return unused;
}
static void* receive_all(void* unused) {
  char bytes[100];
  filler = syscall(SYS_gettid);
  const ssize_t got = recv(filled[0], bytes, sizeof bytes, MSG_WAITALL);
  CHECK(got == sizeof bytes, "recv: %zd", got);
  return unused;
}
static void* wait_in_poll(void* unused) {
  struct pollfd end = {.fd = end_of_pipe[0], .events = POLLIN};
  poller = syscall(SYS_gettid);
  CHECK(poll(&end, 1, -1) == 1, "poll: %s", strerror(errno));
  return unused;
}
// These calls would end, whatever the handler: with EINTR, or with a part of what they are for.
// What they were given counts.
CASE(threads_that_sleep_in_the_system_are_let_sleep) {
  const struct timeval long_time = {.tv_sec = 600};
  pthread_t threads[4];
  CHECK(pipe(end_of_pipe) == 0 && pipe(written_to) == 0, "pipe");
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, receiving) == 0, "socketpair");
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, filled) == 0, "socketpair");
  CHECK(setsockopt(receiving[0], SOL_SOCKET, SO_RCVTIMEO, &long_time, sizeof long_time) == 0,
        "setsockopt");
  char* volatile local;
  given_to_the_system = free_one(&local, SIZE, 8) - 8;
  local = NULL;
  CHECK(pthread_create(&threads[0], NULL, receive_with_timeout, NULL) == 0, "pthread_create");
  CHECK(pthread_create(&threads[1], NULL, wait_in_poll, NULL) == 0, "pthread_create");
  CHECK(pthread_create(&threads[2], NULL, write_much, NULL) == 0, "pthread_create");
  CHECK(pthread_create(&threads[3], NULL, receive_all, NULL) == 0, "pthread_create");
  CHECK(send(filled[1], "some", 4, 0) == 4, "send");
  while (receiver == 0 || poller == 0 || writer == 0 || filler == 0) continue;
  await_state(receiver, 'S');
  await_state(poller, 'S');
  await_state(writer, 'S');
  await_state(filler, 'S');
  must_keep(given_to_the_system + 8, SIZE, "the system's");
  for (int i = 0; i < 10; ++i) churn(NULL);
  CHECK(send(receiving[1], "", 0, 0) == 0 && close(end_of_pipe[1]) == 0, "the end");
  static char rest[MUCH];
  CHECK(send(filled[1], rest, 96, 0) == 96, "send");
  for (size_t got = 0; got < MUCH;) got += (size_t)read(written_to[0], rest, sizeof rest);
  for (int i = 0; i < 4; ++i) CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
}

static void free_much_in_a_child_of_vfork(void) {
  const pid_t child = vfork();
  if (child == 0) {
    for (int i = 0; i < 2000; ++i) free(hidden(malloc(SIZE)));
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child: %x", status);
}
// A sweep that it began would never end.
CASE(a_child_of_vfork_leaves_no_sweep_behind) {
  for (int i = 0; i < 400; ++i) free_much_in_a_child_of_vfork();
  CHECK(sweeps_without(NULL, 0, SIZE, SWEEPS, "") > 0, "no sweeps any more");
}

static void* wait_for_child(void* id) {
  *(long*)id = syscall(SYS_gettid);
  CHECK(sem_post(&is_ready) == 0, "sem_post");
  const pid_t child = vfork();
  if (child == 0) {
    char byte;
    _exit(close(end_of_pipe[1]) == 0 && read(end_of_pipe[0], &byte, 1) == 0 ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child: %x", status);
  return NULL;
}
// No signal ends the wait for a child of vfork: all others would stand still as long.
CASE(a_thread_that_waits_in_vfork_is_not_asked) {
  long id = 0;
  const pthread_t thread = start_one(wait_for_child, &id);
  await_state(id, 'D');
  for (int i = 0; i < 10; ++i) churn(NULL);
  end_unasked(thread, id);
}

static char* volatile* waiting_place;
// Between two waits it runs, and blocks all signals then.
static void* wait_for_any_signal(void* taken) {
  char* volatile local[POINTERS];
  waiting_place = local;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  CHECK(sem_post(&is_ready) == 0, "sem_post");
  do {
    for (volatile int i = 0; i < 1000000; ++i) continue;
    CHECK(sigwait(&all, taken) == 0, "sigwait");
  } while (*(int*)taken == SIGUSR1);
  return NULL;
}
// It would be handed the signal that stops threads. What is on its stack counts all the same.
CASE(a_thread_that_waits_for_any_signal_is_sent_none) {
  pthread_t thread;
  int taken = 0;
  CHECK(sem_init(&is_ready, 0, 0) == 0, "sem_init");
  CHECK(pthread_create(&thread, NULL, wait_for_any_signal, &taken) == 0, "pthread_create");
  CHECK(sem_wait(&is_ready) == 0, "sem_wait");
  for (int i = 0; i < POINTERS; ++i) secrets[secret_count++] = free_one(&waiting_place[i], SIZE, 8);
  must_keep_secrets("a stack", SIZE);
  for (int i = 0; i < 100; ++i) {
    CHECK(pthread_kill(thread, SIGUSR1) == 0, "pthread_kill");
    churn(NULL);
  }
  CHECK(pthread_kill(thread, SIGUSR2) == 0 && pthread_join(thread, NULL) == 0, "the end");
  CHECK(taken == SIGUSR2, "signal %d came", taken);
}

// Blocks that have memory, as many as there are; what is written to them are no addresses.
enum { LUMP = 60000, MOST_LUMPS = 8192 };
static secret lumps[MOST_LUMPS];
static int obtain_all(void) {
  int count = 0;
  for (; count < MOST_LUMPS; ++count) {
    char* lump = malloc(LUMP);
    if (lump == NULL) break;
    memset(lump, 1, LUMP);
    *(int*)lump = count;
    lumps[count] = hide(lump);
  }
  CHECK(count > 100 && count < MOST_LUMPS, "%d lumps", count);
  for (int i = 0; i < count; ++i) CHECK(*(int*)~lumps[i] == i, "lump %d was given out twice", i);
  return count;
}
CASE(what_is_held_serves_when_there_is_no_more) {
  limit_address_space(256 * (size_t)MIB);
  const int most = obtain_all();
  for (int round = 0, again = most; round < 5; ++round) {
    for (int i = 0; i < again; ++i) free((void*)~lumps[i]);
    clear_stack();
    again = obtain_all();
    // Some 93 of 100, and fewer beside others; 60 when what is held does not serve.
    CHECK(again >= most - most / 5, "%d of %d in round %d", again, most, round);
  }
}

// A thread that sleeps in read() is stopped, and sleeps again afterwards.
static int sleeps_in[2];
static atomic_long sleeper;
static void* sleep_in_read(void* unused) {
  sleeper = syscall(SYS_gettid);
  char byte;
  CHECK(read(sleeps_in[0], &byte, 1) == 1, "read: %s", strerror(errno));
  return unused;
}
static void begin_to_count_stops(void) {
  pthread_t thread;
  CHECK(pipe(sleeps_in) == 0, "pipe");
  CHECK(pthread_create(&thread, NULL, sleep_in_read, NULL) == 0, "pthread_create");
  while (sleeper == 0) continue;
  await_state(sleeper, 'S');
}
// How often it has gone to sleep. Each stop adds one at least.
static int sleeps(void) {
  await_state(sleeper, 'S');
  char text[4096];
  read_status(sleeper, text, sizeof text);
  int count = 0;
  const char* const line = strstr(text, "\nvoluntary_ctxt_switches:");
  CHECK(line != NULL && sscanf(line, "\nvoluntary_ctxt_switches: %d", &count) == 1, "switches");
  return count;
}
// Few enough for no sweep to be due, and no slab is empty afterwards.
enum { ROUNDS = 20, FREED_EACH = 200 };
static char* small_blocks[ROUNDS][FREED_EACH][2];
static void obtain_small_blocks(void) {
  char** const all = &small_blocks[0][0][0];
  for (size_t i = 0; i < sizeof small_blocks / sizeof *all; ++i) all[i] = obtain(SIZE);
}
static void free_every_other(int round) {
  for (int i = 0; i < FREED_EACH; ++i) free(small_blocks[round][i][0]);
}

CASE(nothing_is_swept_for_a_request_that_is_out_of_proportion) {
  obtain_small_blocks();
  begin_to_count_stops();
  const int before = sleeps();
  for (int i = 0; i < ROUNDS; ++i) {
    free_every_other(i);
    CHECK(malloc(hidden_size((size_t)1 << 46)) == NULL, "there is so much");
  }
  CHECK(sleeps() == before, "%d sleeps", sleeps() - before);
}
CASE(requests_that_no_sweep_helps_are_not_swept_for_again_and_again) {
  obtain_small_blocks();
  begin_to_count_stops();
  limit_address_space(64 * (size_t)MIB);
  obtain_all();
  const int before = sleeps();
  for (int i = 0; i < ROUNDS; ++i) {
    free_every_other(i);
    CHECK(malloc(hidden_size(LUMP)) == NULL, "there is so much");
  }
  // Two sweeps, of which each stops it once: it sleeps in the handler, and in read() again.
  CHECK(sleeps() - before <= 4, "%d sleeps", sleeps() - before);
}

// Where such a call fails, no sweep can look.
static void expect_to_be_told(unsigned number) {
  FILE* messages = fopen("messages", "w+");
  CHECK(messages != NULL, "messages");
  secret block = free_one(&global, SIZE, 0);
  must_keep(block, SIZE, "a global");
  const int before = dup(STDERR_FILENO);
  CHECK(before >= 0 && dup2(fileno(messages), STDERR_FILENO) == STDERR_FILENO, "dup2");
  refuse(number, ~0U);
  const bool first = comes_back(block, SIZE, FOR_EVER);
  block = free_one(&global, SIZE, 0);
  const bool second = comes_back(block, SIZE, FOR_EVER);
  CHECK(dup2(before, STDERR_FILENO) == STDERR_FILENO, "dup2");
  CHECK(first && second, "held for ever: %d, %d", !first, !second);
  static char text[1000];
  const ssize_t length = pread(fileno(messages), text, sizeof text - 1, 0);
  static const char expected[] =
      "warning: ALLOD_HARDENED=sweep has stopped: /proc no longer shows this process\n";
  const char* const told = strstr(text, expected);
  CHECK(told != NULL && told + sizeof expected - 1 == text + length, "messages: \"%s\"", text);
  fclose(messages);
}
// As after chroot to a place without /proc.
CASE(where_no_sweep_can_look_the_program_is_told_and_nothing_is_held_for_ever) {
  expect_to_be_told(SYS_openat);
}
CASE(a_list_of_mappings_that_cannot_be_read_is_not_taken_for_an_empty_one) {
  expect_to_be_told(SYS_read);
}

CASE(a_child_goes_on_with_what_is_kept) {
  const pthread_t thread = begin_to_churn();
  const secret block = free_one(&global, SIZE, 0);
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
      must_keep(block, SIZE, "a global, in the child");
      _exit(0);
    }
    churn(NULL);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %#x", status);
  }
  end_churning(thread);
}

// Children that run in the memory of their parent and allocate there, as shells, debuggers and
// libraries that start programs have them do. POSIX forbids it, and it works with other allocators.
// Between any two instructions of such a child another thread of its parent may run on the same
// processor: here one does, each time.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

#if defined __x86_64__ && defined __linux__

enum { kBytes = 48, kMost = 1 << 16, kChildren = 8, kPatience = 100, kTrapFlag = 0x100 };

// All blocks that somebody holds.
static _Atomic(int*) blocks[kMost];
static atomic_int block_count;
static void keep(int* block) {
  const int place = atomic_fetch_add(&block_count, 1);
  if (block != NULL && place < kMost) atomic_store(&blocks[place], block);
}

// The other thread, which takes a block each time it is its turn.
static atomic_bool is_its_turn;
static atomic_bool is_over;
static void* take_blocks(void* unused) {
  while (!atomic_load(&is_over)) {
    if (atomic_load(&is_its_turn)) {
      keep(malloc(kBytes));
      atomic_store(&is_its_turn, false);
    }
    syscall(SYS_sched_yield);
  }
  return unused;
}
// Not for ever: it may have to wait for what the child holds.
static void let_it_run(int signal) {
  (void)signal;
  atomic_store(&is_its_turn, true);
  for (int i = 0; i < kPatience && atomic_load(&is_its_turn); ++i) syscall(SYS_sched_yield);
}

// From here on each instruction is a step, after which the other thread runs. The red zone stays as
// it is.
static inline void begin_steps(void) {
  __asm__ volatile(
      "lea -128(%%rsp), %%rsp; pushfq; orq %0, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::"i"(
          kTrapFlag)
      : "memory", "cc");
}
static inline void end_steps(void) {
  __asm__ volatile(
      "lea -128(%%rsp), %%rsp; pushfq; andq %0, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::"i"(
          ~kTrapFlag)
      : "memory", "cc");
}

static int* spare;
static void take_one(void) { keep(malloc(kBytes)); }
static void give_one_back(void) { free(spare); }
static void (*in_child)(void);

static void step_in_child(void) {
  begin_steps();
  in_child();
  end_steps();
  _exit(0);
}
__attribute__((noinline)) static pid_t make_by_vfork(void) {
  // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork)
  const pid_t child = vfork();
  if (child == 0) step_in_child();
  return child;
}
static int step_in_clone(void* unused) {
  (void)unused;
  step_in_child();
  return 0;
}
static pid_t make_by_clone(void) {
  static char stack[1 << 16] __attribute__((aligned(16)));
  return clone(step_in_clone, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
}
static pid_t (*make_child)(void);

// On a thread that has nothing of its own, as it has hardly allocated.
static void* have_a_child(void* unused) {
  void* ready[8];
  for (int i = 0; i < 8; ++i) ready[i] = obtain(kBytes);
  for (int i = 1; i < 8; ++i) free(ready[i]);
  spare = ready[0];
  const pid_t child = make_child();
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child, "waitpid: %s", strerrorname_np(errno));
  CHECK(status == 0, "the child ended with status %d", status);
  if (in_child == take_one) free(spare);
  return unused;
}

static void check_blocks(void) {
  const int count = atomic_load(&block_count);
  CHECK(count < kMost, "%d blocks", count);
  for (int i = 0; i < count; ++i) {
    if (blocks[i] != NULL) *blocks[i] = i;
  }
  for (int i = 0; i < count; ++i) {
    CHECK(blocks[i] == NULL || *blocks[i] == i, "block %d is another's as well", i);
  }
  for (int i = 0; i < count; ++i) free(blocks[i]);
  atomic_store(&block_count, 0);
}

static void play(void (*child)(void), pid_t (*make)(void)) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET((size_t)sched_getcpu(), &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
  struct sigaction step = {.sa_handler = let_it_run};
  CHECK(sigaction(SIGTRAP, &step, NULL) == 0, "sigaction");
  in_child = child;
  make_child = make;
  for (int i = 0; i < kChildren; ++i) {
    pthread_t other;
    pthread_t parent;
    atomic_store(&is_over, false);
    other = start_thread(take_blocks, NULL);
    parent = start_thread(have_a_child, NULL);
    pthread_join(parent, NULL);
    atomic_store(&is_over, true);
    pthread_join(other, NULL);
    for (int more = 0; more < 100; ++more) keep(malloc(kBytes));
    check_blocks();
  }
}

#else

static void take_one(void) {}
static void give_one_back(void) {}
static void make_by_vfork(void) {}
static void make_by_clone(void) {}
static void play(void (*child)(void), void (*make)(void)) {
  (void)child;
  (void)make;
  skip_case("there are no single steps here");
}

#endif

CASE(a_child_of_vfork_takes_a_block) { play(take_one, make_by_vfork); }
CASE(a_child_of_vfork_gives_a_block_back) { play(give_one_back, make_by_vfork); }
CASE(a_child_of_clone_takes_a_block) { play(take_one, make_by_clone); }
CASE(a_child_of_clone_gives_a_block_back) { play(give_one_back, make_by_clone); }

// Handlers that allocate and free, at each instruction of what they interrupt. POSIX forbids them.
// What they must not do is hang, or be given a block that is in use, wherever they come in a slow
// path; the few instructions of a fast one cannot be protected, and are not tried.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

// What is interrupted, with `in_use` blocks, and `ready` ones that were freed before.
struct scene {
  bool frees;
  size_t size;
  int in_use;
  int ready;
};

#if defined __x86_64__ && defined __linux__

// One that the program has, whoever has allocated it.
enum { MOST_BLOCKS = 2048 };
static void* blocks[MOST_BLOCKS];
static int block_count;
static void keep(void* block) {
  if (block != NULL) blocks[block_count++] = block;
}

static size_t block_size;
static void take_and_give_back(void) {
  void* const block = malloc(block_size);
  if (block != NULL) *(volatile char*)block = 1;
  free(block);
}
static void take_two(void) {
  for (int i = 0; i < 2; ++i) keep(malloc(block_size));
}
static void give_back_two(void) {
  for (int i = 0; i < 2; ++i) free(blocks[--block_count]);
}

enum { TRAP_FLAG = 0x100 };
static volatile bool is_interrupted;
static void (*intrude)(void);
// What the kernel maps into each process (vdso(7)).
static uintptr_t kernel_code;
static const uintptr_t kernel_code_bytes = 16 * KIB;
// Of the process that steps; its parent reads it when it is gone.
static long* steps;
// The handler comes in a child, which is as its parent is at this step: no function of the C
// library makes it, and no handler of a fork runs.
static void come_at_step(int signal, siginfo_t* information, void* context) {
  (void)signal;
  (void)information;
  ++*steps;
  // The kernel's code for clocks begins anew when a tick comes, so it would never end.
  const greg_t place = ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
  if ((uintptr_t)place - kernel_code < kernel_code_bytes) return;
  const pid_t child = (pid_t)syscall(SYS_fork);
  if (child == 0) {
    ((ucontext_t*)context)->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
    is_interrupted = true;
    alarm(60);
    intrude();
    return;
  }
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child, "a child at step %ld", *steps);
  CHECK(status == 0, "a handler at step %ld: status %x", *steps, status);
}
// From here on each instruction is a step. The red zone stays as it is.
static inline void begin_steps(void) {
  __asm__ volatile(
      "lea -128(%%rsp), %%rsp; pushfq; orq %0, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::"i"(
          TRAP_FLAG)
      : "memory", "cc");
}
static inline void end_steps(void) {
  __asm__ volatile(
      "lea -128(%%rsp), %%rsp; pushfq; andq %0, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::"i"(
          ~TRAP_FLAG)
      : "memory", "cc");
}

// No two are the same, and none is handed out again.
static void check_blocks(void) {
  const int more = block_size < 100 * KIB ? 600 : 6;
  for (int i = 0; i < more; ++i) keep(obtain(block_size));
  for (int i = 0; i < block_count; ++i) *(int*)blocks[i] = i;
  for (int i = 0; i < block_count; ++i) CHECK(*(int*)blocks[i] == i, "block %d is another's", i);
  for (int i = 0; i < block_count; ++i) free(blocks[i]);
}

// In a child, which comes to its end, or to where all signals are blocked: no step is told there.
static void play(const struct scene* scene) {
  *steps = 0;
  const pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) {
    void* const spare = blocks[--block_count];
    void* volatile taken = NULL;
    begin_steps();
    if (scene->frees) {
      free(spare);
    } else {
      taken = malloc(block_size);
    }
    end_steps();
    if (!is_interrupted) _exit(0);
    if (!scene->frees) {
      CHECK(taken != NULL, "nothing comes");
      keep(taken);
      keep(spare);
    }
    check_blocks();
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child, "waitpid");
  const bool is_blocked = WIFSIGNALED(status) && WTERMSIG(status) == SIGTRAP;
  CHECK(is_blocked || status == 0, "status %x", status);
  CHECK(*steps > 50, "%ld steps only", *steps);
}
static void play_all(struct scene scene, void (*const intrusions[])(void), int count) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = come_at_step;
  action.sa_flags = SA_SIGINFO;
  sigfillset(&action.sa_mask);
  // It ends a child whose handler hangs.
  sigdelset(&action.sa_mask, SIGALRM);
  CHECK(sigaction(SIGTRAP, &action, NULL) == 0, "sigaction");
  steps = mmap(NULL, sizeof *steps, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(steps != MAP_FAILED, "mmap");
  kernel_code = getauxval(AT_SYSINFO_EHDR);
  block_size = scene.size;
  for (int i = 0; i < scene.in_use + scene.ready; ++i) keep(obtain(block_size));
  for (int i = 0; i < scene.ready; ++i) free(blocks[--block_count]);
  for (int i = 0; i < count; ++i) {
    intrude = intrusions[i];
    play(&scene);
  }
}

#else

static void take_and_give_back(void) {}
static void take_two(void) {}
static void give_back_two(void) {}
static void play_all(struct scene scene, void (*const intrusions[])(void), int count) {
  (void)scene;
  (void)intrusions;
  (void)count;
  skip_case("steps are told apart on x86-64 only");
}

#endif

CASE(handlers_in_a_refill) {
  const struct scene scene = {.size = 3000, .in_use = 26};
  void (*const all[])(void) = {take_and_give_back, take_two, give_back_two};
  play_all(scene, all, 3);
}
CASE(handlers_in_a_flush) {
  const struct scene scene = {.frees = true, .size = 3000, .in_use = 188, .ready = 20};
  void (*const all[])(void) = {take_and_give_back, take_two};
  play_all(scene, all, 2);
}
CASE(handlers_while_a_huge_block_is_allocated) {
  const struct scene scene = {.size = 5 * MIB, .in_use = 4, .ready = 1};
  void (*const all[])(void) = {take_and_give_back, take_two, give_back_two};
  play_all(scene, all, 3);
}
CASE(handlers_while_a_huge_block_is_freed) {
  const struct scene scene = {.frees = true, .size = 5 * MIB, .in_use = 4, .ready = 1};
  void (*const all[])(void) = {take_and_give_back, take_two, give_back_two};
  play_all(scene, all, 3);
}
CASE(handlers_while_a_large_block_is_freed) {
  const struct scene scene = {.frees = true, .size = 600000, .in_use = 4, .ready = 1};
  void (*const all[])(void) = {take_and_give_back, take_two, give_back_two};
  play_all(scene, all, 3);
}

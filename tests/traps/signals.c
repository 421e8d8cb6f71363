// Signals: handlers of the program's that interrupt the allocator anywhere, and what the allocator
// has to leave alone.
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

static volatile sig_atomic_t interruptions;

static void count_interruption(int signal) {
  (void)signal;
  int saved = errno;
  // Disturbs what a signal handler may disturb.
  volatile unsigned char scratch[512];
  for (size_t i = 0; i < sizeof scratch; ++i) {
    scratch[i] = (unsigned char)i;
  }
  interruptions = interruptions + 1;
  errno = saved;
}

static void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  CHECK(sigaction(signal, &action, NULL) == 0, "sigaction");
}

static void start_timer(int timer, int microseconds) {
  const struct itimerval interval = {{0, microseconds}, {0, microseconds}};
  CHECK(setitimer(timer, &interval, NULL) == 0, "setitimer");
}

static void work_until_interrupted(int times) {
  for (uint64_t seed = 1; interruptions < times; ++seed) {
    struct block_set set;
    allocate_set(&set, seed);
    exercise(seed, 500);
    free_set(&set);
    free(malloc(40 * MIB));
  }
}

CASE(alarms_interrupt_without_effect) {
  handle(SIGALRM, count_interruption, SA_RESTART);
  start_timer(ITIMER_REAL, 200);
  work_until_interrupted(1000);
  start_timer(ITIMER_REAL, 0);
}

// Without SA_RESTART a system call in the allocator may end with EINTR.
CASE(alarms_that_do_not_restart_system_calls) {
  handle(SIGALRM, count_interruption, 0);
  start_timer(ITIMER_REAL, 200);
  work_until_interrupted(1000);
  start_timer(ITIMER_REAL, 0);
}

CASE(profiling_signals_on_an_alternate_stack) {
  stack_t stack = {.ss_sp = obtain((size_t)SIGSTKSZ), .ss_size = (size_t)SIGSTKSZ};
  CHECK(sigaltstack(&stack, NULL) == 0, "sigaltstack");
  handle(SIGPROF, count_interruption, SA_RESTART | SA_ONSTACK);
  start_timer(ITIMER_PROF, 1000);
  work_until_interrupted(100);
  start_timer(ITIMER_PROF, 0);
  stack_t now;
  CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack.ss_sp,
        "the alternate stack was replaced");
}

// As the system does without us.
CASE(an_address_of_no_stack_is_refused) {
  void* nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(nowhere != MAP_FAILED, "mmap");
  const stack_t* none[] = {hidden((void*)16), hidden(nowhere)};
  for (size_t i = 0; i < 2; ++i) {
    errno = 0;
    CHECK(sigaltstack(none[i], NULL) == -1 && errno == EFAULT, "errno is %d", errno);
  }
  stack_t now;
  CHECK(sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_DISABLE) != 0, "there is a stack");
}

static atomic_bool stop;

static void* work_until_stopped(void* argument) {
  uint64_t seed = (uintptr_t)argument;
  while (!atomic_load(&stop)) {
    exercise(seed++, 200);
  }
  return NULL;
}

CASE(signals_to_threads_that_allocate) {
  enum { kThreads = 3 };
  handle(SIGUSR1, count_interruption, SA_RESTART);
  pthread_t threads[kThreads];
  for (size_t i = 0; i < kThreads; ++i) threads[i] = start_thread(work_until_stopped, (void*)i);
  for (uint64_t round = 0; round < 3000; ++round) {
    CHECK(pthread_kill(threads[round % kThreads], SIGUSR1) == 0, "pthread_kill");
    exercise(round, 5);
  }
  atomic_store(&stop, true);
  for (size_t i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
}

static sigjmp_buf jump_target;
static volatile sig_atomic_t may_jump;

static void jump_away(int signal) {
  (void)signal;
  if (may_jump) {
    may_jump = 0;
    siglongjmp(jump_target, 1);
  }
}

// A jump out of a handler that interrupted the program, not the allocator.
CASE(handlers_that_jump_between_allocations) {
  handle(SIGALRM, jump_away, 0);
  start_timer(ITIMER_REAL, 300);
  static struct block_set set;
  static volatile uint64_t jumps;
  allocate_set(&set, 1);
  while (jumps < 300) {
    if (sigsetjmp(jump_target, 1) == 0) {
      may_jump = 1;
      for (volatile uint64_t spin = 0;; spin = spin + 1) {
      }
    }
    jumps = jumps + 1;
    free_set(&set);
    allocate_set(&set, jumps);
    exercise(jumps, 100);
  }
  start_timer(ITIMER_REAL, 0);
  free_set(&set);
}

// Enough of everything that an allocator which ever starts threads or installs handlers has.
static void make_the_allocator_busy(void) {
  pthread_t threads[2];
  atomic_store(&stop, false);
  for (size_t i = 0; i < 2; ++i) threads[i] = start_thread(work_until_stopped, (void*)i);
  enum { kLumps = 200 };
  void* lumps[kLumps];
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < kLumps; ++i) {
      size_t size = i % 2 == 0 ? 1 * MIB : 50 * KIB;
      lumps[i] = obtain(size);
      memset(lumps[i], 1, size);
    }
    for (size_t i = 0; i < kLumps; ++i) {
      free(lumps[i]);
    }
  }
  atomic_store(&stop, true);
  for (size_t i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
}

// Except that the hardened library tells faults on its guard pages, and that SIGURG, which is
// ignored otherwise, may ask for the live page (ALLOD_ATTACH).
CASE(dispositions_and_masks_are_left_alone) {
  make_the_allocator_busy();
  const char* library = getenv("LD_PRELOAD");
  const int is_hardened = library != NULL && strstr(library, "hardened") != NULL;
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action;
    if ((is_hardened && signal == SIGSEGV) || signal == SIGURG) continue;
    if (sigaction(signal, NULL, &action) == 0) {
      CHECK(action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN, "signal %d has a handler",
            signal);
    }
  }
  stack_t stack;
  CHECK(sigaltstack(NULL, &stack) == 0 && (stack.ss_flags & SS_DISABLE) != 0,
        "there is an alternate stack");
  sigset_t blocked;
  sigset_t after;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  sigaddset(&blocked, SIGRTMIN + 3);
  CHECK(pthread_sigmask(SIG_SETMASK, &blocked, NULL) == 0, "pthread_sigmask");
  make_the_allocator_busy();
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0, "pthread_sigmask");
  for (int signal = 1; signal < NSIG; ++signal) {
    CHECK(sigismember(&blocked, signal) == sigismember(&after, signal),
          "the mask of signal %d was changed", signal);
  }
}

// A signal for the process that all of the program's threads block stays pending; no thread of the
// allocator's may take it.
CASE(blocked_signals_stay_pending) {
  make_the_allocator_busy();
  sigset_t all;
  sigfillset(&all);
  CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0, "pthread_sigmask");
  static const int signals[] = {SIGUSR1, SIGTERM, SIGINT, SIGHUP, SIGALRM, SIGCHLD};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; ++i) {
    CHECK(kill(getpid(), signals[i]) == 0, "kill");
    make_the_allocator_busy();
    sigset_t pending;
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, signals[i]) == 1,
          "signal %d is not pending", signals[i]);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signals[i]);
    int taken = 0;
    CHECK(sigwait(&one, &taken) == 0 && taken == signals[i], "sigwait");
  }
}

static unsigned char* forbidden_page;
static volatile sig_atomic_t faults;

static void allow_page(int signal, siginfo_t* information, void* context) {
  (void)signal;
  (void)context;
  if ((unsigned char*)information->si_addr != forbidden_page) {
    _exit(1);
  }
  faults = faults + 1;
  mprotect(forbidden_page, 4096, PROT_READ | PROT_WRITE);
}

// Programs that manage pages by their faults: garbage collectors, databases.
CASE(the_programs_own_fault_handler) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = allow_page;
  action.sa_flags = SA_SIGINFO;
  CHECK(sigaction(SIGSEGV, &action, NULL) == 0, "sigaction");
  for (int round = 0; round < 200; ++round) {
    forbidden_page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(forbidden_page != MAP_FAILED, "mmap");
    exercise((uint64_t)round, 100);
    *(volatile unsigned char*)forbidden_page = 1;
    CHECK(faults == round + 1, "%d faults", (int)faults);
    munmap(forbidden_page, 4096);
  }
}

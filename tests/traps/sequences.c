// Restartable sequences, by which the threads of a processor share its free blocks. A process is
// stopped at each instruction of each of its sequences, something else happens there, and it goes
// on: each block has one owner, and none is lost.
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "areas.h"
#include "cases.h"
#include "stage.h"

// --- the system
// -----------------------------------------------------------------------------------

// From <linux/rseq.h>, <linux/ptrace.h> and <linux/futex.h>, which older headers lack.
struct sequence {
  uint32_t version, flags;
  uint64_t start, length, abort;
};
struct area_found {
  uint64_t address;
  uint32_t size, signature, flags, unused;
};
enum { kGetArea = 0x420f, kWait = 0, kWake = 1 };
#if defined(__x86_64__)
enum { kTrap = 0xcc, kTrapMask = 0xff };
static uint64_t* counter_of(struct user_regs_struct* registers) {
  return (uint64_t*)&registers->rip;
}
#elif defined(__aarch64__)
enum { kTrap = (int)0xd4200000, kTrapMask = -1 };
static uint64_t* counter_of(struct user_regs_struct* registers) {
  return (uint64_t*)&registers->pc;
}
#endif

// --- what is stopped
// ------------------------------------------------------------------------------

enum { kBytes = 1000, kRound = 48, kKept = 8, kMost = 1 << 12 };
// What the other thread, or a handler, is to do.
enum task { kNothing, kTakeBlocks, kFork, kVfork, kEmpty };

static struct {
  atomic_int task;          // of the other thread, until it has done it
  atomic_int handler_task;  // of the next handler
  atomic_int is_over;
}* shared;

// Blocks in use, each with a number that no other has.
struct kept {
  long* block;
  long number;
};
static struct kept mine[kRound];
static struct kept others[kMost];
static atomic_int other_count;
static atomic_long numbers;

static void hold(struct kept* kept, void* block) {
  CHECK(block != NULL, "no memory");
  kept->number = atomic_fetch_add(&numbers, 1) + 1;
  kept->block = block;
  kept->block[0] = kept->block[kBytes / sizeof(long) - 1] = kept->number;
}
static void verify(const struct kept* kept) {
  if (kept->block == NULL) return;
  CHECK(kept->block[0] == kept->number && kept->block[kBytes / sizeof(long) - 1] == kept->number,
        "block %ld is also block %ld", kept->number, kept->block[0]);
}
static void give_back(struct kept* kept) {
  long* const block = kept->block;
  if (block == NULL) return;
  verify(kept);
  kept->block = NULL;
  free(hidden(block));
}

// Takes the newest blocks of the processor, and keeps the first until the end of the round.
static void take_some(void) {
  const int place = atomic_fetch_add(&other_count, 1);
  CHECK(place < kMost, "%d blocks", place);
  struct kept more[2];
  hold(&others[place], malloc(kBytes));
  for (int i = 0; i < 2; ++i) hold(&more[i], malloc(kBytes));
  for (int i = 0; i < 2; ++i) give_back(&more[i]);
}
static void give_others_back(void) {
  for (int i = 0; i < atomic_load(&other_count); ++i) give_back(&others[i]);
  atomic_store(&other_count, 0);
}

// A child of fork has what was in use, and finds other blocks.
static void live_as_child(void) {
  struct kept own[2 * kRound] = {{NULL, 0}};
  for (int i = 0; i < 2 * kRound; ++i) hold(&own[i], malloc(kBytes));
  for (int i = 0; i < kRound; ++i) verify(&mine[i]);
  for (int i = 0; i < atomic_load(&other_count); ++i) verify(&others[i]);
  for (int i = 0; i < 2 * kRound; ++i) give_back(&own[i]);
  _exit(0);
}
static void expect_well(pid_t child) {
  int status = 0;
  CHECK(child > 0, "no child: %s", strerrorname_np(errno));
  while (waitpid(child, &status, 0) != child) CHECK(errno == EINTR, "waitpid");
  CHECK(status == 0, "a child ended with wait status %#x", status);
}
static void have_a_child(void) {
  const pid_t child = fork();
  if (child == 0) live_as_child();
  expect_well(child);
}
static void have_a_guest(void) {
  // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork)
  const pid_t child = vfork();
  if (child == 0) {
    take_some();
    _exit(0);
  }
  expect_well(child);
}
static void do_task(enum task task) {
  switch (task) {
    case kTakeBlocks:
      return take_some();
    case kFork:
      return have_a_child();
    case kVfork:
      return have_a_guest();
    case kEmpty:
      malloc_trim(0);
      return;
    case kNothing:
      return;
  }
}

static void wait_while(atomic_int* word, int value) {
  const struct timespec most = {0, 20000000};
  syscall(SYS_futex, word, kWait, value, &most, NULL, 0);
}
static void set(atomic_int* word, int value) {
  atomic_store(word, value);
  syscall(SYS_futex, word, kWake, 1, NULL, NULL, 0);
}

static void* be_the_other(void* unused) {
  while (!atomic_load(&shared->is_over)) {
    const int task = atomic_load(&shared->task);
    if (task == kNothing) {
      wait_while(&shared->task, kNothing);
      continue;
    }
    do_task((enum task)task);
    set(&shared->task, kNothing);
  }
  return unused;
}
static void handle(int signal) {
  (void)signal;
  do_task((enum task)atomic_exchange(&shared->handler_task, kNothing));
}

static void go_round(void) {
  for (int i = 0; i < kRound; ++i) {
    hold(&mine[i], i % 4 == 0   ? calloc(1, kBytes)
                   : i % 4 == 1 ? aligned_alloc(16, kBytes)
                                : malloc(kBytes));
  }
  for (int i = 0; i < kRound; ++i) verify(&mine[i]);
  for (int i = 0; i < kRound; ++i) give_back(&mine[i]);
}
static size_t bytes_in_use(void) {
  malloc_trim(0);
  return mallinfo2().uordblks;
}

static void run_on(pid_t thread, int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET((size_t)processor, &one);
  CHECK(sched_setaffinity(thread, sizeof one, &one) == 0, "sched_setaffinity");
}

__attribute__((noreturn)) static void be_stopped(void) {
  const struct sigaction action = {.sa_handler = handle};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
  start_thread(be_the_other, NULL);
  for (int i = 0; i < 4; ++i) go_round();
  const size_t before = bytes_in_use();
  go_round();
  CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "ptrace: %s", strerrorname_np(errno));
  for (;;) {
    raise(SIGSTOP);
    if (atomic_load(&shared->is_over)) break;
    go_round();
    raise(SIGSTOP);
    give_others_back();
  }
  const size_t after = bytes_in_use();
  CHECK(after == before, "%zu bytes are in use, and were %zu", after, before);
  _exit(0);
}

// --- who stops it
// ---------------------------------------------------------------------------------

enum { kMostPoints = 512, kMostSequences = 32, kPatienceMs = 500, kDeadlineMs = 60000 };

// Whether the process may not end, as the kernel restarts its sequences.
static bool is_restarted = true;
static struct area_found area;
static uint64_t announced;  // where the thread announces a sequence

// Instructions of sequences, and whether other threads have to wait for the code around it.
static struct point {
  uint64_t address;
  int sequence;
} points[kMostPoints];
static int point_count;
static uint64_t starts[kMostSequences];
static bool is_waited_for[kMostSequences];
static int sequence_count;

static long ask(int request, pid_t process, uint64_t address, uint64_t data) {
  errno = 0;
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  const long result = ptrace(request, process, (void*)address, (void*)data);
  CHECK(errno == 0, "ptrace(%#x): %s", (unsigned)request, strerrorname_np(errno));
  return result;
}
static uint64_t counter(pid_t process) {
  struct user_regs_struct registers;
  struct iovec all = {&registers, sizeof registers};
  ask(PTRACE_GETREGSET, process, 1, (uint64_t)(uintptr_t)&all);
  return *counter_of(&registers);
}
static void set_counter(pid_t process, uint64_t address) {
  struct user_regs_struct registers;
  struct iovec all = {&registers, sizeof registers};
  ask(PTRACE_GETREGSET, process, 1, (uint64_t)(uintptr_t)&all);
  *counter_of(&registers) = address;
  ask(PTRACE_SETREGSET, process, 1, (uint64_t)(uintptr_t)&all);
}
// The signal that the process has stopped for; 0 if it has ended.
static int wait_for(pid_t process) {
  int status = 0;
  CHECK(waitpid(process, &status, 0) == process, "waitpid: %s", strerrorname_np(errno));
  if (WIFSTOPPED(status)) return WSTOPSIG(status);
  CHECK(!is_restarted, "the process ended with wait status %#x", status);
  return 0;
}
// Until it stops by itself, before or after a round, or at a trap; or ends.
static int go_on(pid_t process, int signal) {
  for (;;) {
    ask(PTRACE_CONT, process, 0, (uint64_t)signal);
    signal = wait_for(process);
    if (signal == SIGSTOP || signal == SIGTRAP || signal == 0) return signal;
  }
}

static void note(uint64_t address, uint64_t start) {
  for (int i = 0; i < point_count; ++i) {
    if (points[i].address == address) return;
  }
  int sequence = 0;
  while (sequence < sequence_count && starts[sequence] != start) ++sequence;
  CHECK(sequence < kMostSequences && point_count < kMostPoints, "too many");
  if (sequence == sequence_count) starts[sequence_count++] = start;
  points[point_count++] = (struct point){address, sequence};
}
// Goes through a round by single steps. The kernel would restart each sequence after each of them,
// so it is not told of any.
static void find_points(pid_t process) {
  struct sequence now = {0};
  for (;;) {
    ask(PTRACE_SINGLESTEP, process, 0, 0);
    if (wait_for(process) == SIGSTOP) break;
    const uint64_t sequence = (uint64_t)ask(PTRACE_PEEKDATA, process, announced, 0);
    if (sequence != 0) {
      now.start = (uint64_t)ask(PTRACE_PEEKDATA, process, sequence + 8, 0);
      now.length = (uint64_t)ask(PTRACE_PEEKDATA, process, sequence + 16, 0);
      ask(PTRACE_POKEDATA, process, announced, 0);
    }
    const uint64_t here = counter(process);
    if (here - now.start < now.length) note(here, now.start);
  }
  CHECK(go_on(process, 0) == SIGSTOP, "a trap");
}

static long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
// False if the other thread has not done its task by then.
static bool is_done_within(long milliseconds) {
  const long deadline = now_ms() + milliseconds;
  int task;
  while ((task = atomic_load(&shared->task)) != kNothing) {
    if (now_ms() >= deadline) return false;
    wait_while(&shared->task, task);
  }
  return true;
}
// What the stopped thread is in the midst of may be what the other one waits for.
static void let_other_do(enum task task, int sequence) {
  set(&shared->task, (int)task);
  if (!is_waited_for[sequence]) is_waited_for[sequence] = !is_done_within(kPatienceMs);
}

struct event {
  const char* name;
  enum task others;    // of the other thread
  enum task handlers;  // of a signal handler, after that
  bool moves;          // whether the stopped thread goes on on another processor
};
enum outcome { kPassedBy, kHappened, kEnded };

// Lets a round begin, the event happen when it comes to the point, and the round end.
static enum outcome happen_at(pid_t process, const struct event* event, const struct point* point,
                              const int* processors) {
  const uint64_t code = (uint64_t)ask(PTRACE_PEEKTEXT, process, point->address, 0);
  const uint64_t mask = (uint32_t)kTrapMask;
  ask(PTRACE_POKETEXT, process, point->address, (code & ~mask) | (uint32_t)kTrap);
  const int reason = go_on(process, 0);
  if (reason == 0) return kEnded;
  ask(PTRACE_POKETEXT, process, point->address, code);
  if (reason == SIGSTOP) return go_on(process, 0) == SIGSTOP ? kPassedBy : kEnded;
  if (!is_restarted) ask(PTRACE_POKEDATA, process, announced, 0);
  set_counter(process, point->address);
  if (event->moves) run_on(process, processors[1]);
  if (event->others != kNothing) let_other_do(event->others, point->sequence);
  atomic_store(&shared->handler_task, (int)event->handlers);
  if (go_on(process, event->handlers != kNothing ? SIGUSR1 : 0) == 0) return kEnded;
  CHECK(is_done_within(kDeadlineMs), "%s: the other thread waits for ever", event->name);
  if (event->moves) run_on(process, processors[0]);
  return go_on(process, 0) == SIGSTOP ? kHappened : kEnded;
}

// Two, on which this process may run; twice the same if there is one.
static void find_processors(int* processors) {
  cpu_set_t all;
  CHECK(sched_getaffinity(0, sizeof all, &all) == 0, "sched_getaffinity");
  int found = 0;
  for (int i = 0; i < CPU_SETSIZE && found < 2; ++i) {
    if (CPU_ISSET((size_t)i, &all)) processors[found++] = i;
  }
  if (found == 1) processors[1] = processors[0];
}

static const struct event kEvents[] = {
    {"another thread", kTakeBlocks, kNothing, false},
    {"another processor", kTakeBlocks, kNothing, true},
    {"a handler", kNothing, kTakeBlocks, false},
    {"a handler on another processor", kTakeBlocks, kTakeBlocks, true},
    {"a fork", kFork, kNothing, false},
    {"a fork by a handler", kNothing, kFork, false},
    {"vfork", kVfork, kNothing, false},
    {"vfork by a handler", kNothing, kVfork, false},
    {"emptied magazines", kEmpty, kNothing, false},
};

// A process that stands before a round, with the points that it comes to in one.
static pid_t start_stopped(int* processors, bool is_silent) {
  find_processors(processors);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED, "mmap");
  run_on(0, processors[0]);
  const pid_t process = fork();
  CHECK(process >= 0, "fork");
  if (process == 0) {
    if (is_silent) dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    be_stopped();
  }
  CHECK(wait_for(process) == SIGSTOP, "no stop");
  const int request = kGetArea;
  if (ptrace(request, process, sizeof area, &area) < 0) skip_case("no ptrace of areas");
  CHECK(area.address != 0, "the thread has no area");
  announced = area.address + offsetof(struct area, sequence);
  find_points(process);
  CHECK(sequence_count >= 2, "%d sequences", sequence_count);
  return process;
}

CASE(something_else_happens_at_each_instruction) {
  if (!is_prepared(prefer_processors)) return;
  enum { kEventCount = sizeof kEvents / sizeof *kEvents };
  int processors[2];
  const pid_t process = start_stopped(processors, false);
  int count = 0;
  for (int event = 0; event < kEventCount; ++event) {
    for (int i = 0; i < point_count; ++i) {
      count += happen_at(process, &kEvents[event], &points[i], processors) == kHappened ? 1 : 0;
    }
  }
  // Whether a slow path comes to a point depends on what happened before.
  CHECK(count * 4 >= point_count * kEventCount * 3, "reached %d times: %d events, %d instructions",
        count, kEventCount, point_count);
  atomic_store(&shared->is_over, 1);
  ask(PTRACE_CONT, process, 0, 0);
  expect_well(process);
}

// So the case before would see a sequence that goes on after an interruption.
CASE(a_sequence_that_nobody_restarts_shows) {
  if (!is_prepared(prefer_processors)) return;
  int processors[2];
  const pid_t process = start_stopped(processors, true);
  is_restarted = false;
  bool is_seen = false;
  for (int i = 0; i < point_count && !is_seen; ++i) {
    is_seen = happen_at(process, &kEvents[0], &points[i], processors) == kEnded;
  }
  if (!is_seen) kill(process, SIGKILL);
  CHECK(is_seen, "blocks had one owner each");
}

// Threads that are stopped for a sweep: what they wait for, their signals, and their ends.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "secrets.h"

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
  for (int i = 0; i < 2; ++i) threads[i] = start_thread(rest_with_signal_stack, memory[i]);
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
  signal(SIGURG, count_urgent);
  CHECK(pipe(end_of_pipe) == 0 && sem_init(&is_ready, 0, 0) == 0, "pipe");
  const pthread_t thread = start_thread(body, id);
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

CASE(a_signal_that_the_program_handles_is_its_own) {
  signal(SIGURG, count_urgent);
  const pthread_t thread = start_thread(churn, NULL);
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
    thread = start_thread(churn, NULL);
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
    for (int i = 0; i < 4; ++i) threads[i] = start_thread(read_until_cancelled, NULL);
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
  threads[0] = start_thread(receive_with_timeout, NULL);
  threads[1] = start_thread(wait_in_poll, NULL);
  threads[2] = start_thread(write_much, NULL);
  threads[3] = start_thread(receive_all, NULL);
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
  int taken = 0;
  CHECK(sem_init(&is_ready, 0, 0) == 0, "sem_init");
  const pthread_t thread = start_thread(wait_for_any_signal, &taken);
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

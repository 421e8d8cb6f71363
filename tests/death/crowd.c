// Reports of several threads at once, to pipes that are full, and to a file that has another's
// number.
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "functions.h"

enum { REPORTS = 300, DEPTH = 20, THREADS = 4, ATTEMPTS = 50, PIPE_BYTES = 4096 };

static OWN_FRAME void free_deep(int depth, void* block) {
  if (depth > 0) {
    free_deep(depth - 1, block);
  } else {
    misusing_function(block);
  }
  KEEP_FRAME();
}

static pthread_barrier_t start;

static void* report_often(void* unused) {
  pthread_barrier_wait(&start);
  for (int i = 0; i < REPORTS; ++i) {
    void* block = allocating_function(40);
    free_deep(DEPTH, block);
    free_deep(DEPTH, block);
  }
  return unused;
}

CASE(threads_report_at_once) {
  pthread_t threads[THREADS];
  CHECK(pthread_barrier_init(&start, NULL, THREADS) == 0, "barrier");
  for (int i = 0; i < THREADS; ++i) threads[i] = start_thread(report_often, NULL);
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  survive();
}

static void* _Atomic resized;
static atomic_bool is_over;
static void* ask_often(void* unused) {
  while (!atomic_load(&is_over)) (void)hidden_size(malloc_usable_size(resized));
  return unused;
}
// A mistake of the program's, but no overflow.
CASE(size_is_asked_while_another_thread_resizes) {
  resized = allocating_function(100);
  const pthread_t thread = start_thread(ask_often, NULL);
  for (size_t i = 0; i < 1000000; ++i) {
    void* const block = resized;
    CHECK(hidden(realloc(block, i % 2 == 0 ? 90 : 100)) == block, "it has moved");
    for (volatile size_t wait = 0; wait < i % 100; ++wait) continue;
  }
  atomic_store(&is_over, true);
  pthread_join(thread, NULL);
  freeing_function(resized);
  survive();
}

static void report(void) {
  void* block = allocating_function(40);
  freeing_function(block);
  misusing_function(block);
}

// Standard error from now on: takes no more than a page, and nobody waits for it.
static int small_pipe(void) {
  int ends[2];
  CHECK(pipe2(ends, O_NONBLOCK) == 0, "pipe2");
  CHECK(fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES) == PIPE_BYTES, "the size of a pipe");
  CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO, "dup2");
  close(ends[1]);
  return ends[0];
}
static void put_dots(size_t count) {
  char dots[PIPE_BYTES];
  memset(dots, '.', sizeof dots);
  CHECK(write(STDERR_FILENO, dots, count) == (ssize_t)count, "write");
}

static char text[64 * KIB];
static size_t length;

// To standard output, as standard error is taken.
static void must(bool holds, const char* what) {
  if (holds) return;
  dprintf(STDOUT_FILENO, "%s: %s\n", what, text);
  _exit(1);
}
static void take_all(int from) {
  for (ssize_t got = 1; got > 0 && length < sizeof text - 1;) {
    got = read(from, text + length, sizeof text - 1 - length);
    if (got > 0) length += (size_t)got;
  }
  text[length] = '\0';
}
static bool is_whole_or_nothing(const char* reported) {
  const char* title = "allod: error: double free of ";
  return *reported == '\0' ||
         (strncmp(reported, title, strlen(title)) == 0 && text[length - 1] == '\n');
}

CASE(what_a_pipe_does_not_take_is_lost_whole) {
  const int from = small_pipe();
  for (size_t full = PIPE_BYTES - 1600; full <= PIPE_BYTES; full += 200) {
    length = 0;
    put_dots(full);
    report();
    take_all(from);
    must(is_whole_or_nothing(text + full), "a part of a report");
  }
  survive();
}

static int full_pipe;
static pid_t reporter;
static _Atomic bool has_ended;

static bool is_waiting(void) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/task/%d/syscall", (int)reporter);
  const int file = open(name, O_RDONLY);
  char call[64] = "";
  const ssize_t got = read(file, call, sizeof call - 1);
  close(file);
  if (got <= 0) {
    puts("the system does not tell what a thread waits for");
    _exit(77);
  }
  char polling[16];
  snprintf(polling, sizeof polling, "%d ", SYS_ppoll);
  return strncmp(call, polling, strlen(polling)) == 0;
}
static void* read_when_waited_for(void* unused) {
  while (!is_waiting() && !has_ended) sched_yield();
  while (!has_ended) take_all(full_pipe);
  take_all(full_pipe);
  return unused;
}

// A reader that comes too late, on a machine that has much to do, comes in time once.
CASE(a_full_pipe_is_waited_for) {
  full_pipe = small_pipe();
  reporter = (pid_t)syscall(SYS_gettid);
  bool was_waited_for = false;
  for (int i = 0; i < ATTEMPTS && !was_waited_for; ++i) {
    length = 0;
    has_ended = false;
    put_dots(PIPE_BYTES);
    pthread_t reader;
    must(pthread_create(&reader, NULL, read_when_waited_for, NULL) == 0, "thread");
    report();
    has_ended = true;
    pthread_join(reader, NULL);
    must(is_whole_or_nothing(text + PIPE_BYTES), "a part of a report");
    was_waited_for = length > PIPE_BYTES;
  }
  must(was_waited_for, "no report has come");
  survive();
}

// Reports go to standard input, which is closed; then a file of the program's has its number.
CASE(a_file_with_the_number_of_another) {
  const int file = open("file", O_RDWR | O_CREAT, 0600);
  CHECK(file > 0 && dup2(file, STDIN_FILENO) == STDIN_FILENO, "dup2");
  report();
  struct stat status;
  CHECK(fstat(file, &status) == 0 && status.st_size == 0, "the file was written to");
  close(STDIN_FILENO);
  report();
  survive();
}

// What is held until a sweep, where memory ends, where no sweep can look, and in a child.
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "secrets.h"

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
  CHECK(pipe(sleeps_in) == 0, "pipe");
  start_thread(sleep_in_read, NULL);
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
  const bool first = is_let_go(block, SIZE);
  block = free_one(&global, SIZE, 0);
  const bool second = is_let_go(block, SIZE);
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

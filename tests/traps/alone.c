// A program with one thread has one wherever the system or the program counts, although the library
// has a thread of its own that gives memory back.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "stage.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { kBlocks = 4096, kBytes = 8000 };

static void free_much(void) {
  static void* blocks[kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) blocks[i] = memset(obtain(kBytes), 1, kBytes);
  for (size_t i = 0; i < kBlocks; ++i) free(blocks[i]);
}

// Frees much until a thread gives it back.
static void have_helper(void) {
  for (int i = 0; thread_count() == 1; ++i) {
    CHECK(i < 500, "there is no helper");
    free_much();
    usleep(1000);
  }
}

static pid_t checked_fork(void) {
  const pid_t child = fork();
  CHECK(child >= 0, "fork: %s", strerrorname_np(errno));
  return child;
}

CASE(a_program_that_forks_has_one_thread) {
  have_helper();
  for (int round = 0; round < 20; ++round) {
    // It sleeps, or is busy.
    if (round % 2 == 0) have_helper();
    free_much();
    const pid_t child = checked_fork();
    const size_t count = thread_count();
    if (child == 0) _exit(count == 1 ? 0 : 1);
    CHECK(count == 1, "%zu threads after fork %d", count, round);
    expect_success(child);
  }
}

// What the system itself says to `flags`, in a process that has never allocated much.
static void skip_without(int flags) {
  const pid_t child = checked_fork();
  if (child == 0) _exit(syscall(SYS_unshare, flags) == 0 ? 0 : 77);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child, "waitpid");
  if (status != 0) skip_case("the system has no such namespaces for this user");
}

static void expect_unshared(int flags) {
  have_helper();
  CHECK(unshare(flags) == 0, "%s", strerrorname_np(errno));
}

CASE(a_program_makes_namespaces_of_users) {
  skip_without(CLONE_NEWUSER);
  for (int round = 0; round < 10; ++round) {
    const pid_t child = checked_fork();
    if (child == 0) {
      expect_unshared(CLONE_NEWUSER);
      CHECK(thread_count() == 1, "there is a thread again");
      _exit(0);
    }
    expect_success(child);
  }
}

CASE(a_program_makes_all_kinds_of_namespaces) {
  const int kinds = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
  skip_without(kinds);
  expect_unshared(kinds);
  free_much();
  const pid_t child = checked_fork();
  if (child == 0) _exit(getpid() == 1 ? 0 : 1);
  expect_success(child);
}

// None of these works in a process that has another thread.
CASE(a_program_enters_namespaces) {
  skip_without(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWTIME);
  static const struct {
    const char* file;
    int kind;
  } kKinds[] = {
      {"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS}, {"time_for_children", CLONE_NEWTIME}};
  int ready[2];
  CHECK(pipe(ready) == 0, "pipe");
  const pid_t owner = checked_fork();
  if (owner == 0) {
    CHECK(syscall(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWTIME) == 0, "unshare");
    CHECK(write(ready[1], "", 1) == 1, "write");
    for (;;) pause();
  }
  char byte;
  close(ready[1]);
  CHECK(read(ready[0], &byte, 1) == 1, "there are no namespaces");
  int files[3];
  for (size_t i = 0; i < 3; ++i) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", owner, kKinds[i].file);
    files[i] = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(files[i] >= 0, "%s", path);
  }
  for (size_t i = 0; i < 3; ++i) {
    have_helper();
    const int entered = setns(files[i], kKinds[i].kind);
    CHECK(entered == 0, "%s: %s", kKinds[i].file, strerrorname_np(errno));
  }
  kill(owner, SIGKILL);
  CHECK(waitpid(owner, NULL, 0) == owner, "waitpid");
}

CASE(errors_of_namespaces_are_told) {
  have_helper();
  errno = 0;
  CHECK(unshare(-1) == -1 && errno == EINVAL, "%s", strerrorname_np(errno));
  errno = 0;
  CHECK(setns(-1, CLONE_NEWUSER) == -1 && errno == EBADF, "%s", strerrorname_np(errno));
}

// The memory of such a child says that there is a helper. No handler of fork has told it otherwise.
CASE(a_child_of_clone_has_one_thread) {
  skip_without(CLONE_NEWUSER);
  have_helper();
  const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  CHECK(child >= 0, "clone: %s", strerrorname_np(errno));
  if (child == 0) {
    CHECK(unshare(CLONE_NEWUSER) == 0, "unshare: %s", strerrorname_np(errno));
    have_helper();
    const pid_t grandchild = checked_fork();
    if (grandchild == 0) _exit(thread_count() == 1 ? 0 : 1);
    CHECK(thread_count() == 1, "there is a thread again");
    expect_success(grandchild);
    _exit(0);
  }
  expect_success(child);
}

// The child has the memory of its parent, but not its threads.
CASE(a_child_of_vfork_leaves_the_helper_alone) {
  skip_without(CLONE_NEWUSER);
  have_helper();
  // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork)
  const pid_t child = vfork();
  CHECK(child >= 0, "vfork");
  if (child == 0) _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
  expect_success(child);
  have_helper();
  CHECK(unshare(CLONE_NEWUSER) == 0, "unshare: %s", strerrorname_np(errno));
}

// Areas for restartable sequences where the C library registers none: the allocator does, unless
// the program or another library does.
#include "areas.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static bool has_area(void) {
  static _Thread_local struct area area;
  if (register_area(&area) == 0) {
    CHECK(unregister_area(&area) == 0, "unregister: %s", strerrorname_np(errno));
    return false;
  }
  CHECK(errno == EINVAL, "register: %s", strerrorname_np(errno));
  return true;
}
static void* allocate_and_look(void* has_one) {
  exercise(1, 1000);
  *(bool*)has_one = has_area();
  return NULL;
}
static bool thread_has_area(void) {
  bool has_one = false;
  run_thread(allocate_and_look, &has_one);
  return has_one;
}

CASE(threads_without_areas_get_some) {
  if (!is_prepared(leave_areas_free)) return;
  for (int i = 0; i < 3; ++i) CHECK(thread_has_area(), "thread %d has none", i);
}

static void* only_free(void* block) {
  free(block);
  CHECK(has_area(), "the thread has none");
  return NULL;
}
CASE(a_thread_that_only_frees_gets_an_area) {
  if (!is_prepared(leave_areas_free)) return;
  run_thread(only_free, obtain(1000));
}

static pthread_key_t last_key;
static void look_at_the_end(void* unused) {
  (void)unused;
  // The allocator's key is older, and its end has come.
  CHECK(!has_area(), "the kernel still writes to the ending thread");
  exercise(2, 1000);
  CHECK(!has_area(), "the kernel writes to the ending thread again");
}
static void* end_with_a_look(void* unused) {
  exercise(1, 1000);
  CHECK(pthread_setspecific(last_key, &last_key) == 0, "pthread_setspecific");
  return unused;
}
CASE(areas_end_before_their_threads) {
  if (!is_prepared(leave_areas_free)) return;
  CHECK(pthread_key_create(&last_key, look_at_the_end) == 0, "pthread_key_create");
  for (int i = 0; i < 3; ++i) run_thread(end_with_a_look, NULL);
}

// Registers the thread before the allocator does.
static void* come_first(void* unused) {
  static _Thread_local struct area area = {.processor = -1};
  CHECK(register_area(&area) == 0, "register: %s", strerrorname_np(errno));
  exercise_thread((void*)1);
  CHECK(area.processor >= 0, "the kernel writes elsewhere");
  CHECK(unregister_area(&area) == 0, "unregister: %s", strerrorname_np(errno));
  return unused;
}
CASE(an_area_of_the_program_stays) {
  if (!is_prepared(leave_areas_free)) return;
  run_thread(come_first, NULL);
  CHECK(!thread_has_area(), "the allocator goes on");
  for (uintptr_t i = 0; i < 3; ++i) run_thread(exercise_thread, (void*)i);
  run_thread(come_first, NULL);
}

// As librseq, which ends the process if it can register some threads but not all.
static void preload_registrar(void) {
  char libraries[8192];
  leave_areas_free();
  snprintf(libraries, sizeof libraries, "%s:%s", getenv("LD_PRELOAD"),
           beside_program("libregistrar.so"));
  setenv("LD_PRELOAD", libraries, 1);
}
CASE(threads_are_left_to_librseq) {
  if (!is_prepared(preload_registrar)) return;
  CHECK(!thread_has_area(), "the allocator does not see it");
}

static void* have_children(void* unused) {
  exercise(1, 1000);
  const pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) {
    CHECK(has_area(), "the child has none");
    exercise(2, 1000);
    CHECK(thread_has_area(), "the child's thread has none");
    _exit(0);
  }
  expect_success(child);
  return unused;
}
CASE(a_child_of_fork_keeps_the_area) {
  if (!is_prepared(leave_areas_free)) return;
  run_thread(have_children, NULL);
}

// By a bare system call, which the allocator does not see coming: the child must not register the
// variables of the thread that waits for it.
static int be_a_bare_guest(void* unused) {
  (void)unused;
  for (int i = 0; i < 100; ++i) free(obtain(1000));
  _exit(has_area() ? 1 : 0);
}
static void* have_a_bare_guest(void* unused) {
  static char stack[1 << 16] __attribute__((aligned(16)));
  int (*const make)(int (*)(void*), void*, int, void*, ...) =
      (int (*)(int (*)(void*), void*, int, void*, ...))find_function("__clone");
  const pid_t child =
      make(be_a_bare_guest, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
  expect_success(child);
  exercise(1, 1000);
  CHECK(has_area(), "the thread has none");
  return unused;
}
CASE(a_bare_child_registers_nothing) {
  if (!is_prepared(leave_areas_free)) return;
  run_thread(have_a_bare_guest, NULL);
}

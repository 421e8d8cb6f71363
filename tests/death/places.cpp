// Reports from places where little works any more.
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "functions.h"

namespace {

// Both libraries see the second free of a huge block at once.
enum { kHuge = 10 * MIB };

void* freed_block() {
  void* block = tell_block(allocating_function(kHuge));
  freeing_function(block);
  return block;
}

void* misuse_on_thread(void* block) {
  tell_thread("thread");
  freeing_function(block);
  misusing_function(block);
  survive();
  return nullptr;
}

}  // namespace

CASE(thread_with_the_smallest_stack) {
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0, "pthread_attr_init");
  CHECK(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) == 0, "a stack of %ld bytes",
        (long)PTHREAD_STACK_MIN);
  pthread_t thread;
  void* block = tell_block(allocating_function(kHuge));
  CHECK(pthread_create(&thread, &attributes, misuse_on_thread, block) == 0, "pthread_create");
  CHECK(pthread_join(thread, nullptr) == 0, "pthread_join");
}

CASE(standard_error_is_closed) {
  void* block = freed_block();
  close(STDERR_FILENO);
  misusing_function(block);
  survive();
}

CASE(standard_error_cannot_be_written) {
  void* block = freed_block();
  close(STDERR_FILENO);
  CHECK(open("/dev/full", O_WRONLY) == STDERR_FILENO, "open /dev/full");
  misusing_function(block);
  survive();
}

CASE(child_of_a_fork) {
  void* block = freed_block();
  const pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) {
    tell_thread("thread");
    misusing_function(block);
    survive();
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child, "waitpid");
  tell("child_status", static_cast<uintptr_t>(status));
}

CASE(handler_of_a_signal) {
  static void* block;
  block = freed_block();
  CHECK(signal(SIGUSR1, [](int) { misusing_function(block); }) != SIG_ERR, "signal");
  CHECK(raise(SIGUSR1) == 0, "raise");
  survive();
}

// A program that writes a crash log allocates when it is told to stop.
CASE(handler_of_abort_that_allocates) {
  void* block = freed_block();
  const auto handler = [](int) {
    survive();
    _exit(3);
  };
  CHECK(signal(SIGABRT, handler) != SIG_ERR, "signal");
  misusing_function(block);
}

namespace {

struct MisuseAtEnd {
  void* block = nullptr;
  ~MisuseAtEnd() {
    if (block == nullptr) return;
    misusing_function(block);
    survive();
  }
};
MisuseAtEnd at_end;

}  // namespace

CASE(static_destructor) { at_end.block = freed_block(); }

CASE(standard_error_is_a_pipe) {
  misusing_function(freed_block());
  survive();
}

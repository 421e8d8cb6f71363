// Standard error is a pipe without a reader: what the allocator writes there is lost, and nothing
// else happens to the program.
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "numbers.h"

static void break_stderr(void) {
  int ends[2];
  CHECK(pipe(ends) == 0, "pipe");
  CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO, "dup2");
  close(ends[0]);
  close(ends[1]);
}

static bool is_pending(void) {
  sigset_t pending;
  CHECK(sigpending(&pending) == 0, "sigpending");
  return sigismember(&pending, SIGPIPE) == 1;
}

static bool is_blocked(void) {
  sigset_t blocked;
  CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0, "sigprocmask");
  return sigismember(&blocked, SIGPIPE) == 1;
}

// With statistics at the end, if the test asks for them.
CASE(the_end) {
  break_stderr();
  free(obtain(1));
}

CASE(statistics_are_lost) {
  break_stderr();
  malloc_stats();
  if (is_blocked() || is_pending()) _exit(3);
}

CASE(a_report_aborts) {
  const pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) {
    break_stderr();
    // Of a block this large the release library sees it too.
    char* block = obtain(10 * (size_t)MIB);
    free(hidden(block + 4 * (size_t)MIB));
    _exit(4);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child, "waitpid");
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %#x", (unsigned)status);
}

CASE(a_blocked_signal_does_not_come) {
  sigset_t pipe_only;
  sigemptyset(&pipe_only);
  sigaddset(&pipe_only, SIGPIPE);
  CHECK(sigprocmask(SIG_BLOCK, &pipe_only, NULL) == 0, "sigprocmask");
  break_stderr();
  malloc_stats();
  if (!is_blocked() || is_pending()) _exit(3);
}

CASE(a_waiting_signal_stays) {
  sigset_t pipe_only;
  sigemptyset(&pipe_only);
  sigaddset(&pipe_only, SIGPIPE);
  CHECK(sigprocmask(SIG_BLOCK, &pipe_only, NULL) == 0, "sigprocmask");
  CHECK(raise(SIGPIPE) == 0, "raise");
  break_stderr();
  malloc_stats();
  if (!is_blocked() || !is_pending()) _exit(3);
}

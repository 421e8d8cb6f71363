// Standard error is a pipe without a reader, or a file that must not become longer: what the
// allocator writes there is lost, and nothing else happens to the program.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
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

static void fill_stderr(void) {
  enum { kBytes = 10 };
  const int file = open("errors", O_CREAT | O_WRONLY, 0600);
  CHECK(file >= 0, "open");
  CHECK(dup2(file, STDERR_FILENO) == STDERR_FILENO, "dup2");
  close(file);
  const struct rlimit limit = {kBytes, kBytes};
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
}

static bool is_pending(int signal) {
  sigset_t pending;
  CHECK(sigpending(&pending) == 0, "sigpending");
  return sigismember(&pending, signal) == 1;
}

static bool is_blocked(int signal) {
  sigset_t blocked;
  CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0, "sigprocmask");
  return sigismember(&blocked, signal) == 1;
}

static void block(int signal) {
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  CHECK(sigprocmask(SIG_BLOCK, &only, NULL) == 0, "sigprocmask");
}

// With statistics at the end, if the test asks for them.
CASE(the_end) {
  break_stderr();
  free(obtain(1));
}

CASE(statistics_are_lost) {
  break_stderr();
  malloc_stats();
  if (is_blocked(SIGPIPE) || is_pending(SIGPIPE)) _exit(3);
}

CASE(the_end_of_a_full_file) {
  fill_stderr();
  free(obtain(1));
}

CASE(statistics_do_not_fit_into_a_file) {
  fill_stderr();
  malloc_stats();
  if (is_blocked(SIGXFSZ) || is_pending(SIGXFSZ)) _exit(3);
}

CASE(a_waiting_signal_of_a_full_file_stays) {
  block(SIGXFSZ);
  CHECK(raise(SIGXFSZ) == 0, "raise");
  fill_stderr();
  malloc_stats();
  if (!is_blocked(SIGXFSZ) || !is_pending(SIGXFSZ)) _exit(3);
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
  block(SIGPIPE);
  break_stderr();
  malloc_stats();
  if (!is_blocked(SIGPIPE) || is_pending(SIGPIPE)) _exit(3);
}

CASE(a_waiting_signal_stays) {
  block(SIGPIPE);
  CHECK(raise(SIGPIPE) == 0, "raise");
  break_stderr();
  malloc_stats();
  if (!is_blocked(SIGPIPE) || !is_pending(SIGPIPE)) _exit(3);
}

// Options by API, and a program that does next to nothing with those of the environment.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "numbers.h"

CASE(nothing) { free(obtain(1)); }

CASE(options_are_set_or_refused) {
  static const struct {
    const char* name;
    const char* value;
    int result;
  } calls[] = {
      {"VERBOSE", "0", 0},
      {"ALLOD_VERBOSE", "2", 0},
      {"VERBOSE", "3", EINVAL},
      {"VERBOSE", "", EINVAL},
      {"SHOW_STATS", "0", 0},
      {"SHOW_STATS", "xml", EINVAL},
      {"STATS_FILE", "/tmp/%p", 0},
      {"STATS_FILE", "", EINVAL},
      {"SHOW_ERRORS", "1", 0},
      {"SHOW_ERRORS", "2", EINVAL},
      {"ABORT_ON_ERROR", "1", 0},
      {"ABORT_ON_ERROR", "maybe", EINVAL},
      {"FOREIGN_FREE", "ignore", 0},
      {"FOREIGN_FREE", "report", 0},
      {"FOREIGN_FREE", "1", EINVAL},
      {"DEEPBIND", "keep", 0},
      {"DEEPBIND", "ignore", 0},
      {"DEEPBIND", "1", EINVAL},
      {"PURGE_DELAY", "-1", 0},
      {"PURGE_DELAY", "0", 0},
      {"ALLOD_PURGE_DELAY", "1000", 0},
      {"PURGE_DELAY", "-2", EINVAL},
      {"PURGE_DELAY", "1s", EINVAL},
      {"PURGE_BUDGET", "0", 0},
      {"PURGE_BUDGET", "1G", 0},
      {"PURGE_BUDGET", "-1", EINVAL},
      {"PURGE_THREAD", "0", 0},
      {"PURGE_THREAD", "01", EINVAL},
      {"MAGAZINE_BYTES", "0", 0},
      {"MAGAZINE_BYTES", "16M", 0},
      {"MAGAZINE_BYTES", "17M", EINVAL},
      {"REGION_SIZE", "64M", EPERM},
      {"ALLOD_REGION_SIZE", "nonsense", EPERM},
      {"HELP", "1", EPERM},
      {"NO_SUCH_OPTION", "1", ENOENT},
      {"ALLOD_NO_SUCH_OPTION", "1", ENOENT},
      {"verbose", "1", ENOENT},
      {"", "1", ENOENT},
      {"ALLOD_", "1", ENOENT},
      {NULL, "1", EINVAL},
      {"VERBOSE", NULL, EINVAL},
  };
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    errno = 12345;
    const int result = set_option(calls[i].name, calls[i].value);
    CHECK(result == calls[i].result, "allod_option_set(%s, %s) is %d",
          calls[i].name == NULL ? "NULL" : calls[i].name,
          calls[i].value == NULL ? "NULL" : calls[i].value, result);
    CHECK(errno == 12345, "allod_option_set changes errno");
  }
}

// A value that was refused leaves what was set before.
CASE(options_set_by_api_count) {
  CHECK(set_option("SHOW_STATS", "json") == 0, "SHOW_STATS");
  CHECK(set_option("SHOW_STATS", "nonsense") == EINVAL, "SHOW_STATS");
  char name[] = "STATS_FILE";
  char value[] = "by-api-%p.json";
  CHECK(set_option(name, value) == 0, "STATS_FILE");
  // Nothing is kept of the caller's strings.
  memset(name, 'x', sizeof name);
  memset(value, 'x', sizeof value);
}

static void write_all_to_stdout(const char* text, size_t length, void* context) {
  (void)context;
  CHECK(write(STDOUT_FILENO, text, length) == (ssize_t)length, "write");
}
static void write_options(const char* function) {
  ((void (*)(allod_write_t, void*))find_function(function))(write_all_to_stdout, NULL);
}
CASE(options_as_text) { write_options("allod_options_text"); }
CASE(options_as_markdown) { write_options("allod_options_markdown"); }

CASE(stats_refuse_another_size) {
  int (*get)(allod_stats_t*, size_t) =
      (int (*)(allod_stats_t*, size_t))find_function("allod_stats_get");
  allod_stats_t result;
  memset(&result, 0x5a, sizeof result);
  const size_t wrong[] = {0, 1, sizeof result - 8, sizeof result + 8, SIZE_MAX};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    CHECK(get(&result, wrong[i]) == EINVAL, "a size of %zu is accepted", wrong[i]);
  }
  const unsigned char* bytes = (const unsigned char*)&result;
  for (size_t i = 0; i < sizeof result; ++i) {
    CHECK(bytes[i] == 0x5a, "a refused call writes");
  }
  CHECK(get(NULL, sizeof result) == EINVAL, "NULL is accepted");
  CHECK(get(&result, sizeof result) == 0, "the right size is refused");
  void* block = obtain(100);
  CHECK(get(&result, sizeof result) == 0, "the right size is refused");
  CHECK(result.live >= 100 && result.live_blocks >= 1, "a block of 100 bytes is not counted");
  free(block);
}

// Parent and child both write statistics at their ends.
CASE(a_fork) {
  free(obtain(100));
  const pid_t child = fork();
  CHECK(child >= 0, "fork");
  if (child == 0) {
    exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %d", status);
}

// No end of which the library hears.
CASE(an_end_without_destructors) { _exit(0); }

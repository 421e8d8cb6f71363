/* A program that knows nothing of Allod, started with it preloaded or inserted. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "threads.h"

#ifdef __linux__
void* reallocf(void* block, size_t size);
#endif

/* Known at run time alone. */
static volatile size_t too_much = SIZE_MAX / 2;

static void blocks_of_libc(void) {
  for (int i = 0; i < 1000; ++i) {
    char* const copy = strdup("a text that the C library copies");
    CHECK(copy != NULL && strlen(copy) == 32);
    char* const longer = realloc(copy, 5000);
    CHECK(longer != NULL && strncmp(longer, "a text", 6) == 0);
    free(longer);
    char* const folder = getcwd(NULL, 0);
    CHECK(folder != NULL && folder[0] == '/');
    free(folder);
  }
}

static void all_functions(void) {
  void* aligned = NULL;
  CHECK(posix_memalign(&aligned, 4096, 100) == 0 && (size_t)aligned % 4096 == 0);
  aligned = realloc(aligned, 10000);
  CHECK(aligned != NULL);
  free(aligned);
  unsigned char* const zeros = calloc(1000, 10);
  CHECK(zeros != NULL);
  for (size_t i = 0; i < 10000; ++i) CHECK(zeros[i] == 0);
  free(zeros);
  free(aligned_alloc(64, 640));
  free(valloc(100));
  free(reallocf(NULL, 100));
  errno = 0;
  CHECK(malloc(too_much) == NULL && errno == ENOMEM);
  CHECK(calloc(too_much, 3) == NULL);
  free(NULL);
}

static THREAD_FUNCTION work(void* argument) {
  for (size_t i = 1; i < 300; ++i) free(realloc(malloc(i), i * 3));
  *(void**)argument = strdup("from a thread");
  return 0;
}
static void threads_come_and_go(void) {
  for (int i = 0; i < 300; ++i) {
    thread_t thread;
    void* kept = NULL;
    CHECK(start_thread(&thread, work, &kept));
    CHECK(join_thread(thread));
    CHECK(kept != NULL);
    free(kept);
  }
}

static void children(void) {
  for (int i = 0; i < 5; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      for (size_t size = 1; size < 100000; size = size * 2 + 1) free(malloc(size));
      void* kept = NULL;
      thread_t thread;
      _exit(start_thread(&thread, work, &kept) && join_thread(thread) ? 0 : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {
      {"blocks_of_libc", blocks_of_libc},
      {"all_functions", all_functions},
      {"threads_come_and_go", threads_come_and_go},
      {"children", children},
  };
  return run_cases(cases, sizeof cases / sizeof cases[0], argc, argv);
}

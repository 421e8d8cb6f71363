/* Allod in place of the C runtime's malloc, linked statically. */
#include <allod.h>

#include <direct.h>
#include <malloc.h>
#include <windows.h>

#include "cases.h"

static size_t live_blocks(void) {
  allod_stats_t now;
  CHECK(allod_stats_get(&now, sizeof now) == 0);
  return now.live_blocks;
}
static int is_allods(const void* block) { return allod_malloc_usable_size(block) != 0; }

static void malloc_is_allods(void) {
  void* const block = malloc(100);
  CHECK(is_allods(block));
  CHECK(_msize(block) >= 100);
  void* const more = realloc(block, 100000);
  CHECK(is_allods(more));
  free(more);
  void* const zeros = calloc(10, 10);
  CHECK(is_allods(zeros));
  free(zeros);
  void* const aligned = _aligned_malloc(100, 4096);
  CHECK(is_allods(aligned) && (size_t)aligned % 4096 == 0);
  void* const grown = _aligned_realloc(aligned, 10000, 4096);
  CHECK(is_allods(grown) && (size_t)grown % 4096 == 0);
  _aligned_free(grown);
  int* numbers = _recalloc(NULL, 10, sizeof(int));
  CHECK(is_allods(numbers) && numbers[9] == 0);
  free(numbers);
}

/* The runtime allocates them with its own functions, and they come to ours. */
static void blocks_of_the_runtime_go_back_to_it(void) {
  for (int i = 0; i < 1000; ++i) {
    char* const copy = _strdup("from the runtime");
    CHECK(copy != NULL && !is_allods(copy));
    CHECK(_msize(copy) >= 17);
    char* const longer = realloc(copy, 5000);
    CHECK(longer != NULL && strcmp(longer, "from the runtime") == 0);
    free(longer);
    char* const folder = _getcwd(NULL, 0);
    CHECK(folder != NULL);
    free(folder);
  }
}

/* What the runtime does with blocks of ours. */
static void the_runtime_uses_them(void) {
  FILE* const file = tmpfile();
  if (file != NULL) {
    char* const buffer = malloc(4096);
    CHECK(buffer != NULL);
    CHECK(setvbuf(file, buffer, _IOFBF, 4096) == 0);
    fputs("text", file);
    fclose(file);
    free(buffer);
  }
  char* const variable = malloc(100);
  strcpy(variable, "TEST_VARIABLE=1");
  CHECK(_putenv(variable) == 0);
  free(variable);
  CHECK(strcmp(getenv("TEST_VARIABLE"), "1") == 0);
}

static DWORD WINAPI work(void* argument) {
  (void)argument;
  for (int i = 0; i < 1000; ++i) free(malloc((size_t)i));
  return 0;
}
static void threads(void) {
  work(NULL);
  const size_t before = live_blocks();
  for (int i = 0; i < 200; ++i) {
    HANDLE const thread = CreateThread(NULL, 0, work, NULL, 0, NULL);
    CHECK(WaitForSingleObject(thread, INFINITE) == WAIT_OBJECT_0);
    CloseHandle(thread);
  }
  CHECK(live_blocks() <= before + 10);
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {
      {"malloc_is_allods", malloc_is_allods},
      {"blocks_of_the_runtime_go_back_to_it", blocks_of_the_runtime_go_back_to_it},
      {"the_runtime_uses_them", the_runtime_uses_them},
      {"threads", threads},
  };
  return run_cases(cases, sizeof cases / sizeof cases[0], argc, argv);
}

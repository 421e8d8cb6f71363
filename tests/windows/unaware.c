/* A program that was not built with Allod. */
#include <malloc.h>
#include <windows.h>

#include "cases.h"

typedef size_t (*size_of_t)(const void* block);

static size_of_t allods_size;

static int is_allods(const void* block) { return allods_size != NULL && allods_size(block) != 0; }

static void malloc_is_allods(void) {
  void* const block = malloc(100);
  CHECK(is_allods(block) && _msize(block) >= 100);
  void* const more = realloc(block, 100000);
  CHECK(is_allods(more));
  free(more);
  int* const zeros = calloc(100, sizeof(int));
  CHECK(is_allods(zeros) && zeros[99] == 0);
  free(zeros);
  void* const aligned = _aligned_malloc(100, 1024);
  CHECK(is_allods(aligned) && (size_t)aligned % 1024 == 0);
  _aligned_free(aligned);
  /* Has no counterpart: the runtime's own. */
  void* const offset = _aligned_offset_malloc(100, 64, 8);
  CHECK(offset != NULL && !is_allods(offset));
  _aligned_free(offset);
}

static void blocks_of_the_runtime_go_back_to_it(void) {
  for (int i = 0; i < 1000; ++i) {
    char* const copy = _strdup("from the runtime");
    CHECK(copy != NULL && !is_allods(copy) && _msize(copy) == 17);
    char* const longer = realloc(copy, 5000);
    CHECK(longer != NULL && strcmp(longer, "from the runtime") == 0);
    free(longer);
  }
}

static void a_module_that_is_loaded_later_has_it_too(void) {
  HMODULE const plugin = LoadLibraryA("windows_plugin.dll");
  CHECK(plugin != NULL);
  void* (*const allocate)(size_t) =
      (void* (*)(size_t))(void*)GetProcAddress(plugin, "plugin_allocate");
  void (*const give)(void*) = (void (*)(void*))(void*)GetProcAddress(plugin, "plugin_free");
  void* const theirs = allocate(100);
  CHECK(is_allods(theirs));
  free(theirs);
  give(malloc(100));
  give(_strdup("from the runtime"));
  FreeLibrary(plugin);
}

static void a_function_that_is_looked_up_is_allods(void) {
  HMODULE const runtime = GetModuleHandleA("msvcrt.dll");
  CHECK(runtime != NULL);
  void* (*const allocate)(size_t) = (void* (*)(size_t))(void*)GetProcAddress(runtime, "malloc");
  void* const block = allocate(10);
  CHECK(is_allods(block));
  free(block);
}

static DWORD WINAPI work(void* argument) {
  (void)argument;
  for (int i = 0; i < 1000; ++i) free(malloc((size_t)i));
  return 0;
}
static void threads(void) {
  for (int i = 0; i < 100; ++i) {
    HANDLE const thread = CreateThread(NULL, 0, work, NULL, 0, NULL);
    CHECK(WaitForSingleObject(thread, INFINITE) == WAIT_OBJECT_0);
    CloseHandle(thread);
  }
}

static void the_status_is_passed_on(void) { exit(42); }

int main(int argc, char** argv) {
  static const struct test_case cases[] = {
      {"malloc_is_allods", malloc_is_allods},
      {"blocks_of_the_runtime_go_back_to_it", blocks_of_the_runtime_go_back_to_it},
      {"a_module_that_is_loaded_later_has_it_too", a_module_that_is_loaded_later_has_it_too},
      {"a_function_that_is_looked_up_is_allods", a_function_that_is_looked_up_is_allods},
      {"threads", threads},
      {"the_status_is_passed_on", the_status_is_passed_on},
  };
  HMODULE const library = GetModuleHandleA("allod-replace.dll");
  if (library != NULL) {
    allods_size = (size_of_t)(void*)GetProcAddress(library, "allod_malloc_usable_size");
  }
  return run_cases(cases, sizeof cases / sizeof cases[0], argc, argv);
}

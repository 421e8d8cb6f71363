// Frees a block to another heap than its own: misuse named|nameless|plain
// Uses a heap that is gone: misuse destroyed|deleted|nameless-gone
// Leaves blocks: misuse leaks|many-leaks|exit
#include <allod.h>
#include <string.h>

static void leave_blocks(allod_heap_options_t options, const char* how) {
  options.name = "leaky";
  options.report_leaks = 1;
  allod_heap_t* heap = allod_heap_new_ex(&options);
  const int count = strcmp(how, "many-leaks") == 0 ? 25 : 1;
  void* freed = allod_heap_malloc(heap, 100);
  for (int i = 0; i < count; ++i) {
    if (allod_heap_malloc(heap, 100) == NULL) return;
  }
  allod_heap_free(heap, freed);
  if (strcmp(how, "exit") != 0) allod_heap_destroy(heap);
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  allod_heap_options_t options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.name = "one";
  allod_heap_t* one = allod_heap_new_ex(&options);
  allod_heap_t* other = allod_heap_new();
  if (strcmp(arguments[1], "named") == 0) allod_heap_free(other, allod_heap_malloc(one, 100));
  if (strcmp(arguments[1], "nameless") == 0) allod_heap_free(one, allod_heap_malloc(other, 100));
  if (strcmp(arguments[1], "plain") == 0) allod_heap_free(one, allod_malloc(100));
  if (strcmp(arguments[1], "destroyed") == 0) {
    void* block = allod_heap_malloc(one, 100);
    allod_heap_destroy(one);
    allod_heap_free(one, block);
  }
  if (strcmp(arguments[1], "deleted") == 0) {
    allod_heap_delete(one);
    // The next heap is another one.
    other = allod_heap_new();
    return allod_heap_malloc(one, 100) != NULL;
  }
  if (strcmp(arguments[1], "nameless-gone") == 0) {
    allod_heap_destroy(other);
    allod_heap_destroy(other);
  }
  if (strstr(arguments[1], "leaks") != NULL || strcmp(arguments[1], "exit") == 0) {
    options.name = NULL;
    leave_blocks(options, arguments[1]);
  }
  return 0;
}

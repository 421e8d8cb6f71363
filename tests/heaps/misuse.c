// Frees a block to another heap than its own: misuse named|nameless|plain
#include <allod.h>
#include <string.h>

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
  return 0;
}

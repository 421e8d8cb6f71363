// Opened and closed at run time: allocates in its constructor, keeps thread-local storage, frees in
// its destructor.
#include <stdlib.h>

#include "cases.h"
#include "plugin.h"
#include "stage.h"

static struct block_set kept;
static _Thread_local unsigned char storage[64 * KIB];

__attribute__((constructor)) static void start(void) { allocate_set(&kept, 1); }

__attribute__((destructor)) static void finish(void) {
  free_set(&kept);
  exercise(2, 50);
}

void* plugin_allocate(size_t size) {
  void* block = obtain(size);
  fill(block, size, 42);
  return block;
}

void plugin_free(void* block, size_t size) {
  CHECK(holds(block, size, 42), "a block that crossed a library's border was overwritten");
  free(block);
}

void plugin_use_storage(unsigned char value) {
  for (size_t i = 0; i < sizeof storage; ++i) {
    CHECK(storage[i] == 0 || storage[i] == value, "thread-local storage is another thread's");
    storage[i] = value;
  }
}

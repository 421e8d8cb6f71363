// A double free in a program that the allocator is a part of. Compiled by the test, in several
// ways.
#include <stdlib.h>

#define OWN_FRAME __attribute__((noinline, noipa))

OWN_FRAME void* allocating_function(size_t size);
OWN_FRAME void freeing_function(void* block);
OWN_FRAME void misusing_function(void* block);

void* allocating_function(size_t size) {
  void* block = malloc(size);
  __asm__ volatile("" : "+r"(block));
  return block;
}

void freeing_function(void* block) {
  free(block);
  __asm__ volatile("");
}

void misusing_function(void* block) {
  free(block);
  __asm__ volatile("");
}

int main(void) {
  void* block = allocating_function(100);
  freeing_function(block);
  misusing_function(block);
  return 0;
}

// Wrong calls of operator delete.
#include <cstdlib>
#include <new>

#include "functions.h"

namespace {

std::size_t size() { return parameter("TEST_SIZE"); }
std::size_t claimed() { return parameter("TEST_CLAIMED"); }

}  // namespace

extern "C" {

OWN_FRAME void* function_with_new(std::size_t bytes) { return hidden(::operator new(bytes)); }
OWN_FRAME void* function_with_array_new(std::size_t bytes) {
  return hidden(::operator new[](bytes));
}
OWN_FRAME void* function_with_aligned_new(std::size_t bytes) {
  return hidden(::operator new(bytes, std::align_val_t{128}));
}
OWN_FRAME void function_with_delete(void* block) {
  ::operator delete(block);
  KEEP_FRAME();
}
OWN_FRAME void function_with_sized_delete(void* block, std::size_t bytes) {
  ::operator delete(block, bytes);
  KEEP_FRAME();
}
OWN_FRAME void function_with_sized_array_delete(void* block, std::size_t bytes) {
  ::operator delete[](block, bytes);
  KEEP_FRAME();
}
OWN_FRAME void function_with_sized_aligned_delete(void* block, std::size_t bytes) {
  ::operator delete(block, bytes, std::align_val_t{128});
  KEEP_FRAME();
}

}  // extern "C"

CASE(double_delete) {
  void* block = tell_block(function_with_new(size()));
  function_with_delete(block);
  function_with_delete(hidden(block));
  survive();
}

CASE(sized_delete_with_the_wrong_size) {
  function_with_sized_delete(tell_block(function_with_new(size())), claimed());
  survive();
}

CASE(sized_array_delete_with_the_wrong_size) {
  function_with_sized_array_delete(tell_block(function_with_array_new(size())), claimed());
  survive();
}

CASE(sized_aligned_delete_with_the_wrong_size) {
  function_with_sized_aligned_delete(tell_block(function_with_aligned_new(size())), claimed());
  survive();
}

CASE(sized_deletes_with_the_right_size) {
  for (std::size_t bytes = 0; bytes < 6 * MIB; bytes = bytes * 3 + 1) {
    function_with_sized_delete(function_with_new(bytes), bytes);
    function_with_sized_array_delete(function_with_array_new(bytes), bytes);
    function_with_sized_aligned_delete(function_with_aligned_new(bytes), bytes);
  }
  survive();
}

// Writes where the program must not write, and deletes of the wrong kind: what the hardened library
// sees when the block comes back.
#include <malloc.h>

#include <cstdlib>
#include <new>

#include "functions.h"

// Of the library, if it is there.
extern "C" [[gnu::weak]] int allod_profile_start(std::size_t interval);
extern "C" [[gnu::weak]] long allod_leaks_check();

namespace {

std::size_t size() { return parameter("TEST_SIZE"); }
std::size_t offset() { return parameter("TEST_OFFSET"); }

void flip(void* block, std::ptrdiff_t at) {
  volatile unsigned char* const byte = static_cast<unsigned char*>(hidden(block)) + at;
  *byte = *byte ^ 1;
}

// As many frees as a block waits for in quarantine, and more.
void free_many() {
  for (int i = 0; i < 200; ++i) misusing_function(allocating_function(100));
}

}  // namespace

extern "C" {

OWN_FRAME void* using_new(std::size_t bytes) { return hidden(::operator new(bytes)); }
OWN_FRAME void* using_array_new(std::size_t bytes) { return hidden(::operator new[](bytes)); }
OWN_FRAME void using_delete(void* block) {
  ::operator delete(block);
  KEEP_FRAME();
}
OWN_FRAME void using_array_delete(void* block) {
  ::operator delete[](block);
  KEEP_FRAME();
}
OWN_FRAME void asking_for_usable_size(void* block) {
  CHECK(malloc_usable_size(block) == size(), "usable size");
  KEEP_FRAME();
}

}  // extern "C"

CASE(write_behind_a_block) {
  void* block = tell_block(allocating_function(size()));
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
  misusing_function(block);
  survive();
}

CASE(write_behind_a_block_that_is_resized) {
  void* block = tell_block(allocating_function(size()));
  flip(block, static_cast<std::ptrdiff_t>(size()));
  freeing_function(misusing_realloc(block, 3 * size()));
  survive();
}

CASE(write_behind_a_block_that_is_asked_about) {
  void* block = tell_block(allocating_function(size()));
  flip(block, static_cast<std::ptrdiff_t>(size()));
  asking_for_usable_size(block);
  flip(block, static_cast<std::ptrdiff_t>(size()));
  freeing_function(block);
  survive();
}

// The block before, in the same slab, is the one that is damaged.
CASE(write_before_a_block) {
  enum { kBlocks = 256 };
  static char* blocks[kBlocks];
  for (char*& block : blocks) block = static_cast<char*>(allocating_function(size()));
  for (char* first : blocks) {
    for (char* second : blocks) {
      if (second != first + parameter("TEST_CLASS")) continue;
      tell_block(first);
      flip(second, -static_cast<std::ptrdiff_t>(offset()));
      misusing_function(second);
      flip(first, static_cast<std::ptrdiff_t>(parameter("TEST_CLASS") - offset()));
      freeing_function(first);
      return survive();
    }
  }
  CHECK(false, "no two blocks are neighbours");
}

CASE(write_after_free) {
  void* block = tell_block(allocating_function(size()));
  freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(offset()));
  free_many();
  survive();
}

CASE(write_after_free_until_the_end) {
  void* block = tell_block(allocating_function(size()));
  freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(offset()));
}

CASE(double_free_after_the_quarantine) {
  void* block = tell_block(allocating_function(size()));
  freeing_function(block);
  for (int i = 0; i < 200; ++i) freeing_function(allocating_function(3000));
  misusing_function(block);
  survive();
}

// These end by a signal.
CASE(write_to_a_block_of_no_bytes) { flip(allocating_function(0), 0); }
CASE(write_to_a_large_block_after_free) {
  void* block = allocating_function(size());
  freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(offset()));
}
CASE(write_far_behind_a_large_block) {
  flip(allocating_function(size()), static_cast<std::ptrdiff_t>(size() + offset()));
}

CASE(double_free_of_a_block_of_no_bytes) {
  void* block = tell_block(allocating_function(0));
  freeing_function(block);
  misusing_function(block);
  survive();
}

CASE(new_and_free) {
  misusing_function(tell_block(using_new(size())));
  survive();
}
CASE(malloc_and_delete) {
  using_delete(tell_block(allocating_function(size())));
  survive();
}
CASE(new_and_array_delete) {
  using_array_delete(tell_block(using_new(size())));
  survive();
}
CASE(array_new_and_delete) {
  using_delete(tell_block(using_array_new(size())));
  survive();
}

// Until there is a fault.
CASE(write_on_behind_a_block) {
  void* const block = tell_block(allocating_function(size()));
  constexpr std::ptrdiff_t kFar = 4 << 20;
  for (std::ptrdiff_t i = 0; i < kFar; ++i) flip(block, static_cast<std::ptrdiff_t>(size()) + i);
}
// Of many slabs those that the block's slab may run into.
CASE(write_on_behind_slabs) {
  constexpr int kBlocks = 2000;
  static void* blocks[kBlocks];
  for (void*& block : blocks) block = allocating_function(size());
  constexpr std::ptrdiff_t kFar = 4 << 20;
  for (std::ptrdiff_t i = 0; i < kFar; ++i) {
    flip(blocks[kBlocks / 2], static_cast<std::ptrdiff_t>(size()) + i);
  }
}
// Slabs come and go, with guards and without, and all blocks can be used throughout.
CASE(slabs_come_and_go) {
  constexpr int kBlocks = 3000;
  static char* blocks[kBlocks];
  for (std::size_t round = 0; round < 12; ++round) {
    const std::size_t bytes = std::size_t{24} << round;
    const int count = bytes > 8192 ? kBlocks / 30 : kBlocks;
    for (int i = 0; i < count; ++i) {
      blocks[i] = static_cast<char*>(allocating_function(bytes));
      for (std::size_t at = 0; at < bytes; at += 512) blocks[i][at] = 1;
      blocks[i][bytes - 1] = 1;
    }
    for (int i = 0; i < count; ++i) freeing_function(blocks[i]);
  }
  survive();
}
// A search for leaks reads what guards lie between.
CASE(leaks_are_looked_for) {
  constexpr int kBlocks = 3000;
  static void* blocks[kBlocks];
  for (void*& block : blocks) block = allocating_function(size());
  freeing_function(allocating_function(300'000));
  void* const large = allocating_function(200'000);
  CHECK(allod_profile_start(1) == 0, "no profile");
  tell("leaks", static_cast<uintptr_t>(allod_leaks_check()));
  freeing_function(large);
  for (void* block : blocks) freeing_function(block);
  survive();
}

// Writes to memory that nobody has, or that nobody has any more: what the hardened library sees of
// them, and when.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "blocks.hpp"

namespace {

constexpr std::size_t kSlice = std::size_t{64} << 10;

// New blocks of a class, and one of the last of them beside a place that none of them has.
constexpr std::size_t kFirst = 200;
constexpr std::size_t kRecent = 64;
char* blocks[4000];
std::size_t count = 0;

// `step` is the distance to that place: the bytes of the class, or less than nothing.
bool is_beside_a_new_one(const char* block, std::ptrdiff_t step) {
  const std::size_t place = reinterpret_cast<std::uintptr_t>(block) % kSlice;
  // Apart from the ends of a slab.
  const bool is_inside = place >= 2048 && place <= kSlice - 8192;
  return is_inside && std::find(blocks, blocks + count, block + step) == blocks + count;
}
char* block_beside_a_new_one(std::ptrdiff_t step) {
  while (count < std::size(blocks)) {
    blocks[count++] = static_cast<char*>(allocating_function(size()));
    if (count < kFirst) continue;
    for (std::size_t i = count - kRecent; i < count; ++i) {
      if (is_beside_a_new_one(blocks[i], step)) return static_cast<char*>(tell_block(blocks[i]));
    }
  }
  CHECK(false, "each block has neighbours");
  return nullptr;
}
std::ptrdiff_t class_bytes() { return static_cast<std::ptrdiff_t>(parameter("TEST_CLASS")); }

}  // namespace

CASE(write_before_a_new_block) {
  char* const block = block_beside_a_new_one(-class_bytes());
  flip(block, -1 - static_cast<std::ptrdiff_t>(offset()));
  misusing_function(block);
  survive();
}
CASE(write_behind_a_new_block) {
  char* const block = block_beside_a_new_one(class_bytes());
  flip(block, class_bytes() + static_cast<std::ptrdiff_t>(offset()));
  misusing_function(block);
  survive();
}
// Nobody looks at the middle of a block before it is handed out.
CASE(write_to_a_block_that_is_handed_out_later) {
  char* const block = block_beside_a_new_one(class_bytes());
  flip(block, class_bytes() + class_bytes() / 2);
  for (int i = 0; i < 3000; ++i) allocating_function(size());
  survive();
}
CASE(write_to_a_free_block_that_is_handed_out_later) {
  void* const block = tell_block(allocating_function(size()));
  freeing_function(block);
  for (int i = 0; i < 800; ++i) freeing_function(allocating_function(3 * size()));
  flip(block, static_cast<std::ptrdiff_t>(size() / 2));
  for (int i = 0; i < 3000; ++i) allocating_function(size());
  survive();
}
// By a thread that has freed nothing before: its quarantine is empty. The block would leave it
// after 512 frees.
namespace {
void free_and_wait(void* argument) {
  void* const block = argument;
  freeing_function(block);
  flip(block, static_cast<std::ptrdiff_t>(size() / 2));
  for (int i = 0; i < 300; ++i) misusing_function(allocating_function(100));
  tell("survived", 1);
}
}  // namespace
CASE(write_to_a_block_that_waits) {
  on_another_thread(free_and_wait, tell_block(allocating_function(size())));
}

// --- until the end ---

CASE(write_to_a_new_block_until_the_end) {
  char* const block = block_beside_a_new_one(class_bytes());
  flip(block, class_bytes() + class_bytes() / 2);
  tell("survived", 1);
}
CASE(write_behind_a_block_in_use_until_the_end) {
  void* const block = tell_block(allocating_function(size()));
  flip(block, static_cast<std::ptrdiff_t>(size() + offset()));
  tell("survived", 1);
}
CASE(write_to_a_free_block_until_the_end) {
  void* const block = tell_block(allocating_function(size()));
  freeing_function(block);
  for (int i = 0; i < 800; ++i) freeing_function(allocating_function(100));
  flip(block, static_cast<std::ptrdiff_t>(size() / 2));
  tell("survived", 1);
}
// Threads that allocate and free while the process ends.
namespace {
void* use_heap(void*) {
  constexpr std::size_t kCount = 64;
  static thread_local void* mine[kCount];
  for (std::size_t i = 0;; ++i) {
    free(mine[i % kCount]);
    const std::size_t bytes = 1 + i * i * 31 % (i % 16 == 0 ? 200'000 : 2'000);
    mine[i % kCount] = malloc(bytes);
    if (mine[i % kCount] != nullptr) memset(mine[i % kCount], 0x5a, bytes);
  }
}
}  // namespace
CASE(others_use_the_heap_at_the_end) {
  for (int i = 0; i < 4; ++i) start_thread(use_heap, nullptr);
  for (int i = 0; i < 2000; ++i) freeing_function(allocating_function(static_cast<std::size_t>(i)));
}
// A child has blocks of other threads as they were at several instants.
CASE(children_end_beside_threads) {
  for (int i = 0; i < 3; ++i) start_thread(use_heap, nullptr);
  for (int i = 0; i < 30; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) exit(0);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %d", status);
  }
  _exit(0);
}

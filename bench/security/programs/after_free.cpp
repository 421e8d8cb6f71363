// What can be done with a block after it was freed, and what its next owner finds in it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "defect.hpp"
#include "program.hpp"

namespace security {
namespace {

constexpr Byte kSecret = 0x5e;

// Memory that the writer would like to be handed out by malloc.
alignas(64) Byte g_target[256];

Byte* a_block(std::size_t size) {
  for (int i = 0; i < 4; ++i) take(size);
  Byte* const block = take(size);
  for (int i = 0; i < 4; ++i) take(size);
  return block;
}

bool holds_the_secret(const Byte* block, std::size_t size) {
  const auto is_secret = [](Byte each) { return each == kSecret; };
  return std::count_if(opaque(block), block + size, is_secret) >= 8;
}

// Where allocators that thread lists through free blocks keep them.
void write_stale(Byte* block) {
  Byte* const words[] = {g_target, g_target};
  before();
  std::memcpy(opaque(block), words, sizeof words);
  after();
}

void write_at_once(std::size_t size) {
  own(g_target, sizeof g_target);
  Byte* const block = a_block(size);
  // So that a list of free blocks does not end with the one that is written to.
  give_back(take(size));
  give_back(block);
  write_stale(block);
  go_on(size);
  verify();
  disown(g_target);
}

void write_after_reuse(std::size_t size) {
  own(g_target, sizeof g_target);
  Byte* const block = a_block(size);
  give_back(block);
  take_until_reused(block, size);
  write_stale(block);
  verify();
  go_on(size);
  verify();
  disown(g_target);
}

void read_after_free(std::size_t size) {
  Byte* const block = a_block(size);
  std::memset(block, kSecret, size);
  give_back(block);
  before();
  const bool found = holds_the_secret(block, size);
  after();
  if (found) effect("the contents can still be read");
}

// The new owner reads before it writes. More blocks than wait anywhere before they are used again.
void read_before_write(std::size_t size) {
  constexpr int kBlocks = 256;
  Byte* blocks[kBlocks];
  for (Byte*& block : blocks) block = take(size);
  for (Byte* block : blocks) std::memset(block, kSecret, size);
  for (Byte* block : blocks) give_back(block);
  before();
  bool found = false;
  for (Byte*& block : blocks) {
    block = opaque(static_cast<Byte*>(malloc(size)));
    found = found || holds_the_secret(block, size);
  }
  after();
  if (found) effect("malloc returned the contents of a freed block");
  for (Byte* block : blocks) free(block);
}

constexpr int kNextAllocations = 8;

// Whether one of the next allocations lies where the freed block was.
void look_for_reuse(const Byte* freed, std::size_t size, std::size_t next_size) {
  before();
  bool reused = false;
  for (int i = 0; i < kNextAllocations; ++i) {
    const Byte* const block = take(next_size);
    reused = reused || (block < freed + size && freed < block + next_size);
  }
  after();
  if (reused) effect("the memory was reused at once");
}

void reuse_by_malloc(std::size_t size) {
  Byte* const block = a_block(size);
  give_back(block);
  look_for_reuse(block, size, size);
}

void reuse_after_realloc(std::size_t size) {
  Byte* const block = a_block(size);
  disown(block);
  Byte* const moved = static_cast<Byte*>(realloc(opaque(block), 4 * size));
  own(moved, 4 * size);
  look_for_reuse(block, moved == block ? 0 : size, size);
}

void reuse_by_a_smaller_one(std::size_t size) {
  Byte* const block = a_block(size);
  give_back(block);
  look_for_reuse(block, size, size / 2);
}

constexpr Defect kDefects[] = {
    {"write after free", "at once", "16 bytes at the beginning, which lead to a static array",
     Kind::access, true, write_at_once},
    {"write after free", "after reuse", "the same, after 64 mallocs or one that returned the block",
     Kind::access, true, write_after_reuse},
    {"stale data", "read after free", "what was in the block", Kind::access, true, read_after_free},
    {"uninitialised read", "malloc", "what was in 256 freed blocks, by 256 new ones", Kind::access,
     true, read_before_write},
    {"reuse", "malloc", "free(a); 8 mallocs", Kind::call, true, reuse_by_malloc},
    {"reuse", "realloc", "realloc moves a; 8 mallocs", Kind::call, true, reuse_after_realloc},
    {"reuse", "smaller size", "free(a); 8 mallocs of half the size", Kind::call, true,
     reuse_by_a_smaller_one},
};

}  // namespace

std::span<const Defect> after_frees() { return kDefects; }

}  // namespace security

// The same block is freed twice.
#include <cstdlib>

#include "defect.hpp"
#include "program.hpp"

namespace security {
namespace {

void free_it(Byte* block) { free(opaque(block)); }

Byte* a_freed_block(std::size_t size) {
  for (int i = 0; i < 4; ++i) take(size);
  Byte* const block = take(size);
  for (int i = 0; i < 4; ++i) take(size);
  give_back(block);
  return block;
}

void free_again(Byte* block, std::size_t size) {
  before();
  free_it(block);
  after();
  go_on(size);
}

void at_once(std::size_t size) { free_again(a_freed_block(size), size); }

void delayed(std::size_t size) {
  constexpr int kOthers = 64;
  Byte* others[kOthers];
  for (Byte*& other : others) other = take(size);
  Byte* const block = a_freed_block(size);
  for (Byte* other : others) give_back(other);
  free_again(block, size);
}

void interleaved(std::size_t size) {
  Byte* const other = take(size);
  Byte* const block = a_freed_block(size);
  give_back(other);
  free_again(block, size);
}

void after_reuse(std::size_t size) {
  Byte* const block = a_freed_block(size);
  take_until_reused(block, size);
  free_again(block, size);
}

void then_another_thread(std::size_t size) {
  Byte* const block = a_freed_block(size);
  before();
  on_another_thread(free_it, block);
  after();
  go_on(size);
}

void first_another_thread(std::size_t size) {
  Byte* const block = take(size);
  disown(block);
  on_another_thread(free_it, block);
  free_again(block, size);
}

void by_realloc(std::size_t size) {
  Byte* const block = a_freed_block(size);
  before();
  auto* const moved = static_cast<Byte*>(realloc(opaque(block), 2 * size));
  after();
  if (moved != nullptr) own(moved, 2 * size);
  go_on(size);
}

constexpr const char* kFamily = "double free";
constexpr Defect kDefects[] = {
    {kFamily, "at once", "free(a), free(a)", Kind::call, true, at_once},
    {kFamily, "delayed", "free(a), 64 other frees, free(a)", Kind::call, true, delayed},
    {kFamily, "interleaved", "free(a), free(b), free(a)", Kind::call, true, interleaved},
    {kFamily, "after reuse", "free(a), 64 mallocs or until one returns a, free(a)", Kind::call,
     true, after_reuse},
    {kFamily, "then another thread", "free(a), and again on another thread", Kind::call, true,
     then_another_thread},
    {kFamily, "first another thread", "free(a) on another thread, and again on its own", Kind::call,
     true, first_another_thread},
    {kFamily, "by realloc", "free(a), realloc(a)", Kind::call, true, by_realloc},
};

}  // namespace

std::span<const Defect> double_frees() { return kDefects; }

}  // namespace security

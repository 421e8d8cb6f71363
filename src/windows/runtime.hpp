// The allocation functions of a C runtime of Microsoft's, by their names and by ours.
#pragma once

#include "portable/heap.hpp"

namespace allod::windows {

using portable::allocate_aligned;
using portable::allocate_zeroed;
using portable::is_foreign;
using portable::Process;
using portable::reallocate;
using portable::release;
using portable::Runtime;
using portable::SetErrno;
using portable::usable_size;

// Those that a runtime has, of which we know blocks. Its other functions with blocks, as
// _aligned_offset_malloc, stay its own: their blocks are foreign.
struct RuntimeFunctions {
  Runtime plain;
  Runtime aligned;
  void* (*expand)(void* block, std::size_t size) = nullptr;
  void* (*recalloc)(void* block, std::size_t count, std::size_t size) = nullptr;
  void* (*realloc_aligned)(void* block, std::size_t size, std::size_t alignment) = nullptr;

  // From a module that is loaded; null for what it does not have.
  void find_in(void* module) noexcept {
    const auto find = [&](const char* name, auto*& function) noexcept {
      void* const found = allod_win_function(module, name);
      __builtin_memcpy(&function, &found, sizeof found);
    };
    find("free", plain.free);
    find("realloc", plain.realloc);
    find("_msize", plain.size);
    find("_aligned_free", aligned.free);
    find("_expand", expand);
    find("_recalloc", recalloc);
    find("_aligned_realloc", realloc_aligned);
  }
};

// Shrinks or grows in place, or returns null.
[[nodiscard]] inline void* expand(void* block, std::size_t size,
                                  const RuntimeFunctions& other) noexcept {
  if (block == nullptr) return nullptr;
  if (is_foreign(block)) return other.expand != nullptr ? other.expand(block, size) : nullptr;
  if (size <= usable_size(block, other.plain)) return block;
  return Process::resize_in_place(block, size);
}

// realloc of an array, whose new elements are zero.
[[nodiscard]] inline void* recalloc(void* block, std::size_t count, std::size_t size,
                                    const RuntimeFunctions& other) noexcept {
  std::size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return SetErrno::out_of_memory(bytes);
  if (block == nullptr) return allocate_zeroed(count, size);
  if (is_foreign(block)) {
    return other.recalloc != nullptr ? other.recalloc(block, count, size) : nullptr;
  }
  const std::size_t before = usable_size(block, other.plain);
  void* const changed = reallocate(block, bytes, other.plain);
  // What the block had room for before may hold anything behind its elements. Like the runtime, of
  // whose blocks the size is known only as far.
  if (changed != nullptr && bytes > before) {
    clear_contents(static_cast<char*>(changed) + before, bytes - before);
  }
  return changed;
}

[[nodiscard]] inline void* aligned_malloc(std::size_t size, std::size_t alignment) noexcept {
  return is_power_of_two(alignment) ? allocate_aligned(size, alignment) : nullptr;
}

[[nodiscard]] inline void* aligned_realloc(void* block, std::size_t size, std::size_t alignment,
                                           const RuntimeFunctions& other) noexcept {
  if (block == nullptr) return aligned_malloc(size, alignment);
  if (is_foreign(block)) {
    return other.realloc_aligned != nullptr ? other.realloc_aligned(block, size, alignment)
                                            : nullptr;
  }
  if (size == 0) {
    release(block, other.aligned);
    return nullptr;
  }
  const std::size_t before = usable_size(block, other.aligned);
  if (size <= before && address_of(block) % alignment == 0) return block;
  void* const moved = aligned_malloc(size, alignment);
  if (moved == nullptr) return nullptr;
  copy_contents(moved, block, before < size ? before : size);
  release(block, other.aligned);
  return moved;
}

}  // namespace allod::windows

// How realloc and reallocf of macOS and FreeBSD differ from those of C.
#pragma once

#include <cstddef>

#include "portable/heap.hpp"

namespace allod::portable {

// A size of 0 gives the least block. Null and ENOMEM on failure; the old block stays then.
[[nodiscard]] inline void* reallocate_to_some(void* block, std::size_t size,
                                              const Runtime& other = kNoRuntime) noexcept {
  if (size != 0 || block == nullptr) return reallocate(block, size, other);
  void* const least = Process::allocate<SetErrno>(0);
  if (least != nullptr) release(block, other);
  return least;
}
// The same, but the old block never stays.
[[nodiscard]] inline void* reallocate_or_free(void* block, std::size_t size,
                                              const Runtime& other = kNoRuntime) noexcept {
  void* const changed = reallocate_to_some(block, size, other);
  if (changed == nullptr) release(block, other);
  return changed;
}

}  // namespace allod::portable

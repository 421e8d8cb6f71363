// operator new when memory is exhausted.
#pragma once

#include <cstddef>

namespace allod::windows {

// Calls the new-handler and tries again until a block is available. Throws std::bad_alloc if no
// handler is set. `alignment` is 0 for types without extended alignment.
[[gnu::cold, gnu::noinline]] void* new_or_throw(std::size_t size, std::size_t alignment);
// The same, but returns null instead of throwing, even if the handler throws.
[[gnu::cold, gnu::noinline]] void* new_or_null(std::size_t size, std::size_t alignment) noexcept;

// A block or null. Defined in heap.cpp.
[[nodiscard, gnu::cold]] void* try_new(std::size_t size, std::size_t alignment) noexcept;

struct ThrowBadAlloc {
  static constexpr bool kNoexcept = false;
  static void* out_of_memory(std::size_t size) { return new_or_throw(size, 0); }
};
struct NewReturnsNull {
  static constexpr bool kNoexcept = true;
  static void* out_of_memory(std::size_t size) noexcept { return new_or_null(size, 0); }
};

}  // namespace allod::windows

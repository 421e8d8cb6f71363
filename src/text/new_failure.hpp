// operator new when memory is exhausted.
#pragma once

#include <cstddef>
#include <new>

namespace allod::entry {

// Calls the new-handler and tries again until a block is available. Throws std::bad_alloc if no
// handler is set. `alignment` is 0 for types without extended alignment.
[[gnu::cold, gnu::noinline]] void* new_or_throw(std::size_t size, std::size_t alignment);
// The same, but returns null instead of throwing, even if the handler throws.
[[gnu::cold, gnu::noinline]] void* new_or_null(std::size_t size, std::size_t alignment) noexcept;

// Returns a block or null. Defined by who has the heap: this room must not depend on it.
[[nodiscard, gnu::cold]] void* try_new(std::size_t size, std::size_t alignment) noexcept;

// Calls a form that the program has replaced. Returns null if it throws.
[[nodiscard, gnu::cold]] void* or_null(void* (*form)(std::size_t), std::size_t size) noexcept;
[[nodiscard, gnu::cold]] void* or_null(void* (*form)(std::size_t, std::align_val_t),
                                       std::size_t size, std::align_val_t alignment) noexcept;

struct ThrowBadAlloc {
  static constexpr bool kNoexcept = false;
  static void* out_of_memory(std::size_t size) { return new_or_throw(size, 0); }
};
struct NewReturnsNull {
  static constexpr bool kNoexcept = true;
  static void* out_of_memory(std::size_t size) noexcept { return new_or_null(size, 0); }
};

}  // namespace allod::entry

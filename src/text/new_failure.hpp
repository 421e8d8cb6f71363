// What operator new does when there is no memory.
#pragma once

#include <cstddef>
#include <new>

namespace allod::entry {

// Calls the new-handler and tries again, until a block can be had or there is no
// handler; then throws std::bad_alloc. `alignment` is 0 where the type has none
// of its own.
[[gnu::cold, gnu::noinline]] void* new_or_throw(std::size_t size, std::size_t alignment);
// The same, but returns null where the other throws, also when the handler does.
[[gnu::cold, gnu::noinline]] void* new_or_null(std::size_t size, std::size_t alignment) noexcept;

// A block, or null; in entry.cpp, as nothing here is to know the heap. `alignment` as above.
[[nodiscard, gnu::cold]] void* try_new(std::size_t size, std::size_t alignment) noexcept;

// What the form gives, which somebody else has replaced; or null where it throws.
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

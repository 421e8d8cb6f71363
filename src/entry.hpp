// What every entry point is made of: one body for malloc, its relatives and
// operator new, with success and failure told by a small type.
#pragma once

#include <errno.h>
#include <string.h>

#include "process.hpp"
#include "tracker.hpp"

namespace allod::entry {

// C functions: null and ENOMEM.
struct SetErrno {
  static constexpr bool kNoexcept = true;
  [[gnu::cold, gnu::noinline]] static void* out_of_memory(std::size_t) noexcept {
    errno = ENOMEM;
    return nullptr;
  }
};
// Callers that have something else to do.
struct ReturnNull {
  static constexpr bool kNoexcept = true;
  static void* out_of_memory(std::size_t) noexcept { return nullptr; }
};

// Every block that leaves passes here.
ALLOD_INLINE void* handed_out(void* block, std::size_t size) noexcept {
  if constexpr (Policy::kTracked) track_allocation(block, size);
  return block;
}

template <class Failure>
[[nodiscard]] ALLOD_INLINE void* allocate(std::size_t size) noexcept(Failure::kNoexcept) {
  return handed_out(Process::allocate<Failure>(size), size);
}

// `claimed` is the size that the caller believes in, or kAnySize.
ALLOD_INLINE void release(void* block, std::size_t claimed = kAnySize) noexcept {
  if constexpr (Policy::kTracked) {
    if (!track_release(block, claimed)) return;
  }
  Process::release(block);
}

// `alignment` is a power of two.
template <class Failure>
[[nodiscard]] inline void* allocate_aligned(std::size_t size,
                                            std::size_t alignment) noexcept(Failure::kNoexcept) {
  if (alignment <= 8) return allocate<Failure>(size);
  if (alignment == 16) {
    return handed_out(Process::allocate<Failure>(size < 16 ? 16 : size), size);
  }
  void* const block = Process::allocate_aligned(size, alignment);
  if (__builtin_expect(block == nullptr, 0)) return Failure::out_of_memory(size);
  return handed_out(block, size);
}

[[nodiscard]] inline void* allocate_zeroed(std::size_t count, std::size_t size) noexcept {
  std::size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return SetErrno::out_of_memory(bytes);
  bool zero;
  void* const block = Process::allocate_zeroable(bytes, &zero);
  if (__builtin_expect(block == nullptr, 0)) return SetErrno::out_of_memory(bytes);
  if (!zero) memset(block, 0, bytes);
  return handed_out(block, bytes);
}

[[nodiscard]] void* reallocate(void* block, std::size_t size) noexcept;

}  // namespace allod::entry

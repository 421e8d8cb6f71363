// The semantics of the allocation functions. malloc.cpp, new.cpp and c_api.cpp give them names.
#pragma once

#include <stdint.h>

#include "entry/entry.hpp"

namespace allod::surface {

[[nodiscard]] inline void* refuse(int error) noexcept {
  errno = error;
  return nullptr;
}
[[nodiscard]] inline void* reallocarray(void* block, std::size_t count, std::size_t size) noexcept {
  std::size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return refuse(ENOMEM);
  return entry::reallocate(block, bytes);
}
[[nodiscard]] inline void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  if (!is_power_of_two(alignment)) return refuse(EINVAL);
  return entry::allocate_aligned<entry::SetErrno>(size, alignment);
}
[[nodiscard]] inline int posix_memalign(void** block, std::size_t alignment,
                                        std::size_t size) noexcept {
  if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  void* const result = entry::allocate_aligned<entry::ReturnNull>(size, alignment);
  if (result == nullptr) return ENOMEM;
  *block = result;
  return 0;
}
[[nodiscard]] inline void* memalign(std::size_t alignment, std::size_t size) noexcept {
  if (alignment > SIZE_MAX / 2 + 1) return refuse(EINVAL);
  std::size_t power = 1;
  while (power < alignment) power *= 2;
  return entry::allocate_aligned<entry::SetErrno>(size, power);
}
[[nodiscard]] inline std::size_t page_bytes() noexcept {
  Process::ensure_started();
  return Process::heap().space().platform().page_size();
}
[[nodiscard]] inline void* valloc(std::size_t size) noexcept {
  return entry::allocate_aligned<entry::SetErrno>(size, page_bytes());
}
[[nodiscard]] inline void* pvalloc(std::size_t size) noexcept {
  const std::size_t page = page_bytes();
  if (size > SIZE_MAX - page) return refuse(ENOMEM);
  const std::size_t pages = align_up(size == 0 ? 1 : size, page);
  return entry::allocate_aligned<entry::SetErrno>(pages, page);
}
[[nodiscard]] inline std::size_t good_size(std::size_t size) noexcept {
  // The room behind is not usable.
  if constexpr (Policy::kBlockStates || Policy::kTracked) return size;
  if (size <= Process::Sizes::kMaxSize) {
    return Process::Sizes::size_of(Process::Sizes::of(size));
  }
  return size > SIZE_MAX - kSliceBytes ? size : align_up(size, kSliceBytes);
}
[[nodiscard]] int mallopt(int parameter, int value) noexcept;
[[nodiscard]] inline int trim() noexcept {
  if constexpr (Policy::kTracked) static_cast<void>(marks::make_room());
  return Process::trim() != 0 ? 1 : 0;
}

}  // namespace allod::surface

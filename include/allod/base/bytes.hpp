// The contents of blocks, by the best that the C library has for the processor.
#pragma once

#include <cstddef>

// By names that compilers do not know better: memcpy and memset are our own in preloaded libraries,
// see src/libc/bytes.cpp.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
void* allod_libc_copy(void* to, const void* from, std::size_t bytes) noexcept __asm__("mempcpy");
void allod_libc_clear(void* block, std::size_t bytes) noexcept __asm__("bzero");
// NOLINTEND(readability-identifier-naming)
}

namespace allod {

// These functions of the C library may be somebody else's, who allocates: the caller holds no lock,
// no turn and is in no slow path.
inline void copy_contents(void* to, const void* from, std::size_t bytes) noexcept {
  allod_libc_copy(to, from, bytes);
}
inline void clear_contents(void* block, std::size_t bytes) noexcept {
  allod_libc_clear(block, bytes);
}

}  // namespace allod

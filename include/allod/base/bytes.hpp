// Copies and clears contents of blocks by the C library's functions, which suit the processor.
#pragma once

#include <cstddef>

#if defined(_WIN32) || defined(__APPLE__) || defined(__FreeBSD__)

#include <cstring>

namespace allod {

inline void copy_contents(void* to, const void* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}
inline void clear_contents(void* block, std::size_t bytes) noexcept {
  std::memset(block, 0, bytes);
}

}  // namespace allod

#else

// Names that compilers do not recognise: in preloaded libraries, memcpy and memset are our own, see
// src/libc/bytes.cpp.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
void* allod_libc_copy(void* to, const void* from, std::size_t bytes) noexcept __asm__("mempcpy");
void allod_libc_clear(void* block, std::size_t bytes) noexcept __asm__("bzero");
// NOLINTEND(readability-identifier-naming)
}

namespace allod {

// These may be interposed by code that allocates, so the caller must hold no lock and no turn, and
// be in no slow path.
inline void copy_contents(void* to, const void* from, std::size_t bytes) noexcept {
  allod_libc_copy(to, from, bytes);
}
inline void clear_contents(void* block, std::size_t bytes) noexcept {
  allod_libc_clear(block, bytes);
}

}  // namespace allod

#endif

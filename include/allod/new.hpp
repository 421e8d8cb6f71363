// Replaces the global operators new and delete of a program. Include it in exactly one source file,
// and link one of the libraries. A library that replaces malloc does not need it.
#pragma once

#include <allod.h>

#include <new>

void* operator new(std::size_t size) { return allod_new(size); }
void* operator new[](std::size_t size) { return allod_new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allod_new_nothrow(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allod_new_nothrow(size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allod_new_aligned(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allod_new_aligned(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allod_new_aligned_nothrow(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allod_new_aligned_nothrow(size, static_cast<std::size_t>(alignment));
}

void operator delete(void* block) noexcept { allod_delete(block); }
void operator delete[](void* block) noexcept { allod_delete(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { allod_delete(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { allod_delete(block); }
void operator delete(void* block, std::size_t size) noexcept { allod_delete_sized(block, size); }
void operator delete[](void* block, std::size_t size) noexcept { allod_delete_sized(block, size); }
void operator delete(void* block, std::align_val_t alignment) noexcept {
  allod_delete_aligned(block, static_cast<std::size_t>(alignment));
}
void operator delete[](void* block, std::align_val_t alignment) noexcept {
  allod_delete_aligned(block, static_cast<std::size_t>(alignment));
}
void operator delete(void* block, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  allod_delete_aligned(block, static_cast<std::size_t>(alignment));
}
void operator delete[](void* block, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  allod_delete_aligned(block, static_cast<std::size_t>(alignment));
}
void operator delete(void* block, std::size_t size, std::align_val_t alignment) noexcept {
  allod_delete_sized_aligned(block, size, static_cast<std::size_t>(alignment));
}
void operator delete[](void* block, std::size_t size, std::align_val_t alignment) noexcept {
  allod_delete_sized_aligned(block, size, static_cast<std::size_t>(alignment));
}

// Every replaceable operator new and delete.
#include <new>

#include "new_failure.hpp"
#include "surface.hpp"

#define ALLOD_EXPORT [[gnu::visibility("default")]]

using allod::entry::NewReturnsNull;
using allod::entry::ThrowBadAlloc;
using std::align_val_t;
using std::nothrow_t;

namespace {

void* new_aligned(std::size_t size, align_val_t alignment) {
  const auto bytes = static_cast<std::size_t>(alignment);
  void* const block = allod::entry::allocate_aligned<allod::entry::ReturnNull>(size, bytes);
  return block != nullptr ? block : allod::entry::new_or_throw(size, bytes);
}
void* new_aligned_or_null(std::size_t size, align_val_t alignment) noexcept {
  const auto bytes = static_cast<std::size_t>(alignment);
  void* const block = allod::entry::allocate_aligned<allod::entry::ReturnNull>(size, bytes);
  return block != nullptr ? block : allod::entry::new_or_null(size, bytes);
}

}  // namespace

ALLOD_EXPORT void* operator new(std::size_t size) {
  return allod::entry::allocate<ThrowBadAlloc>(size);
}
ALLOD_EXPORT void* operator new[](std::size_t size) {
  return allod::entry::allocate<ThrowBadAlloc>(size);
}
ALLOD_EXPORT void* operator new(std::size_t size, const nothrow_t&) noexcept {
  return allod::entry::allocate<NewReturnsNull>(size);
}
ALLOD_EXPORT void* operator new[](std::size_t size, const nothrow_t&) noexcept {
  return allod::entry::allocate<NewReturnsNull>(size);
}
ALLOD_EXPORT void* operator new(std::size_t size, align_val_t alignment) {
  return new_aligned(size, alignment);
}
ALLOD_EXPORT void* operator new[](std::size_t size, align_val_t alignment) {
  return new_aligned(size, alignment);
}
ALLOD_EXPORT void* operator new(std::size_t size, align_val_t alignment,
                                const nothrow_t&) noexcept {
  return new_aligned_or_null(size, alignment);
}
ALLOD_EXPORT void* operator new[](std::size_t size, align_val_t alignment,
                                  const nothrow_t&) noexcept {
  return new_aligned_or_null(size, alignment);
}

ALLOD_EXPORT void operator delete(void* block) noexcept { allod::entry::release(block); }
ALLOD_EXPORT void operator delete[](void* block) noexcept { allod::entry::release(block); }
ALLOD_EXPORT void operator delete(void* block, const nothrow_t&) noexcept {
  allod::entry::release(block);
}
ALLOD_EXPORT void operator delete[](void* block, const nothrow_t&) noexcept {
  allod::entry::release(block);
}
ALLOD_EXPORT void operator delete(void* block, std::size_t size) noexcept {
  allod::entry::release(block, size);
}
ALLOD_EXPORT void operator delete[](void* block, std::size_t size) noexcept {
  allod::entry::release(block, size);
}
ALLOD_EXPORT void operator delete(void* block, align_val_t) noexcept {
  allod::entry::release(block);
}
ALLOD_EXPORT void operator delete[](void* block, align_val_t) noexcept {
  allod::entry::release(block);
}
ALLOD_EXPORT void operator delete(void* block, align_val_t, const nothrow_t&) noexcept {
  allod::entry::release(block);
}
ALLOD_EXPORT void operator delete[](void* block, align_val_t, const nothrow_t&) noexcept {
  allod::entry::release(block);
}
ALLOD_EXPORT void operator delete(void* block, std::size_t size, align_val_t) noexcept {
  allod::entry::release(block, size);
}
ALLOD_EXPORT void operator delete[](void* block, std::size_t size, align_val_t) noexcept {
  allod::entry::release(block, size);
}

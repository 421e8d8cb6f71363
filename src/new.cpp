// Every replaceable operator new and delete.
#include <new>

#include "new_failure.hpp"
#include "surface.hpp"

#define ALLOD_EXPORT [[gnu::visibility("default"), gnu::hot]]

using allod::entry::NewReturnsNull;
using allod::entry::ThrowBadAlloc;
using allod::slab::Origin;
using std::align_val_t;
using std::nothrow_t;

namespace {

template <Origin kOrigin>
void* new_aligned(std::size_t size, align_val_t alignment) {
  const auto bytes = static_cast<std::size_t>(alignment);
  using allod::entry::ReturnNull;
  void* const block = allod::entry::allocate_aligned<ReturnNull, kOrigin>(size, bytes);
  return block != nullptr ? block : allod::entry::new_or_throw(size, bytes);
}
template <Origin kOrigin>
void* new_aligned_or_null(std::size_t size, align_val_t alignment) noexcept {
  const auto bytes = static_cast<std::size_t>(alignment);
  using allod::entry::ReturnNull;
  void* const block = allod::entry::allocate_aligned<ReturnNull, kOrigin>(size, bytes);
  return block != nullptr ? block : allod::entry::new_or_null(size, bytes);
}

}  // namespace

ALLOD_EXPORT void* operator new(std::size_t size) {
  return allod::entry::allocate<ThrowBadAlloc, Origin::scalar>(size);
}
ALLOD_EXPORT void* operator new[](std::size_t size) {
  return allod::entry::allocate<ThrowBadAlloc, Origin::array>(size);
}
ALLOD_EXPORT void* operator new(std::size_t size, const nothrow_t&) noexcept {
  return allod::entry::allocate<NewReturnsNull, Origin::scalar>(size);
}
ALLOD_EXPORT void* operator new[](std::size_t size, const nothrow_t&) noexcept {
  return allod::entry::allocate<NewReturnsNull, Origin::array>(size);
}
ALLOD_EXPORT void* operator new(std::size_t size, align_val_t alignment) {
  return new_aligned<Origin::scalar>(size, alignment);
}
ALLOD_EXPORT void* operator new[](std::size_t size, align_val_t alignment) {
  return new_aligned<Origin::array>(size, alignment);
}
ALLOD_EXPORT void* operator new(std::size_t size, align_val_t alignment,
                                const nothrow_t&) noexcept {
  return new_aligned_or_null<Origin::scalar>(size, alignment);
}
ALLOD_EXPORT void* operator new[](std::size_t size, align_val_t alignment,
                                  const nothrow_t&) noexcept {
  return new_aligned_or_null<Origin::array>(size, alignment);
}

ALLOD_EXPORT void operator delete(void* block) noexcept {
  allod::entry::release<Origin::scalar>(block);
}
ALLOD_EXPORT void operator delete[](void* block) noexcept {
  allod::entry::release<Origin::array>(block);
}
ALLOD_EXPORT void operator delete(void* block, const nothrow_t&) noexcept {
  allod::entry::release<Origin::scalar>(block);
}
ALLOD_EXPORT void operator delete[](void* block, const nothrow_t&) noexcept {
  allod::entry::release<Origin::array>(block);
}
ALLOD_EXPORT void operator delete(void* block, std::size_t size) noexcept {
  allod::entry::release<Origin::scalar>(block, size);
}
ALLOD_EXPORT void operator delete[](void* block, std::size_t size) noexcept {
  allod::entry::release<Origin::array>(block, size);
}
ALLOD_EXPORT void operator delete(void* block, align_val_t) noexcept {
  allod::entry::release<Origin::scalar>(block);
}
ALLOD_EXPORT void operator delete[](void* block, align_val_t) noexcept {
  allod::entry::release<Origin::array>(block);
}
ALLOD_EXPORT void operator delete(void* block, align_val_t, const nothrow_t&) noexcept {
  allod::entry::release<Origin::scalar>(block);
}
ALLOD_EXPORT void operator delete[](void* block, align_val_t, const nothrow_t&) noexcept {
  allod::entry::release<Origin::array>(block);
}
ALLOD_EXPORT void operator delete(void* block, std::size_t size, align_val_t) noexcept {
  allod::entry::release<Origin::scalar>(block, size);
}
ALLOD_EXPORT void operator delete[](void* block, std::size_t size, align_val_t) noexcept {
  allod::entry::release<Origin::array>(block, size);
}

// All replaceable operators new and delete: those of the libraries for macOS and FreeBSD, and of
// programs on Windows that link Allod statically.
#include <new>

#include "portable/heap.hpp"
#include "text/new_failure.hpp"

using allod::entry::NewReturnsNull;
using allod::entry::ThrowBadAlloc;
using allod::portable::Process;
using std::align_val_t;
using std::nothrow_t;
namespace entry = allod::entry;
namespace portable = allod::portable;

namespace {

ALLOD_INLINE void* allocate(std::size_t size) { return Process::allocate<ThrowBadAlloc>(size); }
ALLOD_INLINE void* allocate_or_null(std::size_t size) noexcept {
  return Process::allocate<NewReturnsNull>(size);
}
void* allocate(std::size_t size, align_val_t alignment) {
  const auto bytes = static_cast<std::size_t>(alignment);
  void* const block = entry::try_new(size, bytes);
  return block != nullptr ? block : entry::new_or_throw(size, bytes);
}
void* allocate_or_null(std::size_t size, align_val_t alignment) noexcept {
  const auto bytes = static_cast<std::size_t>(alignment);
  void* const block = entry::try_new(size, bytes);
  return block != nullptr ? block : entry::new_or_null(size, bytes);
}
ALLOD_INLINE void give_back(void* block) noexcept { portable::release(block); }

}  // namespace

ALLOD_REPLACES void* operator new(std::size_t size) { return allocate(size); }
ALLOD_REPLACES void* operator new[](std::size_t size) { return allocate(size); }
ALLOD_REPLACES void* operator new(std::size_t size, const nothrow_t&) noexcept {
  return allocate_or_null(size);
}
ALLOD_REPLACES void* operator new[](std::size_t size, const nothrow_t&) noexcept {
  return allocate_or_null(size);
}
ALLOD_REPLACES void* operator new(std::size_t size, align_val_t alignment) {
  return allocate(size, alignment);
}
ALLOD_REPLACES void* operator new[](std::size_t size, align_val_t alignment) {
  return allocate(size, alignment);
}
ALLOD_REPLACES void* operator new(std::size_t size, align_val_t alignment,
                                  const nothrow_t&) noexcept {
  return allocate_or_null(size, alignment);
}
ALLOD_REPLACES void* operator new[](std::size_t size, align_val_t alignment,
                                    const nothrow_t&) noexcept {
  return allocate_or_null(size, alignment);
}

ALLOD_REPLACES void operator delete(void* block) noexcept { give_back(block); }
ALLOD_REPLACES void operator delete[](void* block) noexcept { give_back(block); }
ALLOD_REPLACES void operator delete(void* block, const nothrow_t&) noexcept { give_back(block); }
ALLOD_REPLACES void operator delete[](void* block, const nothrow_t&) noexcept { give_back(block); }
ALLOD_REPLACES void operator delete(void* block, std::size_t) noexcept { give_back(block); }
ALLOD_REPLACES void operator delete[](void* block, std::size_t) noexcept { give_back(block); }
ALLOD_REPLACES void operator delete(void* block, align_val_t) noexcept { give_back(block); }
ALLOD_REPLACES void operator delete[](void* block, align_val_t) noexcept { give_back(block); }
ALLOD_REPLACES void operator delete(void* block, align_val_t, const nothrow_t&) noexcept {
  give_back(block);
}
ALLOD_REPLACES void operator delete[](void* block, align_val_t, const nothrow_t&) noexcept {
  give_back(block);
}
ALLOD_REPLACES void operator delete(void* block, std::size_t, align_val_t) noexcept {
  give_back(block);
}
ALLOD_REPLACES void operator delete[](void* block, std::size_t, align_val_t) noexcept {
  give_back(block);
}

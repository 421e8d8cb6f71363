// All replaceable operators new and delete of a program that links Allod statically.
#include <new>

#include "text/new_failure.hpp"
#include "windows/heap.hpp"

using allod::entry::NewReturnsNull;
using allod::entry::ThrowBadAlloc;
using allod::windows::Process;
using std::align_val_t;
using std::nothrow_t;
namespace entry = allod::entry;
namespace windows = allod::windows;

namespace {

// A program with C++ frees by delete what it has allocated by new.
constexpr windows::Runtime kNone{};

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
ALLOD_INLINE void release(void* block) noexcept { windows::release(block, kNone); }

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void* operator new(std::size_t size, const nothrow_t&) noexcept { return allocate_or_null(size); }
void* operator new[](std::size_t size, const nothrow_t&) noexcept { return allocate_or_null(size); }
void* operator new(std::size_t size, align_val_t alignment) { return allocate(size, alignment); }
void* operator new[](std::size_t size, align_val_t alignment) { return allocate(size, alignment); }
void* operator new(std::size_t size, align_val_t alignment, const nothrow_t&) noexcept {
  return allocate_or_null(size, alignment);
}
void* operator new[](std::size_t size, align_val_t alignment, const nothrow_t&) noexcept {
  return allocate_or_null(size, alignment);
}

void operator delete(void* block) noexcept { release(block); }
void operator delete[](void* block) noexcept { release(block); }
void operator delete(void* block, const nothrow_t&) noexcept { release(block); }
void operator delete[](void* block, const nothrow_t&) noexcept { release(block); }
void operator delete(void* block, std::size_t) noexcept { release(block); }
void operator delete[](void* block, std::size_t) noexcept { release(block); }
void operator delete(void* block, align_val_t) noexcept { release(block); }
void operator delete[](void* block, align_val_t) noexcept { release(block); }
void operator delete(void* block, align_val_t, const nothrow_t&) noexcept { release(block); }
void operator delete[](void* block, align_val_t, const nothrow_t&) noexcept { release(block); }
void operator delete(void* block, std::size_t, align_val_t) noexcept { release(block); }
void operator delete[](void* block, std::size_t, align_val_t) noexcept { release(block); }

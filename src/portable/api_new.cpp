// The prefixed operators new and delete. A source of its own: it needs a C++ runtime where the
// library is linked statically.
#include "allod.h"
#include "portable/heap.hpp"
#include "text/new_failure.hpp"

namespace entry = allod::entry;
namespace portable = allod::portable;
using portable::Process;

extern "C" {

void* allod_new(size_t size) { return Process::allocate<entry::ThrowBadAlloc>(size); }
void* allod_new_aligned(size_t size, size_t alignment) {
  void* const block = entry::try_new(size, alignment);
  return block != nullptr ? block : entry::new_or_throw(size, alignment);
}
void* allod_new_nothrow(size_t size) noexcept {
  return Process::allocate<entry::NewReturnsNull>(size);
}
void* allod_new_aligned_nothrow(size_t size, size_t alignment) noexcept {
  void* const block = entry::try_new(size, alignment);
  return block != nullptr ? block : entry::new_or_null(size, alignment);
}
void allod_delete(void* block) noexcept { portable::release(block); }
void allod_delete_sized(void* block, size_t) noexcept { portable::release(block); }
void allod_delete_aligned(void* block, size_t) noexcept { portable::release(block); }
void allod_delete_sized_aligned(void* block, size_t, size_t) noexcept { portable::release(block); }

}  // extern "C"

// All replaceable operators new and delete.
#include <new>

#include "entry/surface.hpp"
#include "libc/operators.hpp"
#include "text/new_failure.hpp"

#define ALLOD_EXPORT_CXX [[gnu::visibility("default"), gnu::hot]]

using allod::entry::NewReturnsNull;
using allod::entry::or_null;
using allod::entry::ThrowBadAlloc;
using allod::slab::Origin;
using std::align_val_t;
using std::nothrow_t;
using namespace allod::operators;

// In .data beside the heap, which is resident anyway.
[[gnu::section(".data")]] constinit std::atomic<std::size_t> allod::operators::slices_at_once{0};

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

template <class First, class... Rest, class... Alignment>
[[gnu::noinline, gnu::hot]] void release_made_of(void* block, Alignment... alignment) noexcept {
  if (are_replaced<First, Rest...>()) return First::in_force()(block, alignment...);
  const std::size_t slices = allod::Process::heap().space().map().fast_slices();
  if (__builtin_expect(slices_at_once.load(std::memory_order_relaxed) != slices, 0) &&
      !are_replaced<Delete, DeleteArray, DeleteAligned, DeleteArrayAligned>()) {
    slices_at_once.store(slices);
    // Another thread may have narrowed the map in between.
    if (allod::Process::heap().space().map().fast_slices() != slices) slices_at_once.store(0);
  }
  allod::Process::release_slow(block);
}

template <Origin kOrigin>
[[gnu::noinline, gnu::hot]] void release_apart(void* block, std::size_t claimed) noexcept {
  allod::entry::release<kOrigin>(block, claimed);
}

// A derived form, which by the standard calls the first of `MadeOf`, which in turn calls the
// others. If all of them are ours, it frees directly, and the hardened library sees all claims.
template <Origin kOrigin, class... MadeOf>
struct MadeBy {
  template <class... Alignment>
  static ALLOD_INLINE void release(void* block, std::size_t claimed,
                                   Alignment... alignment) noexcept {
    if constexpr (allod::Policy::kBlockStates || allod::Policy::kTracked) {
      if (are_replaced<MadeOf...>()) return call_first<MadeOf...>(block, alignment...);
      // Most programs run no form with an alignment.
      if constexpr (sizeof...(Alignment) != 0) return release_apart<kOrigin>(block, claimed);
      allod::entry::release<kOrigin>(block, claimed);
    } else {
      if (__builtin_expect(allod::Process::release_at_once(block, slices_at_once), 1)) return;
      release_made_of<MadeOf...>(block, alignment...);
    }
  }

 private:
  template <class First, class... Rest, class... Alignment>
  static void call_first(void* block, Alignment... alignment) noexcept {
    First::in_force()(block, alignment...);
  }
};

using allod::kAnySize;

}  // namespace

ALLOD_EXPORT_CXX void* operator new(std::size_t size) {
  return allod::entry::allocate<ThrowBadAlloc, Origin::scalar>(size);
}
ALLOD_EXPORT_CXX void* operator new[](std::size_t size) {
  if (are_replaced<New>()) return New::in_force()(size);
  return allod::entry::allocate<ThrowBadAlloc, Origin::array>(size);
}
ALLOD_EXPORT_CXX void* operator new(std::size_t size, const nothrow_t&) noexcept {
  if (are_replaced<New>()) return or_null(New::in_force(), size);
  return allod::entry::allocate<NewReturnsNull, Origin::scalar>(size);
}
ALLOD_EXPORT_CXX void* operator new[](std::size_t size, const nothrow_t&) noexcept {
  if (are_replaced<NewArray, New>()) return or_null(NewArray::in_force(), size);
  return allod::entry::allocate<NewReturnsNull, Origin::array>(size);
}
ALLOD_EXPORT_CXX void* operator new(std::size_t size, align_val_t alignment) {
  return new_aligned<Origin::scalar>(size, alignment);
}
ALLOD_EXPORT_CXX void* operator new[](std::size_t size, align_val_t alignment) {
  if (are_replaced<NewAligned>()) return NewAligned::in_force()(size, alignment);
  return new_aligned<Origin::array>(size, alignment);
}
ALLOD_EXPORT_CXX void* operator new(std::size_t size, align_val_t alignment,
                                    const nothrow_t&) noexcept {
  if (are_replaced<NewAligned>()) return or_null(NewAligned::in_force(), size, alignment);
  return new_aligned_or_null<Origin::scalar>(size, alignment);
}
ALLOD_EXPORT_CXX void* operator new[](std::size_t size, align_val_t alignment,
                                      const nothrow_t&) noexcept {
  if (are_replaced<NewArrayAligned, NewAligned>()) {
    return or_null(NewArrayAligned::in_force(), size, alignment);
  }
  return new_aligned_or_null<Origin::array>(size, alignment);
}

ALLOD_EXPORT_CXX void operator delete(void* block) noexcept {
  allod::entry::release<Origin::scalar>(block);
}
ALLOD_EXPORT_CXX void operator delete[](void* block) noexcept {
  MadeBy<Origin::array, Delete>::release(block, kAnySize);
}
ALLOD_EXPORT_CXX void operator delete(void* block, const nothrow_t&) noexcept {
  MadeBy<Origin::scalar, Delete>::release(block, kAnySize);
}
ALLOD_EXPORT_CXX void operator delete[](void* block, const nothrow_t&) noexcept {
  MadeBy<Origin::array, DeleteArray, Delete>::release(block, kAnySize);
}
ALLOD_EXPORT_CXX void operator delete(void* block, std::size_t size) noexcept {
  MadeBy<Origin::scalar, Delete>::release(block, size);
}
ALLOD_EXPORT_CXX void operator delete[](void* block, std::size_t size) noexcept {
  MadeBy<Origin::array, DeleteArray, Delete>::release(block, size);
}
ALLOD_EXPORT_CXX void operator delete(void* block, align_val_t) noexcept {
  allod::entry::release<Origin::scalar>(block);
}
ALLOD_EXPORT_CXX void operator delete[](void* block, align_val_t alignment) noexcept {
  MadeBy<Origin::array, DeleteAligned>::release(block, kAnySize, alignment);
}
ALLOD_EXPORT_CXX void operator delete(void* block, align_val_t alignment,
                                      const nothrow_t&) noexcept {
  MadeBy<Origin::scalar, DeleteAligned>::release(block, kAnySize, alignment);
}
ALLOD_EXPORT_CXX void operator delete[](void* block, align_val_t alignment,
                                        const nothrow_t&) noexcept {
  MadeBy<Origin::array, DeleteArrayAligned, DeleteAligned>::release(block, kAnySize, alignment);
}
ALLOD_EXPORT_CXX void operator delete(void* block, std::size_t size,
                                      align_val_t alignment) noexcept {
  MadeBy<Origin::scalar, DeleteAligned>::release(block, size, alignment);
}
ALLOD_EXPORT_CXX void operator delete[](void* block, std::size_t size,
                                        align_val_t alignment) noexcept {
  MadeBy<Origin::array, DeleteArrayAligned, DeleteAligned>::release(block, size, alignment);
}

#include "portable/heap.hpp"

#include <errno.h>

#include "text/new_failure.hpp"

template class allod::heap::Engine<allod::portable::Policy,
                                   allod::heaps::Heap<allod::portable::Policy>>;
template class allod::heaps::Heap<allod::portable::Policy>;

namespace allod::portable {

void* SetErrno::out_of_memory(std::size_t) noexcept {
  errno = ENOMEM;
  return nullptr;
}

void release_slowly(void* block, const Runtime& other) noexcept {
  if (block == nullptr) return;
  if (is_foreign(block) && other.free != nullptr) return other.free(block);
  Process::release_slow(block);
}

namespace {

// A block of the other allocator stays one: how large it is, only that knows.
[[nodiscard]] ALLOD_COLD void* reallocate_what_is_no_block(void* block, std::size_t size,
                                                           const Runtime& other) noexcept {
  if (is_foreign(block) && other.realloc != nullptr) return other.realloc(block, size);
  auto kind = heap::MisuseKind::invalid_free;
  const space::Tag tag = Process::heap().space().map().tag_of(address_of(block));
  if (tag == space::kForeignTag) kind = heap::MisuseKind::foreign_free;
  if (tag == space::kFreeTag) kind = heap::MisuseKind::double_free;
  if (tag == space::kInteriorTag) kind = Process::heap().kind_of_interior(block);
  Report::report(Process::heap().describe(kind, block));
  return SetErrno::out_of_memory(size);
}

}  // namespace

void* reallocate(void* block, std::size_t size, const Runtime& other) noexcept {
  if (block == nullptr) return Process::allocate<SetErrno>(size);
  if (size == 0) {
    release(block, other);
    return nullptr;
  }
  if (Process::heap().fits(Process::current(), block, size)) return block;
  const std::size_t before = Process::heap().usable_size(block);
  if (before == 0) return reallocate_what_is_no_block(block, size, other);
  if (void* const same = Process::resize_in_place(block, size)) return same;
  bool owned = false;
  void* moved = allocate_beside(block, size, &owned);
  if (moved == nullptr && !owned && size > before) moved = Process::allocate_growing(size);
  if (moved == nullptr && !owned) moved = Process::allocate<SetErrno>(size);
  if (moved == nullptr) return nullptr;
  copy_contents(moved, block, before < size ? before : size);
  Process::release(block);
  return moved;
}

void* allocate_zeroed(std::size_t count, std::size_t size) noexcept {
  std::size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return SetErrno::out_of_memory(bytes);
  bool is_zero;
  void* const block = Process::allocate_zeroable(bytes, &is_zero);
  if (block == nullptr) return SetErrno::out_of_memory(bytes);
  if (!is_zero) clear_contents(block, bytes);
  return block;
}

void* allocate_aligned(std::size_t size, std::size_t alignment) noexcept {
  if (alignment <= 8) return Process::allocate<SetErrno>(size);
  void* const block = Process::allocate_aligned(size, alignment);
  return block != nullptr ? block : SetErrno::out_of_memory(size);
}

std::size_t usable_size(const void* block, const Runtime& other) noexcept {
  std::size_t bytes;
  if (Process::heap().fast_usable_size(block, &bytes)) return bytes;
  if (block == nullptr) return 0;
  if (is_foreign(block)) return other.size != nullptr ? other.size(const_cast<void*>(block)) : 0;
  return Process::heap().usable_size(block);
}

std::size_t good_size(std::size_t size) noexcept {
  using Sizes = Process::Sizes;
  if (size <= Sizes::kMaxSize) return Sizes::size_of(Sizes::of(size));
  return size > SIZE_MAX - kSliceBytes ? size : align_up(size, kSliceBytes);
}

}  // namespace allod::portable

void* allod::entry::try_new(std::size_t size, std::size_t alignment) noexcept {
  if (alignment <= 8) return portable::Process::allocate<portable::ReturnNull>(size);
  return portable::Process::allocate_aligned(size, alignment);
}

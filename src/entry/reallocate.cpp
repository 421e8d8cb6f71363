// realloc.
#include "entry/entry.hpp"
#include "guards/guards.hpp"

namespace allod::entry {

namespace {

[[gnu::cold]] void* reallocate_what_is_no_block(void* address) noexcept {
  auto kind = heap::MisuseKind::invalid_free;
  const auto tag = Process::heap().space().map().tag_of(address_of(address));
  if (tag == space::kForeignTag) kind = heap::MisuseKind::foreign_free;
  if (tag == space::kFreeTag) kind = heap::MisuseKind::double_free;
  if (tag == space::kInteriorTag) kind = Process::heap().kind_of_interior(address);
  heap::Misuse misuse = Process::heap().describe(kind, address);
  // A free block begins there: it waits in a hardened heap.
  if (misuse.block == address) misuse.kind = heap::MisuseKind::double_free;
  ReportToUser::report(misuse);
  errno = ENOMEM;
  return nullptr;
}

// Null, and nothing is done, if `moved` is null.
ALLOD_HOT void* copy_and_release(void* moved, void* block, std::size_t old_size,
                                 std::size_t size) noexcept {
  if (moved == nullptr) return nullptr;
  copy_contents(moved, block, old_size < size ? old_size : size);
  release(block);
  return moved;
}

// A guarded block always moves, to expose stale pointers.
[[gnu::cold, gnu::noinline]] void* reallocate_guarded(void* block, std::size_t size) noexcept {
  std::size_t old_size;
  if (!Guards::inspect(block, &old_size)) {
    errno = ENOMEM;
    return nullptr;
  }
  return copy_and_release(allocate<SetErrno>(size), block, old_size, size);
}

void* move_block(void* block, std::size_t old_size, std::size_t size) noexcept {
  // A block of a first-class heap stays in it, or it would escape the heap's limit and end.
  bool owned = false;
  void* moved = heaps::allocate_beside(block, size, &owned);
  if (owned && moved == nullptr) return nullptr;
  if constexpr (!Policy::kTracked) {
    if (!owned && size > old_size) {
      void* const roomy = Process::allocate_growing(room_for(size));
      if (roomy != nullptr) Process::changed_span(roomy, size);
      moved = handed_out(roomy, size, Origin::c);
    }
  }
  if (moved == nullptr) moved = allocate<SetErrno>(size);
  return copy_and_release(moved, block, old_size, size);
}

// For libraries with block states.
[[maybe_unused]] void* reallocate_known(void* block, std::size_t size) noexcept {
  std::size_t old_size;
  switch (hardened::resize_short(block, size, &old_size)) {
    case hardened::Resized::in_place:
      return block;
    case hardened::Resized::to_copy:
      return copy_and_release(allocate<SetErrno>(size), block, old_size, size);
    case hardened::Resized::to_ask:
      break;
  }
  if (!hardened::inspect(block, &old_size)) {
    errno = ENOMEM;
    return nullptr;
  }
  if (void* const same = hardened::resize(block, size)) return same;
  return move_block(block, old_size, size);
}

}  // namespace

// Like glibc, frees if the size is 0.
ALLOD_HOT void* reallocate(void* block, std::size_t size) noexcept {
  if (block == nullptr) return allocate<SetErrno>(size);
  if (size == 0) {
    release(block);
    return nullptr;
  }
  if constexpr (Policy::kBlockStates) return reallocate_known(block, size);
  if constexpr (Policy::kTracked) {
    // Checked before the allocation, which might return the freed block.
    if (!track_resize(block)) {
      errno = ENOMEM;
      return nullptr;
    }
  }
  if constexpr (!Policy::kTracked) {
    if (Process::heap().fits(Process::current(), block, size)) return block;
  }
  std::size_t old_size = Process::heap().usable_size(block);
  if (__builtin_expect(old_size == 0, 0) && !Process::heap().is_block_of_no_bytes(block)) {
    return Guards::holds(block) ? reallocate_guarded(block, size)
                                : reallocate_what_is_no_block(block);
  }
  // The debug library moves every block, to expose stale pointers.
  if constexpr (Policy::kTracked) {
    static_cast<void>(track_bounds(block, &old_size));
  } else {
    if (void* const same = Process::resize_in_place(block, size)) return same;
  }
  return move_block(block, old_size, size);
}

}  // namespace allod::entry

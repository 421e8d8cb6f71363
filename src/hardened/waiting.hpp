// A block between its free and the heap: it is erased, and waits in quarantine.
#pragma once

#include <string.h>

#include "hardened/large.hpp"
#include "hardened/sweep.hpp"

namespace allod::hardened {

// Erases the program's data.
template <class Any>
ALLOD_INLINE Left erase(const Any& block, BlockState state) noexcept {
  if (__builtin_expect(block.is_large(), 0)) return discard(block, state);
  if (!on<Mitigation::zero>()) return {};
  if (block.is_small()) {
    visit_small(block.address, block.bytes, kErase);
    return {};
  }
  const std::size_t bytes = erased_bytes(block, state);
  if (__builtin_expect(bytes >= heaps::kAsked, 0)) {
    clear_part(block, block.address, bytes);
  } else {
    clear_contents(reinterpret_cast<void*>(block.address), bytes);
  }
  if (block.bytes > kErasedWhole && Canary::has_end(block.bytes)) {
    Canary::clear_end(block.address, block.bytes);
  }
  return {};
}

// The ticket holds the size of blocks that are zero as a whole.
template <class Any>
[[nodiscard]] ALLOD_INLINE Ticket ticket_for(const Any& block) noexcept {
  static_assert(kErasedWhole >> (64 - kAddressBits) == 0);
  return Ticket{block.address, block.bytes <= kErasedWhole ? block.bytes : 0};
}

// The block's weight in quarantine. Many large blocks without memory may wait, but few with memory.
template <class Any>
[[nodiscard]] ALLOD_INLINE std::size_t weight_of(const Any& block, Left left) noexcept {
  constexpr std::size_t kShutShare = 8;
  if (!block.is_large()) return block.bytes;
  const std::size_t least = block.bytes / heaps::kEmptyShare;
  const std::size_t in_memory =
      left.bytes_in_memory / (left.access == Access::shut ? kShutShare : 1);
  return least < in_memory ? in_memory : least;
}

// False if it cannot wait and must go to the heap.
[[nodiscard]] ALLOD_HOT bool wait_in_quarantine(Ticket ticket, std::size_t weight) noexcept;

template <class Any>
[[nodiscard]] ALLOD_INLINE bool detain(const Any& block, Left left) noexcept {
  if (!on<Mitigation::quarantine>() || block.is_heaps) return false;
  return wait_in_quarantine(ticket_for(block), weight_of(block, left));
}

// Frees waiting blocks after the kernel has refused memory: the thread's own quarantine, if the
// request is in proportion to it; those of ended threads; blocks that a sweep has found free of
// pointers. A request that `may_sweep` may cause one sweep.
using sweep::Room;
[[nodiscard, gnu::cold, gnu::noinline]] Room make_room(std::size_t bytes, bool may_sweep) noexcept;

// From now on, ending threads leave their quarantine to others.
void watch_threads() noexcept;

}  // namespace allod::hardened

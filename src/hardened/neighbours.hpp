// What nobody may write to around a block: the rest of its class behind the canary, and the sides
// of its neighbours that face it.
#pragma once

#include "hardened/blocks.hpp"

namespace allod::hardened {

// Whether this is the child of a process in which other threads used the heap. A fork copies pages
// one after the other while threads go on, so the state of a block and its bytes may be of two
// instants here: what they seem to say of free blocks proves nothing.
extern constinit bool had_other_threads;

// Whether the bytes in [from, to) are zero.
[[nodiscard]] ALLOD_HOT bool is_clear(Address from, Address to) noexcept;

// Whether what lies behind the block's canary is zero, up to its end. The program never has these
// bytes. Of blocks of several pages, only pages that are in memory for sure are looked at.
[[nodiscard, gnu::noinline]] ALLOD_HOT bool is_rest_clear(const Block& block,
                                                          BlockState state) noexcept;

enum class Side : bool { before, behind };

// Whether the word of a neighbour that faces the block is as its state says. The program may change
// that of a block in use behind it. `neighbour` may be the rest behind the last block of a slab.
[[nodiscard]] ALLOD_INLINE bool is_side_intact(const Block& neighbour, BlockState state,
                                               Side side) noexcept {
  if (state.is_live()) {
    return side == Side::behind || !has_canary(state) ||
           canary.is_end_intact(neighbour.address, neighbour.bytes);
  }
  if (!on<Mitigation::zero>()) return true;
  // Memory of a heap that was never used may be the program's own buffer; that of a large block may
  // be absent.
  const bool is_unused =
      state == BlockState{} && !neighbour.is_heaps && neighbour.bytes < heaps::kAsked;
  if (!state.was_freed() && !is_unused) return true;
  return side == Side::before ? ends_with_zero(neighbour) : starts_with_zero(neighbour);
}
// Looks again, since the owner may be changing it, and reports. A free one is repaired, unless its
// owner is faster.
[[gnu::cold, gnu::noinline]] void examine_neighbour(const Block& neighbour, Side side) noexcept;

template <class Any>
ALLOD_INLINE void check_neighbours(const Any& block) noexcept {
  if (!on<Mitigation::neighbours>() || !block.is_in_slab()) return;
  if (!Canary::has_end(block.bytes)) return;
  const memory_tags::Unchecked unchecked;
  if (block.index != 0) {
    const Block before{block.cell.before(), block.address - block.bytes,
                       block.bytes,         block.slab,
                       block.index - 1,     block.is_heaps};
    if (!is_side_intact(before, before.cell.load(), Side::before)) {
      examine_neighbour(before, Side::before);
    }
  }
  const Address end = block.address + block.bytes;
  if (end + sizeof(std::uint64_t) > space::open_end_of(*block.slab)) return;
  const Block behind{slab::BlockStates::of(*block.slab, block.index + 1),
                     end,
                     block.bytes,
                     block.slab,
                     block.index + 1,
                     block.is_heaps};
  if (!is_side_intact(behind, behind.cell.load(), Side::behind)) {
    examine_neighbour(behind, Side::behind);
  }
}

}  // namespace allod::hardened

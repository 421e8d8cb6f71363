// Blocks from 128 KiB on: the guard behind each of them, and what becomes of its pages when it is
// freed.
#pragma once

#include "hardened/blocks.hpp"

namespace allod::hardened {

// --- guards ------------------------------------------------------------------------------

// First-class heaps give all their blocks back at once, and would not know of guards.
[[nodiscard]] inline bool may_have_guard(const Block& block) noexcept {
  return block.is_large() && !block.is_heaps && on<Mitigation::guards>();
}
// Is it to be closed at its free? The system may refuse: what became of it is in its state.
[[nodiscard]] inline bool is_closed_while_free(const Block& block) noexcept {
  return may_have_guard(block) && on<Mitigation::zero>();
}
// The pages of a large block that were not asked for.
[[nodiscard]] inline Pages spare_pages_of(const Block& block, std::size_t requested) noexcept {
  return whole_pages(block.address + requested + Canary::kBytes, block.address + block.bytes);
}

// Of a block that had another state before. What is closed of it is opened, but for the guard:
// false, and it stays closed, when the system refuses.
[[nodiscard, gnu::noinline]] bool set_guard(Block block, BlockState before,
                                            std::size_t requested) noexcept;
// False, and it stays, when the system refuses.
[[nodiscard, gnu::noinline]] bool clear_guard(Block block, std::size_t requested) noexcept;
// Of a block that had a guard behind `before` bytes. False, and it stays, when the system does not
// open what is behind these.
[[nodiscard]] bool move_guard(const Block& block, std::size_t before, std::size_t now) noexcept;

// --- pages -------------------------------------------------------------------------------

// May a block be touched?
enum class Access : std::uint8_t {
  open,
  closed,  // no: its pages were taken by guards
  shut,    // no: its pages are a mapping of their own
};
// What is left of a block when it has been erased.
struct Left {
  Access access = Access::open;
  // Of a large block.
  std::size_t bytes_in_memory = 0;
};
// What the program has written goes, and the block is closed if it can be.
[[gnu::noinline]] Left discard(Block block, BlockState state) noexcept;
// Fills a part of a block, which is open, with zeros. What has no memory gets none.
[[gnu::noinline]] void clear_part(const Block& block, Address from, std::size_t bytes) noexcept;
// Fills one that is about to be handed out, and is open, with zeros. What has no memory gets none.
void clear_large(Address block, std::size_t bytes) noexcept;

}  // namespace allod::hardened

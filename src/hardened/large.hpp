// Blocks of 128 KiB and more: their guards, and their pages after a free.
#pragma once

#include "hardened/blocks.hpp"

namespace allod::hardened {

// --- guards ------------------------------------------------------------------------------

// Not for first-class heaps, which free all their blocks at once and do not know guards.
[[nodiscard]] inline bool may_have_guard(const Block& block) noexcept {
  return block.is_large() && !block.is_heaps && on<Mitigation::guards>();
}
// Whether to close it at its free. The kernel may refuse; its state holds the outcome.
[[nodiscard]] inline bool is_closed_while_free(const Block& block) noexcept {
  return may_have_guard(block) && on<Mitigation::zero>();
}
// Pages of a large block behind the requested bytes.
[[nodiscard]] inline Pages spare_pages_of(const Block& block, std::size_t requested) noexcept {
  return whole_pages(block.address + requested + Canary::kBytes, block.address + block.bytes);
}

// Opens the block, except its guard. False, and all stays closed, if the kernel refuses.
[[nodiscard, gnu::noinline]] bool set_guard(Block block, BlockState before,
                                            std::size_t requested) noexcept;
// False, and the guard stays, if the kernel refuses.
[[nodiscard, gnu::noinline]] bool clear_guard(Block block, std::size_t requested) noexcept;
// Moves a guard from behind `before` bytes. False, and it stays, if the kernel refuses to open the
// pages.
[[nodiscard]] bool move_guard(const Block& block, std::size_t before, std::size_t now) noexcept;

// --- pages -------------------------------------------------------------------------------

enum class Access : std::uint8_t {
  open,
  closed,  // inaccessible: guards have replaced its pages
  shut,    // inaccessible: its pages are a mapping of their own
};
// A block after its contents were erased.
struct Left {
  Access access = Access::open;
  // For large blocks.
  std::size_t bytes_in_memory = 0;
};
// Erases the program's data, and closes the block if possible.
[[gnu::noinline]] Left discard(Block block, BlockState state) noexcept;
// Zeroes a part of an open block. Absent pages stay absent.
[[gnu::noinline]] void clear_part(const Block& block, Address from, std::size_t bytes) noexcept;
// Zeroes an open block before it is handed out. Absent pages stay absent.
void clear_large(Address block, std::size_t bytes) noexcept;

}  // namespace allod::hardened

// Slabs behind whose blocks there is a guard.
#pragma once

#include "allod/sizes/geometric.hpp"

namespace allod::slab {

// Room for a guard of so many bytes, whole pages: what the blocks leave, or the place of a few
// blocks, or more slices. It costs addresses, and no memory.
[[nodiscard]] constexpr sizes::SlabShape with_guard(sizes::SlabShape shape,
                                                    std::size_t guard) noexcept {
  constexpr std::uint32_t kMostLost = 8;  // one block of so many
  const std::size_t bytes = Slices{shape.slices}.bytes();
  const std::size_t room = bytes > guard ? (bytes - guard) / shape.block_bytes : 0;
  const std::uint32_t fit =
      room < shape.capacity ? static_cast<std::uint32_t>(room) : shape.capacity;
  // Whether a slab has more blocks than a word has bits, callers know from the class.
  const bool is_same_kind = (fit > kWordBits) == (shape.capacity > kWordBits);
  if (is_same_kind && (shape.capacity - fit) * kMostLost <= shape.capacity) {
    shape.capacity = static_cast<std::uint16_t>(fit);
  } else {
    shape.slices = static_cast<std::uint16_t>(shape.slices + Slices::covering(guard).count);
  }
  return shape;
}

}  // namespace allod::slab

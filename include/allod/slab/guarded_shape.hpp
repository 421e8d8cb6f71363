// Slabs with a guard behind their blocks.
#pragma once

#include "allod/sizes/geometric.hpp"

namespace allod::slab {

// Makes room for a guard of `guard` bytes, whole pages: in the slab's tail, in place of a few
// blocks, or by more slices. Costs addresses, and no memory.
[[nodiscard]] constexpr sizes::SlabShape with_guard(sizes::SlabShape shape,
                                                    std::size_t guard) noexcept {
  constexpr std::uint32_t kMostLost = 8;  // one block in 8
  const std::size_t bytes = Slices{shape.slices}.bytes();
  const std::size_t room = bytes > guard ? (bytes - guard) / shape.block_bytes : 0;
  const std::uint32_t fit =
      room < shape.capacity ? static_cast<std::uint32_t>(room) : shape.capacity;
  // Callers know from the class whether a slab has more blocks than a word has bits.
  const bool is_same_kind = (fit > kWordBits) == (shape.capacity > kWordBits);
  if (is_same_kind && (shape.capacity - fit) * kMostLost <= shape.capacity) {
    shape.capacity = static_cast<std::uint16_t>(fit);
  } else {
    shape.slices = static_cast<std::uint16_t>(shape.slices + Slices::covering(guard).count);
  }
  return shape;
}

}  // namespace allod::slab

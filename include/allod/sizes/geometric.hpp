// Size classes: multiples of 16 bytes up to 128, then eight per doubling, which bounds internal
// fragmentation by 12.5 %.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "allod/base/base.hpp"

namespace allod::sizes {

// The layout of a slab of one class.
struct SlabShape {
  Divider divider;  // divides offsets by block_bytes; with one block, every quotient is 0
  std::uint32_t block_bytes = 0;
  std::uint16_t capacity = 0;  // blocks
  std::uint16_t slices = 0;
};

// kMaxBytes: the largest size with a class; a power of two, at least 1 MiB.
template <std::size_t kMaxBytes>
class Geometric {
  static_assert(is_power_of_two(kMaxBytes) && kMaxBytes >= (1 << 20) && kMaxBytes <= (1 << 30),
                "the largest class must be a power of two from 1 MiB to 1 GiB");

 public:
  static constexpr std::size_t kMaxSize = kMaxBytes;
  // Largest size in the table of all sizes.
  static constexpr std::size_t kTableMaxSize = 1024;
  static constexpr ClassIndex kCount = 8 * (highest_bit(kMaxBytes) - 1) - 55 + 16;

  // `size` must be at most kMaxSize.
  [[nodiscard]] static constexpr ClassIndex of(std::size_t size) noexcept {
    if (size <= 8) return 0;
    if (size <= 128) return static_cast<ClassIndex>((size + 15) / 16);
    return of_large(size);
  }
  // `size` must be above 128, and at most kMaxSize. The three bits below the highest one number the
  // eight steps of a doubling.
  [[nodiscard]] static constexpr ALLOD_INLINE ClassIndex of_large(std::size_t size) noexcept {
    const unsigned top = highest_bit(size - 1);
    return static_cast<ClassIndex>(((size - 1) >> (top - 3)) + std::size_t{8} * top - 55);
  }
  [[nodiscard]] static constexpr std::size_t size_of(ClassIndex index) noexcept {
    if (index == 0) return 8;
    if (index <= 8) return std::size_t{16} * index;
    const ClassIndex step = index - 9;
    return std::size_t{9 + step % 8} << (4 + step / 8);
  }
  // The smallest class for `size` whose blocks are aligned to `alignment`, a power of two of at
  // most one slice; kCount if there is none.
  [[nodiscard]] static constexpr ClassIndex of_aligned(std::size_t size,
                                                       std::size_t alignment) noexcept {
    if (size > kMaxSize) return kCount;
    const std::size_t rounded = align_up(size < alignment ? alignment : size, alignment);
    if (rounded > kMaxSize) return kCount;
    ClassIndex index = of(rounded);
    while (index < kCount && size_of(index) % alignment != 0) ++index;
    return index;
  }
  [[nodiscard]] static constexpr const SlabShape& shape_of(ClassIndex index) noexcept {
    return kShapes[index];
  }
  // Index of the block that contains byte `offset` of a slab.
  [[nodiscard]] static constexpr ALLOD_INLINE std::uint32_t block_index(
      std::uint64_t offset, const SlabShape& shape) noexcept {
    return static_cast<std::uint32_t>(shape.divider.divide(offset).quotient);
  }

 private:
  // The first goal that can be met, with as few slices as possible. Slabs of large blocks hold few
  // of them: a program with one block of a size keeps a whole slab, whose pages may all be present
  // from earlier use.
  struct Goal {
    std::uint32_t blocks;
    std::uint32_t most_slices;
    std::uint32_t lost_part;  // at most 1/lost_part is lost
  };
  static constexpr Goal kGoals[] = {{4, 1, 16}, {2, 8, 11}};

  static constexpr std::uint32_t slices_for(std::size_t block) noexcept {
    for (const Goal& goal : kGoals) {
      for (std::uint32_t slices = 1; slices <= goal.most_slices; ++slices) {
        const std::size_t bytes = slices * kSliceBytes;
        const bool dense = (bytes % block) * goal.lost_part <= bytes;
        if (dense && bytes / block >= goal.blocks) return slices;
      }
    }
    return Slices::covering(block).count;
  }
  static constexpr SlabShape make_shape(std::size_t block) noexcept {
    const std::uint32_t slices = slices_for(block);
    const std::size_t capacity = slices * kSliceBytes / block;
    return {capacity == 1 ? Divider{} : Divider{block}, static_cast<std::uint32_t>(block),
            static_cast<std::uint16_t>(capacity), static_cast<std::uint16_t>(slices)};
  }
  static constexpr auto kShapes = [] {
    std::array<SlabShape, kCount> shapes{};
    for (ClassIndex index = 0; index < kCount; ++index) shapes[index] = make_shape(size_of(index));
    return shapes;
  }();

  static constexpr bool sizes_ascend() noexcept {
    for (ClassIndex index = 1; index < kCount; ++index) {
      if (size_of(index) <= size_of(index - 1)) return false;
      if (of(size_of(index)) != index || of(size_of(index - 1) + 1) != index) return false;
    }
    return size_of(kCount - 1) == kMaxSize && of(0) == 0;
  }
  static constexpr bool waste_is_bounded() noexcept {
    for (ClassIndex index = 9; index < kCount; ++index) {
      const std::size_t worst = size_of(index) - (size_of(index - 1) + 1);
      if (worst * 8 > size_of(index)) return false;
    }
    return true;
  }
  // It suffices to check the first and last byte of each block, since quotient and remainder only
  // grow in between.
  static constexpr bool divisions_are_exact() noexcept {
    for (ClassIndex index = 0; index < kCount; ++index) {
      const SlabShape& shape = kShapes[index];
      const std::uint64_t block = shape.block_bytes;
      for (std::uint64_t i = 0; i < shape.capacity;
           i += i < 64 || i + 65 > shape.capacity ? 1 : 61) {
        if (block_index(i * block, shape) != i) return false;
        if (block_index(i * block + block - 1, shape) != i) return false;
        if (!shape.divider.divide(i * block).is_whole) return false;
        if (shape.divider.divide(i * block + 1).is_whole) return false;
      }
    }
    return true;
  }
  static_assert(kCount < 255, "a class index must fit the page map's tag beside two marks");
  static_assert(sizes_ascend(), "size and class must be inverse to each other");
  static_assert(waste_is_bounded(), "a class wastes more than 12.5 %");
  static_assert(divisions_are_exact(), "a block index would be wrong");
};

}  // namespace allod::sizes

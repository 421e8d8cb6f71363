// Layer 2: which class a size has, and how blocks lie in a slab.
#include <gtest/gtest.h>

#include "allod/sizes/geometric.hpp"
#include "world.hpp"

namespace allod::test {
namespace {

template <class Scheme>
class SizeClasses : public testing::Test {};
using Schemes =
    testing::Types<sizes::Geometric<std::size_t{1} << 20>, sizes::Geometric<std::size_t{4} << 20>,
                   sizes::Geometric<std::size_t{64} << 20>>;
TYPED_TEST_SUITE(SizeClasses, Schemes);

TYPED_TEST(SizeClasses, hold_every_size_in_the_smallest_block_that_fits) {
  using Sizes = TypeParam;
  ClassIndex smallest = 0;
  // All sizes up to 1 MiB, and above that those around the borders of the classes.
  for (std::size_t size = 0; size <= (std::size_t{1} << 20); ++size) {
    while (Sizes::size_of(smallest) < size) ++smallest;
    ASSERT_EQ(Sizes::of(size), smallest) << size;
  }
  for (ClassIndex c = Sizes::of(std::size_t{1} << 20); c < Sizes::kCount; ++c) {
    EXPECT_EQ(Sizes::of(Sizes::size_of(c)), c);
    EXPECT_EQ(Sizes::of(Sizes::size_of(c - 1) + 1), c);
  }
  EXPECT_EQ(Sizes::size_of(Sizes::kCount - 1), Sizes::kMaxSize);
}

TYPED_TEST(SizeClasses, are_the_same_by_the_short_cut_for_large_sizes) {
  using Sizes = TypeParam;
  for (std::size_t size = 129; size <= Sizes::kMaxSize; size += 1 + size / 1000) {
    EXPECT_EQ(Sizes::of_large(size), Sizes::of(size)) << size;
  }
}

TYPED_TEST(SizeClasses, waste_at_most_an_eighth_of_a_block) {
  using Sizes = TypeParam;
  for (ClassIndex c = Sizes::of(129); c < Sizes::kCount; ++c) {
    const std::size_t worst = Sizes::size_of(c) - (Sizes::size_of(c - 1) + 1);
    EXPECT_LE(worst * 8, Sizes::size_of(c)) << c;
  }
  for (ClassIndex c = 1; c < Sizes::of(129); ++c) {
    EXPECT_LE(Sizes::size_of(c) - Sizes::size_of(c - 1), 16U);
  }
}

TYPED_TEST(SizeClasses, give_every_size_of_16_and_more_an_alignment_of_16) {
  using Sizes = TypeParam;
  EXPECT_EQ(Sizes::size_of(0), 8U);
  for (ClassIndex c = 1; c < Sizes::kCount; ++c) EXPECT_EQ(Sizes::size_of(c) % 16, 0U);
}

TYPED_TEST(SizeClasses, find_the_smallest_class_of_an_alignment) {
  using Sizes = TypeParam;
  Random random{4};
  for (std::size_t alignment = 1; alignment <= kSliceBytes; alignment *= 2) {
    for (int i = 0; i < 500; ++i) {
      const std::size_t size = i == 0 ? 0 : random.any_magnitude(Sizes::kMaxSize + 100);
      ClassIndex best = Sizes::kCount;
      for (ClassIndex c = Sizes::kCount; c-- > 0;) {
        if (Sizes::size_of(c) >= size && Sizes::size_of(c) % alignment == 0) best = c;
      }
      ASSERT_EQ(Sizes::of_aligned(size, alignment), best) << size << " at " << alignment;
    }
    EXPECT_EQ(Sizes::of_aligned(Sizes::kMaxSize + 1, alignment), Sizes::kCount);
    EXPECT_EQ(Sizes::of_aligned(SIZE_MAX, alignment), Sizes::kCount);
    EXPECT_EQ(Sizes::of_aligned(SIZE_MAX - alignment + 1, alignment), Sizes::kCount);
  }
}

TYPED_TEST(SizeClasses, fit_into_their_slabs_with_little_left_over) {
  using Sizes = TypeParam;
  for (ClassIndex c = 0; c < Sizes::kCount; ++c) {
    const sizes::SlabShape& shape = Sizes::shape_of(c);
    const std::size_t bytes = Slices{shape.slices}.bytes();
    ASSERT_EQ(shape.block_bytes, Sizes::size_of(c));
    ASSERT_GE(shape.capacity, 1U);
    const std::size_t used = std::size_t{shape.capacity} * shape.block_bytes;
    EXPECT_LE(used, bytes);
    EXPECT_LT(bytes - used, shape.block_bytes) << "another block would fit";
    if (shape.capacity > 1) {
      EXPECT_LE((bytes - used) * 11, bytes) << c;
    } else {
      EXPECT_EQ(Slices::covering(shape.block_bytes), Slices{shape.slices});
    }
  }
}

TYPED_TEST(SizeClasses, number_the_blocks_of_a_slab_exactly) {
  using Sizes = TypeParam;
  for (ClassIndex c = 0; c < Sizes::kCount; ++c) {
    const sizes::SlabShape& shape = Sizes::shape_of(c);
    const std::uint64_t block = shape.block_bytes;
    for (std::uint32_t i = 0; i < shape.capacity; ++i) {
      const std::uint64_t start = i * block;
      for (const std::uint64_t offset : {start, start + 1, start + block / 2, start + block - 1}) {
        ASSERT_EQ(Sizes::block_index(offset, shape), i) << "class " << c << " offset " << offset;
      }
    }
    // What lies behind the last block never looks like one of them.
    const std::uint64_t tail = shape.capacity * block;
    for (std::uint64_t at = tail; at < Slices{shape.slices}.bytes(); at += 1 + block / 3) {
      ASSERT_GE(Sizes::block_index(at, shape), shape.capacity == 1 ? 0U : shape.capacity);
    }
  }
}

TYPED_TEST(SizeClasses, number_the_bytes_of_small_slabs_exactly) {
  using Sizes = TypeParam;
  for (ClassIndex c = 0; c <= Sizes::of(1024); ++c) {
    const sizes::SlabShape& shape = Sizes::shape_of(c);
    std::uint32_t expected = 0;
    std::uint32_t inside = 0;
    for (std::size_t at = 0; at < Slices{shape.slices}.bytes(); ++at) {
      ASSERT_EQ(Sizes::block_index(at, shape), expected);
      if (++inside == shape.block_bytes) {
        inside = 0;
        ++expected;
      }
    }
  }
}

}  // namespace
}  // namespace allod::test

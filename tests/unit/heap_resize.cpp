// Layer 5: realloc without copying.
#include <gtest/gtest.h>

#include "heap_world.hpp"

namespace allod::test {
namespace {

class HeapResize : public HeapWorld {
 protected:
  // Resizes in place, and checks what must hold whether that was possible or not.
  void* resize(Domain& domain, void* block, std::size_t size) {
    const std::size_t before = heap.usable_size(block);
    void* const result = heap.resize_in_place(&domain, block, size);
    if (result == nullptr) {
      EXPECT_EQ(heap.usable_size(block), before);
    } else {
      EXPECT_GE(heap.usable_size(result), size);
    }
    return result;
  }
};

TEST_F(HeapResize, keeps_a_block_whose_class_stays) {
  Domain& domain = attach();
  for (const std::size_t size : {std::size_t{100}, 3 * kKiB, 100 * kKiB, 2 * kMiB}) {
    void* const block = allocate(domain, size);
    EXPECT_EQ(resize(domain, block, size - 1), block);
    EXPECT_EQ(resize(domain, block, heap.usable_size(block)), block);
  }
}

TEST_F(HeapResize, keeps_a_block_that_gets_a_little_smaller_and_moves_one_that_gets_much_smaller) {
  Domain& domain = attach();
  void* const block = allocate(domain, 1024);
  EXPECT_EQ(resize(domain, block, 800), block);
  EXPECT_EQ(resize(domain, block, 100), nullptr);
  EXPECT_EQ(resize(domain, block, 2000), nullptr) << "its neighbours are in use";
}

TEST_F(HeapResize, grows_a_block_that_is_a_slab_of_its_own_into_what_is_free_behind_it) {
  Domain& domain = attach();
  auto* const block = static_cast<unsigned char*>(allocate(domain, 600 * kKiB));
  ASSERT_EQ(program.slab_of(block).capacity(), 1U);
  std::memset(block, 5, 600 * kKiB);
  EXPECT_EQ(resize(domain, block, Sizes::kMaxSize), block);
  EXPECT_TRUE(is_all(block, 600 * kKiB, 5));
  std::memset(block, 6, Sizes::kMaxSize);
  heap.check_invariants();
  EXPECT_EQ(resize(domain, block, 600 * kKiB), block);
  EXPECT_EQ(heap.usable_size(block), Sizes::size_of(Sizes::of(600 * kKiB)));
  heap.check_invariants();
  EXPECT_EQ(heap.space().map().tag_of(address_of(block) + 700 * kKiB), space::kFreeTag);
  release(domain, block);
  EXPECT_EQ(allocate(domain, 600 * kKiB), block) << "it is a block of its new class";
}

TEST_F(HeapResize, does_not_grow_into_what_is_used) {
  Domain& domain = attach();
  void* const block = allocate(domain, 600 * kKiB);
  void* const next = allocate(domain, 600 * kKiB);
  EXPECT_EQ(resize(domain, block, Sizes::kMaxSize), nullptr);
  release(domain, next);
}

TEST_F(HeapResize, leaves_the_blocks_of_other_domains_where_they_are) {
  Domain& owner = attach();
  Domain& other = attach();
  void* const block = allocate(owner, 600 * kKiB);
  EXPECT_EQ(resize(other, block, Sizes::kMaxSize), nullptr);
  EXPECT_EQ(resize(other, block, 600 * kKiB - 5), block);
  heap.detach(owner);
  EXPECT_EQ(resize(other, block, Sizes::kMaxSize), nullptr) << "an orphan";
}

TEST_F(HeapResize, grows_and_shrinks_huge_blocks) {
  Domain& domain = attach();
  auto* const block = static_cast<unsigned char*>(allocate(domain, 2 * kMiB));
  std::memset(block, 5, 2 * kMiB);
  EXPECT_EQ(resize(domain, block, 6 * kMiB), block) << "fresh slices are behind it";
  EXPECT_TRUE(is_all(block, 2 * kMiB, 5));
  std::memset(block, 6, 6 * kMiB);
  EXPECT_EQ(used(), 6 * kMiB);
  EXPECT_EQ(resize(domain, block, 3 * kMiB), block);
  EXPECT_EQ(used(), 3 * kMiB);
  EXPECT_TRUE(is_all(block, 3 * kMiB, 6));
  heap.check_invariants();
  EXPECT_EQ(heap.space().map().tag_of(address_of(block) + 2 * kMiB), space::kInteriorTag);
  EXPECT_EQ(heap.space().map().tag_of(address_of(block) + 4 * kMiB), space::kFreeTag);
  EXPECT_EQ(resize(domain, block, 100 * kKiB), block);
  EXPECT_EQ(used(), 128 * kKiB);
  EXPECT_EQ(resize(domain, block, 60 * kKiB), nullptr) << "belongs into a slab";
  release(domain, block);
}

TEST_F(HeapResize, lets_a_block_that_grew_grow_again_where_it_stands) {
  Domain& domain = attach();
  EXPECT_EQ(heap.allocate_growing(&domain, 60 * kKiB), nullptr) << "belongs into a slab";
  // Once on fresh memory, once on what that has left.
  for (int round = 0; round < 2; ++round) {
    auto* const block = static_cast<unsigned char*>(heap.allocate_growing(&domain, 64 * kKiB));
    ASSERT_NE(block, nullptr);
    // Others take what is smaller or elsewhere.
    void* const other = allocate(domain, 5 * kMiB);
    release(domain, other);
    for (std::size_t size = 64 * kKiB; size < 4 * kMiB; size *= 2) {
      std::memset(block, 7, size);
      ASSERT_EQ(resize(domain, block, 2 * size), block) << size;
      ASSERT_TRUE(is_all(block, size, 7));
    }
    release(domain, block);
  }
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapResize, puts_a_growing_block_where_there_is_room_behind_it) {
  Domain& domain = attach();
  // Free spans of 8, 40 and 3 slices, each between used ones.
  std::vector<void*> holes;
  for (const std::size_t slices : {8U, 40U, 3U}) {
    holes.push_back(heap.allocate_growing(&domain, slices * kSliceBytes));
    static_cast<void>(allocate(domain, 5 * kMiB));
  }
  for (void* const hole : holes) release(domain, hole);
  EXPECT_EQ(heap.allocate_growing(&domain, 3 * kSliceBytes), holes[1]);
}

TEST_F(HeapResize, sees_at_once_when_there_is_nothing_to_do) {
  Domain& domain = attach();
  Domain& other = attach();
  auto* const block = static_cast<char*>(allocate(domain, 100));
  EXPECT_TRUE(heap.fits(domain, block, 100));
  EXPECT_TRUE(heap.fits(domain, block, heap.usable_size(block)));
  EXPECT_FALSE(heap.fits(domain, block, heap.usable_size(block) + 1));
  EXPECT_FALSE(heap.fits(domain, block + 16, 100)) << "no block begins there";
  EXPECT_FALSE(heap.fits(other, block, 100)) << "not sure";
  EXPECT_FALSE(heap.fits(domain, &system, 100));
  auto* const huge = static_cast<char*>(allocate(domain, 5 * kMiB));
  EXPECT_TRUE(heap.fits(other, huge, 5 * kMiB - 60 * kKiB));
  EXPECT_FALSE(heap.fits(other, huge, 5 * kMiB - 64 * kKiB));
  EXPECT_FALSE(heap.fits(other, huge + 16, 5 * kMiB));
  EXPECT_FALSE(heap.fits(other, huge, 60 * kKiB));
}

TEST_F(HeapResize, moves_pages_instead_of_copying_when_a_huge_block_has_no_room) {
  Domain& domain = attach();
  auto* const block = static_cast<unsigned char*>(allocate(domain, 20 * kMiB));
  std::memset(block, 5, 20 * kMiB);
  auto* const moved = static_cast<unsigned char*>(resize(domain, block, 50 * kMiB));
  ASSERT_NE(moved, nullptr);
  EXPECT_EQ(system.count(Fake::Call::move), 1U);
  EXPECT_TRUE(is_all(moved, 20 * kMiB, 5));
  EXPECT_TRUE(is_all(moved + 20 * kMiB, 30 * kMiB, 0));
  EXPECT_EQ(heap.space().map().tag_of(address_of(block)), space::kForeignTag);
  EXPECT_EQ(heap.space().map().tag_of(address_of(moved)), space::kHugeTag);
  EXPECT_EQ(heap.space().map().tag_of(address_of(moved) + 40 * kMiB), space::kInteriorTag);
  release(domain, moved);
}

TEST_F(HeapResize, refuses_sizes_that_no_address_space_holds) {
  Domain& domain = attach();
  void* const block = allocate(domain, 2 * kMiB);
  for (const std::size_t size :
       {SIZE_MAX, SIZE_MAX / 2 + 1, 2 * kMaxBlock, kMaxBlock + 1, kMaxBlock}) {
    EXPECT_EQ(resize(domain, block, size), nullptr) << size;
  }
}

TEST_F(HeapResize, tells_the_truth_about_what_a_block_offers_when_there_is_no_metadata) {
  Domain& domain = attach();
  const auto exhaust = [&] {
    while (heap.space().metadata().allocate(system, sizeof(space::Span)) != nullptr) {
    }
  };
  // A block that is larger than its class, because its span could not be cut.
  const std::size_t small = 600 * kKiB;
  void* const block = allocate(domain, small);
  void* const behind = allocate(domain, Sizes::kMaxSize);
  static_cast<void>(allocate(domain, 64));
  release(domain, behind);
  heap.trim(domain);
  system.fail_from_call(1);
  exhaust();
  for (const std::size_t size :
       {700 * kKiB, 800 * kKiB, 650 * kKiB, 900 * kKiB, small, Sizes::kMaxSize}) {
    if (resize(domain, block, size) != nullptr) {
      std::memset(block, 1, heap.usable_size(block));
    }
    exhaust();
  }
  heap.check_invariants();
}

TEST_F(HeapResize, keeps_contents_through_any_sequence) {
  Domain& domain = attach();
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Random random{seed};
    std::size_t size = 100;
    auto* block = static_cast<unsigned char*>(allocate(domain, size));
    std::memset(block, 1, size);
    std::vector<void*> others;
    for (int step = 1; step < 200; ++step) {
      if (random.one_in(3)) others.push_back(allocate(domain, random.any_magnitude(2 * kMiB)));
      if (random.one_in(4) && !others.empty()) {
        std::swap(others[random.below(others.size())], others.back());
        release(domain, others.back());
        others.pop_back();
      }
      const std::size_t next = random.any_magnitude(24 * kMiB);
      block = static_cast<unsigned char*>(program.resize(domain, block, next));
      ASSERT_NE(block, nullptr);
      const auto mark = static_cast<unsigned char>(step % 255);
      const auto before = static_cast<unsigned char>((step == 1 ? 1 : (step - 1) % 255));
      const std::size_t kept = std::min(size, next);
      ASSERT_TRUE(is_all(block, std::min(kept, 70 * kKiB), before));
      ASSERT_EQ(block[kept - 1], before);
      std::memset(block, mark, next);
      size = next;
    }
    heap.check_invariants();
    release(domain, block);
    release_all(domain, others);
    heap.trim(domain);
    EXPECT_EQ(used(), 0U);
  }
}

}  // namespace
}  // namespace allod::test

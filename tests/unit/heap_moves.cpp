// Layer 5: huge blocks that get the pages of freed ones.
#include <gtest/gtest.h>

#include <utility>

#include "heap_kept.hpp"

namespace allod::test {
namespace {

class HeapMoves : public HeapKept {
 protected:
  static constexpr std::size_t kLarge = 20 * kMiB;

  // No block is a region.
  heap::HeapOptions options() const override {
    heap::HeapOptions options = calm();
    options.region_bytes = 256 * kMiB;
    return options;
  }
  void SetUp() override {
    HeapKept::SetUp();
    heap.options().purge_budget = 64 * kMiB;
    heap.options().move_pages = true;
  }
  // Blocks of which none fits where the one before was, written as a whole.
  void replace(Domain& domain, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) release(domain, written(domain, next_size()));
  }
  std::size_t next_size() { return kHuge + turn_++ * kMiB; }
  void* written(Domain& domain, std::size_t size) {
    void* const block = allocate(domain, size);
    std::memset(block, 1, size);
    return block;
  }
  // Two free spans of about that size, of which the domain keeps one.
  void leave_two(Domain& domain, std::size_t size) {
    void* const one = written(domain, size);
    static_cast<void>(written(domain, kMiB));
    void* const other = written(domain, size + kMiB);
    static_cast<void>(written(domain, kMiB));
    release(domain, one);
    release(domain, other);
  }
  std::size_t moved() { return heap.space().counters().moved; }
  static std::size_t resident(const void* block, std::size_t bytes) {
    return Fake::resident_bytes(block, bytes);
  }

 private:
  std::size_t turn_ = 0;
};

TEST_F(HeapMoves, come_once_four_blocks_were_written) {
  Domain& domain = attach();
  replace(domain, 1);
  leave_two(domain, kHuge);
  static_cast<void>(allocate(domain, kLarge));
  EXPECT_EQ(moved(), 0U);
  replace(domain, 4);
  leave_two(domain, kHuge);
  const std::size_t before = moved();
  const void* const block = allocate(domain, kLarge);
  EXPECT_GE(moved() - before, 2 * kHuge);
  EXPECT_EQ(resident(block, kLarge), moved() - before);
}

// As soon as the next one is allocated.
TEST_F(HeapMoves, come_once_four_blocks_were_written_that_live) {
  Domain& domain = attach();
  for (int i = 0; i < 4; ++i) static_cast<void>(written(domain, kHuge));
  EXPECT_EQ(system.huge_bytes_once(), 0U);
  static_cast<void>(allocate(domain, kLarge));
  EXPECT_GE(system.huge_bytes_once(), kLarge - 4 * kMiB);
}

TEST_F(HeapMoves, do_not_come_while_living_blocks_are_untouched) {
  Domain& domain = attach();
  for (int i = 0; i < 100; ++i) static_cast<void>(allocate(domain, kHuge));
  EXPECT_EQ(system.huge_bytes_once(), 0U);
}

class HeapMovesOfNodes : public HeapMoves {
 protected:
  heap::HeapOptions options() const override {
    heap::HeapOptions options = HeapMoves::options();
    options.nodes = 2;
    return options;
  }
  // Bytes that move to a block on that node from memory of node 0.
  std::size_t moved_to(std::uint32_t node) {
    Domain& domain = attach();
    replace(domain, 8);
    leave_two(domain, kHuge);
    const std::size_t before = moved();
    Fake::set_node(node);
    static_cast<void>(allocate(domain, kLarge));
    return moved() - before;
  }
};

TEST_F(HeapMovesOfNodes, come_from_memory_of_the_same_node) { EXPECT_GE(moved_to(0), 2 * kHuge); }

TEST_F(HeapMovesOfNodes, do_not_come_from_memory_of_another_node) { EXPECT_EQ(moved_to(1), 0U); }

TEST_F(HeapMoves, do_not_come_for_zeros) {
  Domain& domain = attach();
  replace(domain, 8);
  leave_two(domain, kHuge);
  const std::size_t before = moved();
  bool zero = false;
  const void* const block = program.allocate_zeroable(domain, kLarge, &zero);
  EXPECT_TRUE(zero);
  EXPECT_EQ(moved(), before);
  EXPECT_EQ(resident(block, kLarge), 0U);
}

TEST_F(HeapMoves, do_not_come_while_one_block_in_four_stays_untouched) {
  Domain& domain = attach();
  replace(domain, 8);
  release(domain, allocate(domain, 2 * kLarge));
  replace(domain, 1);
  leave_two(domain, kHuge);
  const std::size_t before = moved();
  const void* const block = allocate(domain, 3 * kLarge);
  EXPECT_EQ(moved(), before);
  EXPECT_EQ(resident(block, 3 * kLarge), 0U);
}

// Of a block that is written in part, only that part is dirty when it gives way to others.
TEST_F(HeapMoves, bring_as_large_a_part_as_is_written) {
  constexpr std::size_t kPart = 2 * kSliceBytes;
  Domain& domain = attach();
  const std::vector<void*> blocks = keep_sparse(domain, 40, kHuge, kPart);
  const std::size_t freed = blocks.size() - count_kept(blocks);
  EXPECT_EQ(freed, 23U);
  EXPECT_EQ(heap.space().dirty_bytes(), freed * kPart);
  const void* const block = allocate(domain, 4 * kHuge);
  EXPECT_GE(resident(block, 4 * kHuge), 4 * kPart);
  EXPECT_LE(resident(block, 4 * kHuge), 4 * kPart + kSliceBytes) << "rounded up";
}

// The only one that is large enough has little.
TEST_F(HeapMoves, lengthen_what_a_kept_block_has) {
  constexpr std::size_t kPart = 16 * kSliceBytes;
  Domain& domain = attach();
  std::vector<void*> blocks(24);
  for (void*& block : blocks) block = allocate_sparse(domain, kHuge, kPart);
  void*& little = blocks[10];
  release(domain, std::exchange(little, allocate_sparse(domain, 2 * kHuge, kSliceBytes)));
  release_all(domain, blocks);
  ASSERT_TRUE(is_kept(little));
  ASSERT_GT(heap.space().dirty_bytes(), kPart);
  const void* const block = allocate(domain, 2 * kHuge);
  EXPECT_EQ(block, little);
  EXPECT_GE(resident(block, 2 * kHuge), 2 * kPart - kSliceBytes);
}

// Though all of it has memory.
TEST_F(HeapMoves, end_once_a_block_stays_untouched_that_got_some) {
  Domain& domain = attach();
  replace(domain, 8);
  leave_two(domain, kHuge);
  const std::size_t before = moved();
  release(domain, allocate(domain, kLarge));
  EXPECT_GT(moved(), before);
  leave_two(domain, kHuge);
  const std::size_t after = moved();
  static_cast<void>(allocate(domain, 2 * kLarge));
  EXPECT_EQ(moved(), after);
}

// Blocks that are cut from dirty memory tell nothing, but for one in sixteen, whose last slice was
// left out.
TEST_F(HeapMoves, end_once_blocks_in_present_memory_stay_untouched) {
  Domain& domain = attach();
  replace(domain, 8);
  leave_two(domain, kHuge);
  for (int i = 0; i < 16; ++i) {
    void* const large = allocate(domain, kHuge - kMiB);
    void* const other = allocate(domain, kHuge);
    release(domain, large);
    release(domain, other);
  }
  leave_two(domain, kHuge);
  const std::size_t before = moved();
  static_cast<void>(allocate(domain, 2 * kLarge));
  EXPECT_EQ(moved(), before);
}

// The same, while they live.
TEST_F(HeapMoves, end_after_many_blocks_that_told_nothing) {
  Domain& domain = attach();
  replace(domain, 8);
  void* const large = written(domain, 400 * kMiB / 2);
  static_cast<void>(written(domain, kMiB));
  release(domain, large);
  for (int i = 0; i < 65; ++i) static_cast<void>(allocate(domain, kHuge / 2));
  leave_two(domain, kHuge);
  const std::size_t before = moved();
  static_cast<void>(allocate(domain, 2 * kLarge));
  EXPECT_EQ(moved(), before);
}

// The rest of the program goes on with memory by page faults.
TEST_F(HeapMoves, replace_a_block_that_the_system_lost) {
  Domain& domain = attach();
  replace(domain, 8);
  leave_two(domain, kHuge);
  system.fail_call(Fake::Call::move_pages, system.count(Fake::Call::move_pages) + 1);
  void* const block = written(domain, kLarge);
  EXPECT_EQ(static_cast<unsigned char*>(block)[kLarge - 1], 1);
  release(domain, block);
}

}  // namespace
}  // namespace allod::test

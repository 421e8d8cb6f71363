// Layer 3: memory nodes, each with memory of its own.
#include <gtest/gtest.h>

#include "space_world.hpp"

namespace allod::test {
namespace {

class SpaceOfNodes : public SpaceOfSpans {
 protected:
  void SetUp() override {
    Fake::set_nodes(2);
    start();
  }
  Span* allocate_on(std::uint32_t node, std::uint32_t slices) {
    Fake::set_node(node);
    return allocate(slices);
  }
};

TEST_F(SpaceOfNodes, gives_each_node_what_its_own_threads_have_freed) {
  Span* const first = allocate_on(0, 4);
  const Address base = first->base;
  space.free(first);
  Span* const other = allocate_on(1, 4);
  EXPECT_NE(other->base, base);
  EXPECT_TRUE(other->zero) << "untouched";
  EXPECT_EQ(allocate_on(0, 4)->base, base);
}

TEST_F(SpaceOfNodes, returns_spans_to_their_node_whoever_frees_them) {
  Span* const span = allocate_on(0, 4);
  const Address base = span->base;
  Fake::set_node(1);
  space.free(span);
  EXPECT_NE(allocate_on(1, 4)->base, base);
  EXPECT_EQ(allocate_on(0, 4)->base, base);
}

TEST_F(SpaceOfNodes, keeps_nodes_in_regions_of_their_own) {
  const Span* const first = allocate_on(0, 1);
  const Span* const second = allocate_on(1, 1);
  EXPECT_NE(first->region, second->region);
  EXPECT_EQ(first->region->node, 0U);
  EXPECT_EQ(second->region->node, 1U);
  EXPECT_TRUE(space.is_near(*second));
  EXPECT_FALSE(space.is_near(*first));
  EXPECT_EQ(allocate_on(0, 1)->region, first->region);
}

TEST_F(SpaceOfNodes, keeps_purged_memory_with_its_node) {
  Span* const span = allocate_on(0, 4);
  const Address base = span->base;
  space.free(span);
  EXPECT_EQ(space.purge_free(), Slices{4}.bytes());
  EXPECT_NE(allocate_on(1, 4)->base, base);
  EXPECT_EQ(allocate_on(0, 4)->base, base);
}

TEST_F(SpaceOfNodes, takes_memory_of_another_node_when_the_system_refuses) {
  ASSERT_NE(allocate_on(1, 1), nullptr);
  Span* const span = allocate_on(0, 100);
  const Address base = span->base;
  space.free(span);
  system.fail_from_call(1);
  Span* last = nullptr;
  while (Span* const next = allocate_on(1, 100)) last = next;
  system.succeed();
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(last->base, base);
  EXPECT_EQ(last->region->node, 0U);
}

TEST_F(SpaceOfNodes, have_ids_that_may_be_higher_than_the_number_of_nodes) {
  const Span* const span = allocate_on(3, 1);
  EXPECT_EQ(span->region->node, 1U);
}

TEST_F(SpaceOfSpans, keeps_no_nodes_apart_if_it_is_told_so) {
  Fake::set_nodes(2);
  ASSERT_TRUE(space.start(kRegionBytes, kHugeFrom, 1));
  Span* const span = allocate(4);
  const Address base = span->base;
  space.free(span);
  Fake::set_node(1);
  EXPECT_EQ(allocate(4)->base, base);
}

}  // namespace
}  // namespace allod::test

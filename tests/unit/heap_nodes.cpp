// Layer 5: threads of several memory nodes.
#include <gtest/gtest.h>

#include <set>

#include "allod/thread/shared_domains.hpp"
#include "heap_kept.hpp"

namespace allod::test {
namespace {

class HeapNodes : public HeapKept {
 protected:
  heap::HeapOptions options() const override {
    heap::HeapOptions options = calm();
    options.nodes = 2;
    return options;
  }
  Domain& attach_on(std::uint32_t node) {
    Fake::set_node(node);
    return attach();
  }
  std::uint32_t node_of(const void* block) {
    return heap.space().map().span_of(address_of(block))->region->node;
  }
};

TEST_F(HeapNodes, have_records_of_domains_of_their_own) {
  Domain& left = attach_on(0);
  heap.detach(left);
  Domain& other = attach_on(1);
  EXPECT_NE(&other, &left);
  EXPECT_EQ(other.node, 1U);
  EXPECT_EQ(&attach_on(0), &left);
}

TEST_F(HeapNodes, adopt_orphans_of_their_own) {
  Domain& leaving = attach_on(0);
  void* const block = allocate(leaving, 64);
  heap.detach(leaving);
  Domain& far = attach_on(1);
  void* const second = allocate(far, 64);
  EXPECT_EQ(node_of(second), 1U);
  EXPECT_EQ(far.counters.slabs_adopted.value(), 0U);
  Domain& near = attach_on(0);
  void* const third = allocate(near, 64);
  EXPECT_EQ(&program.slab_of(third), &program.slab_of(block));
  release(near, block);
}

TEST_F(HeapNodes, adopt_orphans_of_others_when_the_system_refuses_memory) {
  Domain& far = attach_on(1);
  Domain& leaving = attach_on(0);
  void* const block = allocate(leaving, 64);
  heap.detach(leaving);
  Fake::set_node(1);
  system.fail_from_call(1);
  while (void* const other = allocate(far, 64)) {
    if (&program.slab_of(other) == &program.slab_of(block)) break;
  }
  system.succeed();
  EXPECT_EQ(far.counters.slabs_adopted.value(), 1U);
}

TEST_F(HeapNodes, get_no_huge_block_that_was_kept_on_another) {
  Domain& domain = attach_on(0);
  void* const kept = keep(domain);
  Fake::set_node(1);
  void* const block = allocate(domain, kHuge);
  EXPECT_NE(block, kept);
  EXPECT_EQ(node_of(block), 1U);
  Fake::set_node(0);
  EXPECT_EQ(allocate(domain, kHuge), kept);
}

TEST_F(HeapNodes, get_no_part_of_a_sparse_block_that_was_kept_on_another) {
  Domain& domain = attach_on(0);
  const std::vector<void*> kept = keep_sparse(domain, 2);
  ASSERT_GT(count_kept(kept), 0U);
  Fake::set_node(1);
  EXPECT_EQ(node_of(allocate(domain, kHuge - kMiB)), 1U);
  EXPECT_EQ(node_of(allocate(domain, kHuge + kMiB)), 1U);
}

TEST_F(HeapNodes, have_shared_domains_of_their_own) {
  using Heap = FakeProgram::Heap;
  system.set_processors(64, 0);
  thread::SharedDomains<Heap> shared;
  shared.start(heap);
  std::set<Domain*> domains[2];
  for (std::uint32_t node = 0; node < 2; ++node) {
    Fake::set_node(node);
    for (std::uint32_t i = 0; i < 64; ++i) domains[node].insert(shared.of_processor(heap, i));
    EXPECT_EQ(domains[node].size(), 2U);
    EXPECT_TRUE(domains[node].contains(shared.near(heap)));
    for (const Domain* const domain : domains[node]) EXPECT_EQ(domain->node, node);
    for (int i = 0; i < 4; ++i) {
      static_cast<void>(shared.with_any(heap, true, [&](Domain& domain) noexcept {
        EXPECT_TRUE(domains[node].contains(&domain));
        return static_cast<void*>(&domain);
      }));
    }
  }
  shared.for_each([&](Domain& domain) noexcept { heap.detach(domain); });
}

}  // namespace
}  // namespace allod::test

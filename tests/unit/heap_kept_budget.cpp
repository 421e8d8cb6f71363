// Layer 5: how long huge blocks are kept, and how domains share the budget.
#include <gtest/gtest.h>

#include "heap_kept.hpp"

namespace allod::test {
namespace {

TEST_F(HeapKept, goes_back_to_the_system_when_it_is_not_asked_for) {
  Domain& one = attach();
  Domain& two = attach();
  void* const first = keep(one);
  void* const second = keep(two);
  ASSERT_TRUE(system.helper_waits());
  const std::uint64_t start = system.now_ms();
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || system.now_ms() >= start + 500) return;
    EXPECT_EQ(resident(first), kHuge) << "too early";
  });
  system.run_helper();
  EXPECT_LE(system.now_ms(), start + 1000);
  EXPECT_EQ(resident(first), 0U);
  EXPECT_EQ(resident(second), 0U);
  EXPECT_FALSE(is_kept(first));
  // All of the budget is there again.
  heap.options().purge_budget = 2 * kHuge;
  start_helper();
  static_cast<void>(keep(one));
  static_cast<void>(keep(two));
  system.run_helper();
}

TEST_F(HeapKept, stays_while_it_is_asked_for_again_and_again) {
  Domain& domain = attach();
  void* const block = keep(domain);
  std::uint64_t waits = 0;
  std::size_t then = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits > 8) return;
    EXPECT_TRUE(is_kept(block));
    EXPECT_EQ(allocate(domain, kHuge), block);
    then = resident(block);
    release(domain, block);
  });
  system.run_helper();
  EXPECT_GT(waits, 8U);
  EXPECT_EQ(then, kHuge);
  EXPECT_EQ(resident(block), 0U);
}

TEST_F(HeapKept, holds_no_more_of_the_budget_than_it_is) {
  heap.options().purge_budget = 16 * kMiB;
  Domain& domain = attach();
  void* block = keep(domain, 16 * kMiB);
  block = allocate(domain, kHuge);
  Domain& other = attach();
  void* const others = allocate(other, kHuge);
  std::uint64_t waits = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait) return;
    if (++waits <= 4) {
      release(domain, block);
      EXPECT_TRUE(is_kept(block));
      EXPECT_EQ(allocate(domain, kHuge), block);
    } else if (waits == 5) {
      release(other, others);
      EXPECT_TRUE(is_kept(others));
    }
  });
  system.run_helper();
  EXPECT_GE(waits, 5U);
}

TEST_F(HeapKept, is_shared_with_who_wants_less) {
  Domain& greedy = attach();
  Domain& modest = attach();
  Domain& third = attach();
  void* const large = keep(greedy, 15 * kMiB);
  // Nobody gives way to who wants more.
  void* const larger = allocate(third, 16 * kMiB);
  release(third, larger);
  EXPECT_FALSE(is_kept(larger));
  EXPECT_EQ(keep(greedy, 15 * kMiB), large);
  void* const block = allocate(modest, kHuge);
  release(modest, block);
  EXPECT_FALSE(is_kept(block)) << "nothing is left";
  // Its owner goes on, and has more than its share.
  EXPECT_EQ(allocate(greedy, 15 * kMiB), large);
  release(greedy, large);
  EXPECT_FALSE(is_kept(large));
  void* const kept = keep(modest);
  // Half of the budget each.
  for (const std::size_t size : {8 * kMiB, 9 * kMiB}) {
    void* const more = allocate(third, size);
    release(third, more);
    EXPECT_EQ(is_kept(more), size == 8 * kMiB);
    EXPECT_TRUE(is_kept(kept));
  }
  system.run_helper();
}

TEST_F(HeapKept, is_taken_from_who_has_more_than_its_share_and_sleeps) {
  Domain& greedy = attach();
  Domain& modest = attach();
  void* const large = keep(greedy, 15 * kMiB);
  void* const block = allocate(modest, kHuge);
  release(modest, block);
  EXPECT_TRUE(is_kept(large));
  std::uint64_t waits = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits != 1) return;
    EXPECT_FALSE(is_kept(large)) << "before the helper has waited once";
    static_cast<void>(keep(modest));
  });
  system.run_helper();
  EXPECT_GE(waits, 1U);
  // And later it may have as much again.
  start_helper();
  static_cast<void>(keep(greedy, 15 * kMiB));
  system.run_helper();
}

TEST_F(HeapKept, is_left_alone_in_a_slow_path) {
  Domain& domain = attach();
  void* const block = keep(domain);
  std::uint64_t waits = 0;
  domain.in_slow_path = true;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits != 6) return;
    EXPECT_TRUE(is_kept(block));
    domain.in_slow_path = false;
  });
  system.run_helper();
  EXPECT_GE(waits, 6U);
  EXPECT_FALSE(is_kept(block));
}

TEST_F(HeapKept, keeps_to_a_budget_that_became_smaller) {
  Domain& domain = attach();
  void* block = keep(domain, 12 * kMiB);
  heap.options().purge_budget = kHuge;
  std::uint64_t waits = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits > 4) return;
    block = allocate(domain, 12 * kMiB);
    release(domain, block);
    if (waits > 2) {
      EXPECT_FALSE(is_kept(block));
    }
  });
  system.run_helper();
  EXPECT_GT(waits, 4U);
}

TEST_F(HeapKept, leaves_a_quarter_of_the_budget_to_others) {
  Domain& domain = attach();
  std::vector<void*> slabs;
  for (int i = 0; i < 3; ++i) slabs.push_back(allocate(domain, kMiB));
  void* const block = keep(domain, 16 * kMiB);
  heap.give_up(domain);
  release_all(domain, slabs);
  pass_time(domain, 10 * 256);
  EXPECT_GE(heap.space().dirty_bytes(), 2 * kMiB);
  static_cast<void>(block);
  system.run_helper();
}

TEST_F(HeapKept, makes_room_for_what_grows_in_place) {
  Domain& domain = attach();
  auto* const grown = static_cast<char*>(allocate(domain, kHuge));
  ASSERT_EQ(keep(domain), grown + kHuge);
  EXPECT_EQ(heap.resize_in_place(&domain, grown, 2 * kHuge), grown);
  EXPECT_EQ(used(), 2 * kHuge);
}

TEST_F(HeapKept, gives_no_way_to_what_is_rarely_asked_for) {
  Domain& domain = attach();
  void* const small = heap.allocate_growing(&domain, 100 * kKiB);
  void* const block = keep(domain);
  release(domain, small);
  EXPECT_TRUE(is_kept(block));
  // Aligned ones are spans whatever their size.
  heap.give_up_kept();
  void* const aligned = heap.allocate_aligned(domain, 100 * kKiB, kMiB, nullptr);
  release(domain, aligned);
  EXPECT_TRUE(is_kept(aligned));
  EXPECT_EQ(heap.allocate_aligned(domain, 100 * kKiB, kMiB, nullptr), aligned);
}

TEST_F(HeapKept, serves_heaps_without_a_domain_when_the_system_refuses) {
  auto* const own = heap.create_heap(nullptr);
  ASSERT_NE(own, nullptr);
  Domain& domain = attach();
  void* const block = keep(domain, 12 * kMiB);
  system.set_address_space_limit(kMiB);
  heaps::HeapRequest request{.size = 12 * kMiB};
  EXPECT_EQ(heap.allocate_in(nullptr, *own, request), block);
}

TEST_F(HeapKept, stays_when_a_buffer_is_full) {
  std::vector<char> memory(8 * kSliceBytes);
  space::PageWishes wishes;
  wishes.buffer = address_of(memory.data());
  wishes.buffer_bytes = memory.size();
  int error = 0;
  auto* const own = heap.create_heap("own", wishes, &error);
  ASSERT_NE(own, nullptr);
  Domain& domain = attach();
  void* const block = keep(domain);
  heaps::HeapRequest request{.size = memory.size() + 1};
  EXPECT_EQ(heap.allocate_in(&domain, *own, request), nullptr);
  EXPECT_TRUE(is_kept(block));
}

TEST_F(HeapKept, serves_others_when_the_system_refuses) {
  Domain& one = attach();
  Domain& two = attach();
  static_cast<void>(allocate(two, 100));
  void* const block = keep(one, 12 * kMiB);
  system.set_address_space_limit(kMiB);
  EXPECT_EQ(allocate(two, 12 * kMiB), block);
}

TEST_F(HeapKept, goes_when_all_is_to_go) {
  Domain& one = attach();
  Domain& two = attach();
  void* const first = keep(one);
  void* const second = keep(two);
  EXPECT_GE(heap.trim(one), 2 * kHuge);
  EXPECT_EQ(resident(first), 0U);
  EXPECT_EQ(resident(second), 0U);
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapKept, goes_with_its_thread) {
  Domain& domain = attach();
  void* const block = keep(domain);
  heap.detach(domain);
  EXPECT_FALSE(is_kept(block));
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(heap.space().dirty_bytes(), kHuge);
  heap.options().purge_budget = kHuge;
  static_cast<void>(keep(attach()));
}

TEST_F(HeapKept, is_nobodys_in_a_forked_child) {
  Domain& own = attach();
  Domain& other = attach();
  void* const mine = keep(own);
  void* const others = keep(other);
  ASSERT_TRUE(system.helper_waits());
  heap.before_fork(&own);
  heap.after_fork_in_child(&own);
  EXPECT_FALSE(is_kept(mine));
  EXPECT_FALSE(is_kept(others));
  EXPECT_EQ(used(), 0U);
  EXPECT_FALSE(system.helper_waits());
  heap.space().purge_free();
  pass_time(own, 300);
  EXPECT_FALSE(system.helper_waits()) << "for what the parent has reserved";
  heap.trim(own);
  system.advance_clock(20);  // after a fork none begins at once
  start_helper();
  static_cast<void>(keep(own));
}

TEST(HelperState, knows_each_start_from_the_others) {
  heap::HelperState state;
  EXPECT_TRUE(state.is_none());
  const std::uint32_t first = state.begin();
  ASSERT_NE(first, 0U);
  EXPECT_EQ(state.begin(), 0U);
  EXPECT_FALSE(state.is_none());
  EXPECT_FALSE(state.is_running());
  // It ends before who started it says that it runs.
  state.end();
  const std::uint32_t second = state.begin();
  ASSERT_NE(second, 0U);
  state.began(first);
  EXPECT_FALSE(state.is_running());
  state.began(second);
  EXPECT_TRUE(state.is_running());
  state.leave();
  EXPECT_FALSE(state.is_running());
  EXPECT_FALSE(state.is_none());
  state.began(second);
  EXPECT_FALSE(state.is_running());
  state.go_on();
  EXPECT_TRUE(state.is_running());
}

}  // namespace
}  // namespace allod::test

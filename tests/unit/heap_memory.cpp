// Layer 5: memory on its way back to the system, and there before it is used.
#include <gtest/gtest.h>

#include <utility>

#include "heap_purge.hpp"

namespace allod::test {
namespace {

TEST_F(HeapPurge, happens_only_when_told_with_a_negative_delay) {
  Domain& domain = attach();
  leave_dirty(domain, 8 * kMiB);
  system.advance_clock(1'000'000);
  pass_time(domain, 1000);
  EXPECT_EQ(system.count(Fake::Call::purge), 0U);
  EXPECT_FALSE(system.helper_waits());
  EXPECT_GE(heap.trim(domain), 8 * kMiB);
  EXPECT_EQ(heap.space().dirty_bytes(), 0U);
}

TEST_F(HeapPurge, happens_at_once_without_delay) {
  heap.options().purge_delay_ms = 0;
  Domain& domain = attach();
  leave_dirty(domain, 8 * kMiB);
  EXPECT_EQ(heap.space().dirty_bytes(), 0U);
}

TEST_F(HeapPurge, waits_for_the_delay_and_then_goes_by_bounded_steps) {
  heap.options().purge_delay_ms = 500;
  heap.options().purge_thread = false;
  Domain& domain = attach();
  leave_dirty(domain, 8 * kMiB);
  system.advance_clock(499);
  pass_time(domain, 300);
  EXPECT_EQ(heap.space().dirty_bytes(), 8 * kMiB);
  EXPECT_FALSE(system.helper_waits());
  system.advance_clock(1);
  std::size_t before = heap.space().dirty_bytes();
  while (before > kMiB) {
    pass_time(domain, 256);
    const std::size_t now = heap.space().dirty_bytes();
    EXPECT_LT(now, before);
    EXPECT_LE(before - now, 2 * heap::kPurgeStep);
    before = now;
  }
}

TEST_F(HeapPurge, keeps_no_more_than_the_budget) {
  heap.options().purge_delay_ms = 1'000'000;
  heap.options().purge_budget = 2 * kMiB;
  heap.options().purge_thread = false;
  Domain& domain = attach();
  const std::vector<void*> blocks = allocate_many(domain, 10, 2 * kMiB);
  pass_time(domain, 1);
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    release(domain, blocks[i]);
    system.advance_clock(1);
  }
  pass_time(domain, 10 * 256);
  EXPECT_EQ(heap.space().dirty_bytes(), 2 * kMiB);
  EXPECT_EQ(Fake::resident_bytes(blocks[0], 2 * kMiB), 0U) << "the oldest goes first";
}

TEST_F(HeapPurge, is_finished_by_a_helper_when_the_program_is_idle) {
  heap.options().purge_delay_ms = 500;
  Domain& domain = attach();
  leave_dirty(domain, 100 * kKiB);
  EXPECT_FALSE(system.helper_waits()) << "too little for a thread";
  leave_dirty(domain, 8 * kMiB);
  ASSERT_TRUE(system.helper_waits());
  const std::uint64_t before = system.now_ms();
  system.run_helper();
  EXPECT_LT(heap.space().dirty_bytes(), kMiB);
  EXPECT_GE(system.now_ms(), before + 500);
  EXPECT_LE(system.now_ms(), before + 2000);
  leave_dirty(domain, 8 * kMiB);
  EXPECT_TRUE(system.helper_waits()) << "again, when there is work again";
  system.run_helper();
}

TEST_F(HeapPurge, is_finished_by_a_helper_at_once_when_much_is_above_the_budget) {
  heap.options().purge_delay_ms = 1'000'000;
  heap.options().purge_budget = 2 * kMiB;
  Domain& domain = attach();
  const std::vector<void*> blocks = allocate_many(domain, 10, 8 * kMiB);
  release_all(domain, blocks);
  ASSERT_TRUE(system.helper_waits());
  EXPECT_GE(heap.space().dirty_bytes(), 60 * kMiB) << "no caller waits for so much";
  const std::uint64_t before = system.now_ms();
  std::size_t left = 0;
  std::uint64_t waits = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits != 1) return;
    left = heap.space().dirty_bytes();
  });
  system.run_helper();
  EXPECT_GT(system.now_ms(), before) << "the rest has time";
  EXPECT_EQ(left, 8 * kMiB) << "what was freed last is above the budget, and stays";
}

// --- what was in use lately ----------------------------------------------------------------------

class HeapPurgeBelowPeak : public HeapPurge {
 protected:
  static constexpr std::size_t kPart = kMiB;

  void SetUp() override {
    HeapPurge::SetUp();
    heap.options().purge_delay_ms = 500;
    heap.options().purge_budget = 2 * kMiB;
  }
  // With a helper, which has not begun.
  Domain& attach_with_helper() {
    Domain& domain = attach();
    leave_dirty(domain, 3 * kMiB);
    EXPECT_TRUE(system.helper_waits());
    return domain;
  }
  // Dirty memory when the helper waits next, and what it has done by then.
  std::size_t dirty_at_first_wait() {
    std::size_t dirty = 0;
    bool is_first = true;
    system.set_observer([&](Fake::Call call) {
      if (call != Fake::Call::wait || !std::exchange(is_first, false)) return;
      dirty = heap.space().dirty_bytes();
    });
    system.run_helper();
    system.set_observer({});
    return dirty;
  }
};

TEST_F(HeapPurgeBelowPeak, is_not_done_for_what_may_be_used_again_but_after_the_delay) {
  Domain& domain = attach_with_helper();
  release_all(domain, allocate_many(domain, 40, kPart));
  const std::size_t dirty = heap.space().dirty_bytes();
  EXPECT_GE(dirty, 38 * kMiB);
  release_all(domain, allocate_many(domain, 40, kPart));
  EXPECT_EQ(system.count(Fake::Call::purge), 0U);
  const std::uint64_t before = system.now_ms();
  EXPECT_EQ(dirty_at_first_wait(), dirty);
  EXPECT_LT(heap.space().dirty_bytes(), kMiB);
  EXPECT_LE(system.now_ms(), before + 1000) << "a second after the program went idle";
}

TEST_F(HeapPurgeBelowPeak, is_done_where_the_budget_was_chosen) {
  heap.options().most_below_peak = 0;
  Domain& domain = attach_with_helper();
  release_all(domain, allocate_many(domain, 40, kPart));
  EXPECT_GT(system.count(Fake::Call::purge), 0U);
  EXPECT_LE(dirty_at_first_wait(), 4 * kMiB);
}

TEST_F(HeapPurgeBelowPeak, is_done_above_a_part_of_it) {
  heap.options().most_below_peak = 16 * kMiB;
  Domain& domain = attach_with_helper();
  release_all(domain, allocate_many(domain, 40, kPart));
  const std::size_t dirty = dirty_at_first_wait();
  EXPECT_LE(dirty, 16 * kMiB);
  EXPECT_GE(dirty, 13 * kMiB);
}

TEST_F(HeapPurgeBelowPeak, leaves_no_more_memory_than_was_needed_at_the_peak) {
  Domain& domain = attach_with_helper();
  // Every other one goes, so that what is larger has to come from fresh memory.
  std::vector<void*> blocks = allocate_many(domain, 40, kPart);
  const std::size_t peak = heap.space().counters().used;
  for (std::size_t i = 0; i < blocks.size(); i += 2) release(domain, blocks[i]);
  EXPECT_EQ(system.count(Fake::Call::purge), 0U);
  static_cast<void>(allocate_many(domain, 5, 4 * kMiB));
  pass_time(domain, 100 * 256);
  EXPECT_GT(system.count(Fake::Call::purge), 0U);
  const auto counters = heap.space().counters();
  EXPECT_LE(counters.used + counters.dirty, peak + 6 * kMiB);
  EXPECT_GE(counters.used, peak - 2 * kMiB);
  system.run_helper();
}

TEST_F(HeapPurgeBelowPeak, is_done_when_the_peak_is_long_ago) {
  Domain& domain = attach_with_helper();
  release_all(domain, allocate_many(domain, 40, kPart));
  EXPECT_GE(heap.space().below_peak(), 38 * kMiB);
  system.run_helper();
  EXPECT_LE(heap.space().below_peak(), kMiB);
}

TEST_F(HeapPurgeBelowPeak, is_done_for_blocks_of_which_perhaps_little_was_written) {
  Domain& domain = attach_with_helper();
  release_all(domain, allocate_many(domain, 10, 6 * kMiB));
  EXPECT_LE(heap.space().below_peak(), 3 * kMiB);
  EXPECT_LE(dirty_at_first_wait(), 8 * kMiB);
}

TEST_F(HeapPurge, is_left_to_a_helper_that_keeps_up) {
  heap.options().purge_delay_ms = 500;
  Domain& domain = attach();
  leave_dirty(domain, 8 * kMiB);
  ASSERT_TRUE(system.helper_waits());
  system.advance_clock(999);
  pass_time(domain, 300);
  EXPECT_EQ(system.count(Fake::Call::purge), 0U);
  system.advance_clock(1);
  pass_time(domain, 300);
  EXPECT_GT(system.count(Fake::Call::purge), 0U) << "it gets no processor";
  system.run_helper();
}

TEST_F(HeapPurge, is_done_by_callers_when_the_helper_falls_behind_by_an_eighth) {
  heap.options().purge_delay_ms = 1'000'000;
  heap.options().purge_budget = 69 * kMiB;
  constexpr std::size_t kBudget = 64 * kMiB;  // a block is kept
  Domain& domain = attach();
  leave_dirty(domain, 8 * kMiB);
  ASSERT_TRUE(system.helper_waits());
  const std::vector<void*> blocks = allocate_many(domain, 20, 5 * kMiB);
  for (void* const block : blocks) std::memset(block, 1, 5 * kMiB);
  std::size_t freed = 0;
  for (; heap.space().dirty_bytes() <= kBudget; ++freed) release(domain, blocks[freed]);
  EXPECT_LE(heap.space().dirty_bytes(), 72 * kMiB);
  EXPECT_EQ(system.count(Fake::Call::purge), 0U);
  for (; freed < blocks.size(); ++freed) release(domain, blocks[freed]);
  pass_time(domain, 20 * 256);
  EXPECT_GT(system.count(Fake::Call::purge), 0U);
  EXPECT_EQ(heap.space().dirty_bytes(), 72 * kMiB);
  // It was woken, and so does not wait before it begins.
  std::size_t left = 0;
  std::uint64_t waits = 0;
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::wait && ++waits == 1) left = heap.space().dirty_bytes();
  });
  system.run_helper();
  EXPECT_EQ(left, 56 * kMiB) << "so much that it need not be woken for the next span";
}

TEST_F(HeapPurge, wakes_no_helper_for_what_was_freed_last) {
  heap.options().purge_delay_ms = 1'000'000;
  heap.options().purge_budget = 2 * kMiB;
  Domain& domain = attach();
  leave_dirty(domain, 8 * kMiB);
  ASSERT_TRUE(system.helper_waits());
  std::uint64_t before = Fake::wakes();
  pass_time(domain, 300);
  EXPECT_EQ(Fake::wakes(), before) << "there is nothing that it may give back";
  before = Fake::wakes();
  release_all(domain, allocate_many(domain, 4, 5 * kMiB));
  EXPECT_EQ(Fake::wakes(), before + 1) << "once, until it has heard of it";
  system.run_helper();
}

TEST_F(HeapPurge, works_without_a_helper_when_the_system_has_none) {
  heap.options().purge_delay_ms = 500;
  Domain& domain = attach();
  system.fail_call(Fake::Call::start_helper, 1);
  leave_dirty(domain, 8 * kMiB);
  EXPECT_FALSE(system.helper_waits());
  leave_dirty(domain, 8 * kMiB);
  EXPECT_TRUE(system.helper_waits()) << "it is asked for again";
  system.run_helper();
}

TEST_F(HeapPurge, ends_when_the_system_takes_nothing_back) {
  system.set_purge(Fake::Purge::refuses);
  // If something does not end by itself, this ends it.
  system.set_observer([&](Fake::Call) {
    if (system.count(Fake::Call::purge) > 5000) system.set_purge(Fake::Purge::zeroes);
  });
  Domain& domain = attach();
  leave_dirty(domain, 8 * kMiB);
  EXPECT_EQ(heap.trim(domain), 0U);
  heap.options().purge_delay_ms = 0;
  leave_dirty(domain, 8 * kMiB);
  heap.options().purge_delay_ms = 500;
  leave_dirty(domain, 8 * kMiB);
  EXPECT_FALSE(system.helper_waits()) << "there is nothing it could do";
  EXPECT_LT(system.count(Fake::Call::purge), 100U);
  EXPECT_EQ(heap.space().dirty_bytes(), 8 * kMiB);
}

TEST_F(HeapPurge, has_no_helper_in_a_forked_child_until_it_is_needed) {
  heap.options().purge_delay_ms = 500;
  Domain& domain = attach();
  leave_dirty(domain, 8 * kMiB);
  ASSERT_TRUE(system.helper_waits());
  heap.before_fork(&domain);
  heap.after_fork_in_child(&domain);
  EXPECT_FALSE(system.helper_waits());
  leave_dirty(domain, 8 * kMiB);
  ASSERT_TRUE(system.helper_waits());
  system.run_helper();
}

// --- a process with one thread -------------------------------------------------------------------

class HeapHelperAway : public HeapPurge {
 protected:
  void SetUp() override {
    HeapPurge::SetUp();
    heap.options().purge_delay_ms = 500;
  }
  void fork(Domain& domain) {
    heap.before_fork(&domain);
    EXPECT_FALSE(system.helper_waits()) << "it has ended";
    heap.after_fork_in_parent();
  }
};

TEST_F(HeapHelperAway, is_what_a_fork_finds_and_nothing_is_left_to_give_back) {
  Domain& domain = attach();
  leave_dirty(domain, 8 * kMiB);
  ASSERT_TRUE(system.helper_waits());
  const std::uint64_t before = system.now_ms();
  fork(domain);
  EXPECT_EQ(heap.space().dirty_bytes(), 0U);
  EXPECT_EQ(system.now_ms(), before) << "nobody waits for the delay";
}

TEST_F(HeapHelperAway, lasts_a_little_longer_than_the_fork) {
  Domain& domain = attach();
  leave_dirty(domain, 8 * kMiB);
  fork(domain);
  leave_dirty(domain, 6 * kMiB);
  EXPECT_FALSE(system.helper_waits());
  system.advance_clock(19);
  pass_time(domain, 300);
  EXPECT_FALSE(system.helper_waits());
  system.advance_clock(1);
  pass_time(domain, 300);
  ASSERT_TRUE(system.helper_waits());
  system.run_helper();
  EXPECT_LT(heap.space().dirty_bytes(), kMiB);
}

TEST_F(HeapHelperAway, ends_early_when_much_becomes_free) {
  Domain& domain = attach();
  leave_dirty(domain, 8 * kMiB);
  fork(domain);
  leave_dirty(domain, 8 * kMiB);
  ASSERT_TRUE(system.helper_waits());
  system.run_helper();
}

TEST_F(HeapHelperAway, costs_a_program_that_forks_all_the_time_no_memory_that_it_uses_again) {
  Domain& domain = attach();
  for (int i = 0; i < 40; ++i) {
    leave_dirty(domain, 9 * kMiB);
    system.advance_clock(10);
    fork(domain);
  }
  EXPECT_GE(heap.space().dirty_bytes(), 9 * kMiB);
  const std::size_t purges = system.count(Fake::Call::purge);
  EXPECT_LE(purges, 10U);
  // When it has done so for a while, all is as before.
  system.advance_clock(60'000);
  leave_dirty(domain, 9 * kMiB);
  ASSERT_TRUE(system.helper_waits());
  fork(domain);
  EXPECT_EQ(heap.space().dirty_bytes(), 0U);
}

TEST_F(HeapHelperAway, begins_within_the_delay_when_the_helper_is_in_the_midst_of_its_work) {
  Domain& domain = attach();
  release_all(domain, allocate_many(domain, 40, 8 * kMiB));
  ASSERT_TRUE(system.helper_waits());
  std::uint64_t purges = 0;
  system.set_observer([&](Fake::Call call) {
    // As if another thread called it; the fake cannot wait for a helper that runs.
    if (call == Fake::Call::purge && ++purges == 1) heap.send_helper_away();
  });
  system.run_helper();
  system.set_observer({});
  EXPECT_EQ(purges, 1U) << "what it has begun it finishes";
  EXPECT_FALSE(system.helper_waits());
  leave_dirty(domain, 8 * kMiB);
  EXPECT_FALSE(system.helper_waits()) << "it was not let come yet";
  heap.let_helper_come();
  system.advance_clock(20);
  pass_time(domain, 300);
  EXPECT_TRUE(system.helper_waits());
  system.run_helper();
  EXPECT_LT(heap.space().dirty_bytes(), kMiB);
}

TEST_F(HeapHelperAway, gives_back_what_domains_keep) {
  Domain& domain = attach();
  leave_dirty(domain, 8 * kMiB);
  ASSERT_TRUE(system.helper_waits());
  void* const block = allocate(domain, 8 * kMiB);
  release(domain, block);
  fork(domain);
  EXPECT_EQ(Fake::resident_bytes(block, 8 * kMiB), 0U);
}

TEST_F(HeapHelperAway, is_not_waited_for_by_who_has_interrupted_a_slow_path) {
  Domain& domain = attach();
  leave_dirty(domain, 8 * kMiB);
  ASSERT_TRUE(system.helper_waits());
  heap.send_helper_away(FakeProgram::Heap::Wait::no);
  EXPECT_TRUE(system.helper_waits());
  heap.let_helper_come();
  system.run_helper();
}

// --- population -------------------------------------------------------------------------------

class HeapPopulation : public HeapWorld {
 protected:
  // Enough to fill so many slabs of 64 KiB.
  void fill_slabs(Domain& domain, std::size_t slabs, std::size_t size = 64) {
    allocate_many(domain, slabs * kSliceBytes / size, size);
  }
};

TEST_F(HeapPopulation, begins_when_a_class_has_filled_many_slabs) {
  Domain& domain = attach();
  fill_slabs(domain, 8);
  EXPECT_EQ(system.populated_bytes(), 0U);
  fill_slabs(domain, 4);
  EXPECT_EQ(system.populated_bytes(), 4 * kSliceBytes);
  fill_slabs(domain, 12, 128);
  EXPECT_EQ(system.populated_bytes(), 8 * kSliceBytes) << "each class for itself";
  fill_slabs(domain, 100, 8192);
  EXPECT_EQ(system.populated_bytes(), 8 * kSliceBytes) << "large blocks may be used in part";
}

TEST_F(HeapPopulation, leaves_alone_what_has_been_used) {
  Domain& domain = attach();
  void* const block = allocate(domain, 4 * kMiB);
  release(domain, block);
  fill_slabs(domain, 12);
  EXPECT_EQ(system.populated_bytes(), 0U) << "the memory is dirty, and present";
}

TEST_F(HeapPopulation, can_be_all_or_nothing) {
  heap.options().populate = heap::Populate::off;
  Domain& domain = attach();
  fill_slabs(domain, 20);
  EXPECT_EQ(system.populated_bytes(), 0U);
  heap.options().populate = heap::Populate::all;
  auto* const huge = static_cast<unsigned char*>(allocate(domain, 5 * kMiB));
  EXPECT_EQ(system.populated_bytes(), 5 * kMiB);
  EXPECT_EQ(Fake::resident_bytes(huge, 5 * kMiB), 5 * kMiB);
  EXPECT_TRUE(is_all(huge, 5 * kMiB, 0));
  const std::size_t before = system.populated_bytes();
  fill_slabs(domain, 1, 256);
  EXPECT_GT(system.populated_bytes(), before);
}

}  // namespace
}  // namespace allod::test

// Layer 5: memory on its way back to the system, and what happens when there is none.
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "heap_world.hpp"

namespace allod::test {
namespace {

// --- purge ---------------------------------------------------------------------------------------

class HeapPurge : public HeapWorld {
 protected:
  void leave_dirty(Domain& domain, std::size_t bytes) {
    pass_time(domain, 1);  // what that needs is not taken from what is left
    void* const block = allocate(domain, bytes);
    std::memset(block, 1, bytes);
    release(domain, block);
  }
};

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

// --- slabs at rest ------------------------------------------------------------------------------

class HeapRest : public HeapPurge {
 protected:
  static constexpr std::size_t kSize = kKiB;

  void SetUp() override {
    HeapPurge::SetUp();
    heap.options().purge_delay_ms = 500;
    heap.options().magazine_bytes = kSize;  // few free blocks wait in magazines
  }
  // Blocks full of their number; of each eight in a row, one stays.
  void fill_and_thin_out(Domain& domain, std::size_t count = 8192) {
    blocks_ = allocate_many(domain, count, kSize);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      std::memset(blocks_[i], static_cast<int>(i % 251), kSize);
    }
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (!stays(i)) release(domain, blocks_[i]);
    }
    pass_time(domain, 256);
  }
  void expect_contents() const {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (!stays(i)) continue;
      ASSERT_TRUE(is_all(blocks_[i], kSize, static_cast<unsigned char>(i % 251)));
    }
  }
  [[nodiscard]] std::size_t resident() const {
    std::size_t bytes = 0;
    std::set<Address> slices;
    for (void* const block : blocks_) slices.insert(align_down(address_of(block), kSliceBytes));
    for (const Address slice : slices) {
      bytes += Fake::resident_bytes(reinterpret_cast<void*>(slice), kSliceBytes);
    }
    return bytes;
  }

 private:
  static bool stays(std::size_t i) { return i % 64 < 8; }

  std::vector<void*> blocks_;
};

TEST_F(HeapRest, gives_back_the_free_pages_of_slabs_that_are_still_in_use) {
  Domain& domain = attach();
  fill_and_thin_out(domain);
  ASSERT_TRUE(system.helper_waits()) << "much became free within slabs";
  const std::size_t before = resident();
  const std::uint64_t start = system.now_ms();
  system.run_helper();
  EXPECT_LE(system.now_ms(), start + 1000);
  EXPECT_LT(resident(), before / 4);
  EXPECT_GE(resident(), kMiB);
  expect_contents();
  // The pages can be used again.
  for (void* const block : allocate_many(domain, 8192, kSize)) std::memset(block, 255, kSize);
  expect_contents();
}

// More than a pause or a few of them have time for.
TEST_F(HeapRest, gives_all_back_of_many_slabs_in_two_rounds) {
  heap.options().region_bytes = 64 * kMiB;
  Domain& domain = attach();
  fill_and_thin_out(domain, 160 * kKiB);
  const std::size_t before = resident();
  ASSERT_GE(before, 150 * kMiB);
  ASSERT_TRUE(system.helper_waits());
  const std::uint64_t start = system.now_ms();
  system.run_helper();
  EXPECT_LE(system.now_ms(), start + 1000);
  EXPECT_LT(resident(), before / 4);
  expect_contents();
}

TEST_F(HeapRest, gives_them_back_at_once_when_asked) {
  Domain& domain = attach();
  fill_and_thin_out(domain);
  const std::size_t before = resident();
  const std::size_t purged = system.purged_bytes();
  const std::size_t bytes = heap.purge_slabs();
  EXPECT_EQ(bytes, system.purged_bytes() - purged);
  EXPECT_LT(resident(), before / 4);
  EXPECT_EQ(heap.purge_slabs(), 0U) << "nothing is left";
  expect_contents();
}

TEST_F(HeapRest, gives_nothing_back_when_asked_while_somebody_is_in_a_slow_path_for_long) {
  Domain& domain = attach();
  Domain& busy = attach();
  fill_and_thin_out(domain);
  const std::size_t before = resident();
  busy.in_slow_path = true;
  EXPECT_EQ(heap.purge_slabs(), 0U);
  EXPECT_EQ(resident(), before);
  busy.in_slow_path = false;
}

TEST_F(HeapRest, tries_again_when_somebody_is_in_a_slow_path) {
  Domain& domain = attach();
  Domain& busy = attach();
  fill_and_thin_out(domain);
  const std::size_t before = resident();
  const std::uint64_t start = system.now_ms();
  // From each second wait on there is somebody, until the next.
  std::uint64_t waits = 0;
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::wait) busy.in_slow_path = ++waits % 2 == 0;
  });
  system.run_helper();
  busy.in_slow_path = false;
  EXPECT_LE(system.now_ms(), start + 1000);
  EXPECT_LT(resident(), before / 4);
}

TEST_F(HeapRest, leaves_slabs_alone_that_change_all_the_time) {
  Domain& domain = attach();
  fill_and_thin_out(domain);
  const std::size_t before = resident();
  // A block of each slab is taken between one look and the next.
  std::uint64_t waits = 0;
  std::size_t then = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits > 6) return;
    then = resident();
    for (heap::Bin& bin : domain.bins()) {
      for_each_slab(bin, [](Slab& slab) {
        bool virgin;
        if (!slab.is_full()) static_cast<void>(slab.take_one(&virgin));
      });
    }
  });
  system.run_helper();
  EXPECT_GT(waits, 6U);
  EXPECT_EQ(then, before);
  EXPECT_LT(resident(), before) << "then they are at rest";
  expect_contents();
}

TEST_F(HeapRest, waits_for_nobody_who_is_in_a_slow_path) {
  Domain& domain = attach();
  Domain& busy = attach();
  fill_and_thin_out(domain);
  const std::size_t before = resident();
  busy.in_slow_path = true;
  std::uint64_t waits = 0;
  std::size_t then = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits != 6) return;
    then = resident();
    busy.in_slow_path = false;
  });
  system.run_helper();
  EXPECT_EQ(then, before);
  EXPECT_LT(resident(), before / 4);
  expect_contents();
}

TEST_F(HeapRest, ends_when_the_system_takes_nothing_back) {
  Domain& domain = attach();
  fill_and_thin_out(domain);
  const std::size_t before = resident();
  system.set_purge(Fake::Purge::refuses);
  system.run_helper();
  EXPECT_EQ(resident(), before);
  EXPECT_LT(system.count(Fake::Call::purge), 10U);
}

// --- blocks that others have freed, of owners that do not look -----------------------------------

class HeapRemoteRest : public HeapRest {
 protected:
  static constexpr std::size_t kSlabs = 300;  // more than one pause looks at

  void SetUp() override {
    HeapRest::SetUp();
    heap.options().region_bytes = 64 * kMiB;
  }
  std::vector<void*> fill(Domain& domain) {
    const std::vector<void*> blocks = allocate_many(domain, kSlabs * 64, kSize);
    for (void* const block : blocks) std::memset(block, 1, kSize);
    return blocks;
  }
  // What 256 batches that are not sent yet may hold back, and the last slabs.
  static constexpr std::size_t kLittle = 2 * kMiB;
};

TEST_F(HeapRemoteRest, come_home_to_a_thread_that_sleeps) {
  Domain& owner = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = fill(owner);
  release_all(other, blocks);
  ASSERT_GE(used(), kSlabs * kSliceBytes);
  ASSERT_TRUE(system.helper_waits()) << "much was sent";
  const std::uint64_t start = system.now_ms();
  system.run_helper();
  EXPECT_LE(used(), kLittle);
  EXPECT_LE(heap.space().dirty_bytes(), kMiB);
  EXPECT_LE(system.now_ms(), start + 2000);
  EXPECT_GE(owner.counters.collected.value(), (kSlabs - 32) * 64);
}

TEST_F(HeapRemoteRest, come_home_to_a_thread_that_has_ended) {
  Domain& owner = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = fill(owner);
  heap.detach(owner);
  release_all(other, blocks);
  ASSERT_TRUE(system.helper_waits());
  system.run_helper();
  EXPECT_LE(used(), kLittle);
  EXPECT_LE(heap.space().dirty_bytes(), kMiB);
}

TEST_F(HeapRemoteRest, are_left_to_a_thread_that_goes_on) {
  Domain& owner = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = fill(owner);
  release_all(other, blocks);
  std::uint64_t waits = 0;
  std::uint64_t collected = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits > 6) return;
    ++owner.slow_operations;
    collected = owner.counters.collected.value();
  });
  system.run_helper();
  EXPECT_GT(waits, 6U);
  EXPECT_EQ(collected, 0U);
  EXPECT_LE(used(), kLittle) << "then it sleeps";
}

TEST_F(HeapRemoteRest, wait_for_nobody_who_is_in_a_slow_path) {
  Domain& owner = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = fill(owner);
  release_all(other, blocks);
  owner.in_slow_path = true;
  std::uint64_t waits = 0;
  std::uint64_t collected = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits != 6) return;
    collected = owner.counters.collected.value();
    owner.in_slow_path = false;
  });
  system.run_helper();
  EXPECT_EQ(collected, 0U);
  EXPECT_LE(used(), kLittle);
}

TEST_F(HeapRemoteRest, are_looked_for_again_when_they_come_during_the_last_look) {
  Domain& owner = attach();
  Domain& other = attach();
  Domain& thin = attach();
  const std::vector<void*> blocks = fill(owner);
  fill_and_thin_out(thin);
  ASSERT_TRUE(system.helper_waits());
  bool is_first = true;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::purge || !std::exchange(is_first, false)) return;
    release_all(other, blocks);
  });
  system.run_helper();
  ASSERT_FALSE(is_first);
  EXPECT_LE(used(), 8 * kMiB + kLittle) << "what was thinned out is all there is";
  expect_contents();
}

// The helper, and who holds everybody up, cannot report.
TEST_F(HeapRemoteRest, stay_marked_for_the_owner_when_they_were_freed_twice) {
  Domain& owner = attach();
  Domain& other = attach();
  void* const twice = allocate_many(owner, 2, kSize)[0];
  Slab& slab = program.slab_of(twice);
  for (int i = 0; i < 2; ++i) {
    release(other, twice);
    heap.trim(other);
    heap.collect_for_others();
    EXPECT_EQ(slab.remote_count(), i == 0 ? 0U : 1U);
  }
  EXPECT_TRUE(slab.is_announced());
  heap.trim(owner);
  expect_one(MisuseKind::double_free, twice);
}

TEST_F(HeapRemoteRest, stay_marked_for_who_looks_next_when_they_were_freed_twice) {
  Domain& owner = attach();
  Domain& other = attach();
  void* const twice = allocate_many(owner, 2, 16 * kKiB)[0];
  Slab& slab = program.slab_of(twice);
  heap.detach(owner);
  release(other, twice);
  heap.trim(other);
  EXPECT_EQ(slab.remote_count(), 0U);
  release(other, twice);
  leave_dirty(other, 8 * kMiB);
  system.run_helper();
  EXPECT_EQ(slab.remote_count(), 1U);
  heap.trim(other);
  expect_one(MisuseKind::double_free, twice);
}

TEST_F(HeapRemoteRest, are_found_by_who_wants_all_that_is_free) {
  Domain& asleep = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = fill(asleep);
  release_all(other, blocks);
  heap.trim(other);
  ASSERT_GE(used(), kSlabs * kSliceBytes);
  heap.collect_for_others();
  EXPECT_LE(used(), kLittle);
  system.run_helper();
}

// --- no memory
// ------------------------------------------------------------------------------------

class HeapWithoutMemory : public testing::TestWithParam<std::size_t> {
 protected:
  using Domain = FakeProgram::Domain;

  static std::unique_ptr<FakeProgram> make(std::size_t page_size) {
    auto program = std::make_unique<FakeProgram>();
    program->system().set_page_size(page_size);
    return program;
  }
  static heap::HeapOptions options() {
    heap::HeapOptions options;
    options.region_bytes = kMiB;
    options.purge_delay_ms = 0;
    return options;
  }
  // A few bytes of a block, the first and the last among them, say how large it is.
  static void mark(void* block, std::size_t size) {
    auto* const byte = static_cast<unsigned char*>(block);
    for (const std::size_t at : {std::size_t{0}, size / 3, size - 1})
      byte[at] = static_cast<unsigned char>(size % 251);
  }
  static bool is_marked(const unsigned char* block, std::size_t size) {
    return block[0] == size % 251 && block[size / 3] == size % 251 && block[size - 1] == size % 251;
  }
  // Two threads do a bit of everything. Returns whether everything was served; whatever was not,
  // nothing may be lost or torn.
  static bool play_scenario(FakeProgram& program) {
    auto& heap = program.heap();
    bool served = true;
    std::vector<std::pair<unsigned char*, std::size_t>> blocks;
    const auto note = [&](void* block, std::size_t size) {
      served &= block != nullptr;
      if (block == nullptr) return;
      mark(block, size);
      blocks.emplace_back(static_cast<unsigned char*>(block), size);
    };
    const auto free_some = [&](Domain* domain, std::size_t stride) {
      std::vector<std::pair<unsigned char*, std::size_t>> kept;
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        const auto& [block, size] = blocks[i];
        EXPECT_TRUE(is_marked(block, size));
        if (i % stride != 0) {
          kept.push_back(blocks[i]);
        } else if (domain == nullptr) {
          heap.release_detached(block);
        } else {
          program.release(*domain, block);
        }
      }
      blocks = kept;
    };
    Domain* const one = heap.attach();
    Domain* const two = heap.attach();
    served &= one != nullptr && two != nullptr;
    for (Domain* const domain : {one, two}) {
      if (domain == nullptr) continue;
      for (const std::size_t size : {8U, 64U, 1000U, 5000U, 40'000U, 300'000U, 3'000'000U}) {
        for (int i = 0; i < 12; ++i) note(program.allocate(*domain, size), size);
      }
      note(heap.allocate_aligned(*domain, 100, 4096, nullptr), 100);
      note(heap.allocate_aligned(*domain, kMiB, 4 * kMiB, nullptr), kMiB);
    }
    heap.check_invariants();
    free_some(two, 3);
    free_some(one, 2);
    heap.check_invariants();
    for (auto& [block, size] : blocks) {
      if (size < 1000 || one == nullptr) continue;
      const std::size_t larger = size + size / 3;
      void* const moved = program.resize(*one, block, larger);
      if (moved == nullptr) continue;
      EXPECT_GE(heap.usable_size(moved), larger);
      block = static_cast<unsigned char*>(moved);
      size = larger;
      mark(block, size);
    }
    if (one != nullptr) {
      heap.trim(*one);
      heap.detach(*one);
    }
    heap.check_invariants();
    if (two != nullptr) {
      for (int i = 0; i < 300; ++i) note(program.allocate(*two, 500), 500);
    }
    free_some(two, 1);
    if (two != nullptr) heap.detach(*two);
    heap.check_invariants();
    return served;
  }
  // After every failure everything can be had again, and nothing has stayed behind.
  static void expect_recovery(FakeProgram& program, std::uint64_t after) {
    auto& heap = program.heap();
    program.system().succeed();
    EXPECT_TRUE(play_scenario(program)) << "after failure " << after;
    Domain* const domain = heap.attach();
    ASSERT_NE(domain, nullptr);
    heap.trim(*domain);
    heap.detach(*domain);
    heap.check_invariants();
    EXPECT_TRUE(RecordingReporter::reports.empty());
  }
};
INSTANTIATE_TEST_SUITE_P(pages, HeapWithoutMemory, testing::Values(4096, 16384, 65536));

TEST_P(HeapWithoutMemory, serves_what_it_can_whichever_call_fails) {
  for (std::uint64_t nth = 1;; nth += 1 + nth / 20) {
    ASSERT_LT(nth, 100'000U);
    const auto program = make(GetParam());
    program->system().fail_nth_call(nth);
    program->start(options());
    play_scenario(*program);
    if (program->system().injected_failures() == 0) break;
    if (program->heap().attach() == nullptr) continue;  // it did not even start
    expect_recovery(*program, nth);
  }
}

TEST_P(HeapWithoutMemory, refuses_cleanly_when_everything_fails_from_some_call_on) {
  std::uint64_t refusals = 0;
  for (std::uint64_t nth = 1;; nth += 1 + nth / 20) {
    ASSERT_LT(nth, 100'000U);
    const auto program = make(GetParam());
    program->system().fail_from_call(nth);
    program->start(options());
    refusals += play_scenario(*program) ? 0 : 1;
    if (program->system().injected_failures() == 0) break;
    program->system().succeed();
    if (program->heap().attach() == nullptr) continue;
    expect_recovery(*program, nth);
  }
  EXPECT_GT(refusals, 10U) << "failures reach the caller";
}

TEST_P(HeapWithoutMemory, refuses_cleanly_when_memory_ends) {
  for (std::size_t bytes = 0; bytes < 24 * kMiB; bytes += 11 * kSliceBytes) {
    const auto program = make(GetParam());
    program->start(options());
    program->system().set_memory_limit(bytes + 1);
    play_scenario(*program);
    program->system().set_memory_limit(0);
    expect_recovery(*program, bytes);
  }
}

TEST_P(HeapWithoutMemory, lives_within_a_small_address_space) {
  for (std::size_t limit = 2 * kMiB; limit < 48 * kMiB; limit += 3 * kMiB) {
    const auto program = make(GetParam());
    program->system().set_address_space_limit(limit);
    program->start(options());
    play_scenario(*program);
    EXPECT_LE(program->system().mapped_bytes(), limit);
    EXPECT_TRUE(RecordingReporter::reports.empty());
  }
}

TEST_P(HeapWithoutMemory, never_starts_without_addresses_and_says_so) {
  const auto program = make(GetParam());
  program->system().fail_from_call(1);
  program->start(options());
  EXPECT_EQ(program->heap().attach(), nullptr);
  int on_stack = 0;
  program->heap().release_detached(&on_stack);
  EXPECT_EQ(program->heap().usable_size(&on_stack), 0U);
}

}  // namespace
}  // namespace allod::test

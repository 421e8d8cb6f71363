// Layer 5: free pages in slabs that rest, and blocks that wait for an owner who does not look.
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "heap_purge.hpp"

namespace allod::test {
namespace {

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
    fill_up(domain, count);
    thin_out(domain);
  }
  void fill_up(Domain& domain, std::size_t count = 8192) {
    blocks_ = allocate_many(domain, count, kSize);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      std::memset(blocks_[i], static_cast<int>(i % 251), kSize);
    }
  }
  template <class Stays = bool (*)(std::size_t)>
  void thin_out(Domain& domain, Stays&& does_stay = &stays) {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (!does_stay(i)) release(domain, blocks_[i]);
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

// In each page, one block stays. The other three are handed out before blocks on absent pages, also
// those of other slabs.
TEST_F(HeapRest, hands_out_blocks_on_present_pages_first) {
  Domain& domain = attach();
  fill_up(domain);
  thin_out(domain, [](std::size_t i) { return i % 16 == 0; });
  ASSERT_TRUE(system.helper_waits());
  system.run_helper();
  const std::size_t before = resident();
  EXPECT_LE(before, 3 * kMiB);
  heap.options().magazine_bytes = 16 * kSize;
  for (void* const block : allocate_many(domain, 1024, kSize)) std::memset(block, 1, kSize);
  EXPECT_EQ(resident(), before);
  for (void* const block : allocate_many(domain, 2048, kSize)) std::memset(block, 1, kSize);
  EXPECT_GT(resident(), before) << "and then those";
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

// The first part of the heap is not yet at rest when the walk begins. The last part, where its last
// round begins, is full.
TEST_F(HeapRest, knows_at_the_end_of_several_rounds_what_was_moving_in_the_first) {
  system.set_placement(Fake::Placement::ascending);
  Domain& domain = attach();
  fill_up(domain);
  allocate_many(domain, 64 * kKiB, 2 * kSize);
  thin_out(domain);
  heap.give_up(domain);
  ASSERT_LT(heap.space().dirty_bytes(), kMiB) << "nothing else keeps the helper";
  ASSERT_TRUE(system.helper_waits());
  const std::size_t before = resident();
  // A round ends after two pauses.
  std::uint64_t waits = 0;
  std::uint64_t rounds = 0;
  std::uint64_t waits_before = 0;
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::wait) ++waits;
    if (call != Fake::Call::barrier) return;
    system.advance_clock(60);
    rounds += std::exchange(waits_before, waits) != waits ? 1 : 0;
  });
  system.run_helper();
  EXPECT_LT(resident(), before / 4);
  EXPECT_GE(rounds, 4U) << "two walks of several rounds";
  expect_contents();
}

// Looks when the helper has slept once: at rest is what has not changed between two of its looks.
TEST_F(HeapRest, does_not_wait_for_rest_when_the_program_grows_elsewhere) {
  for (const bool grows : {false, true}) {
    Domain& domain = attach();
    fill_and_thin_out(domain, 32 * kKiB);
    ASSERT_TRUE(system.helper_waits());
    const std::size_t before = resident();
    if (grows) {
      allocate_many(domain, 2048, 5 * kSize);
      pass_time(domain, 256);
    }
    std::uint64_t waits = 0;
    std::size_t then = 0;
    system.set_observer([&](Fake::Call call) {
      if (call == Fake::Call::wait && ++waits == 2) then = resident();
    });
    system.run_helper();
    if (waits < 2) then = resident();
    EXPECT_EQ(then < before / 4, grows);
    EXPECT_EQ(then == before, !grows);
    expect_contents();
  }
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

// The gate lets the thread that closed it pass, and so would let its handler.
TEST_F(HeapRest, lets_no_signal_handler_run_in_a_pause) {
  Domain& domain = attach();
  Domain& busy = attach();
  fill_and_thin_out(domain);
  std::size_t purges = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::purge) return;
    ++purges;
    EXPECT_EQ(Fake::blocked_signals(), ~std::uint64_t{0});
  });
  EXPECT_GT(heap.purge_slabs(), 0U);
  EXPECT_GT(purges, 0U);
  EXPECT_EQ(Fake::blocked_signals(), 0U);
  busy.in_slow_path = true;
  EXPECT_EQ(heap.purge_slabs(), 0U);
  busy.in_slow_path = false;
  EXPECT_EQ(Fake::blocked_signals(), 0U) << "no pause came of it";
  heap.give_up_kept();
  EXPECT_EQ(Fake::blocked_signals(), 0U);
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

// The walk reads slabs that would go meanwhile.
TEST_F(HeapRemoteRest, of_ended_threads_stay_while_somebody_else_walks_through_slabs) {
  Domain& owner = attach();
  Domain& other = attach();
  Domain& thin = attach();
  const std::vector<void*> blocks = fill(owner);
  fill_and_thin_out(thin);
  heap.detach(owner);
  release_all(other, blocks);
  ASSERT_TRUE(system.helper_waits());
  const std::size_t before = used();
  ASSERT_GE(before, kSlabs * kSliceBytes / 2);
  bool is_first = true;
  std::uint64_t waits = 0;
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::wait && ++waits == 1000) {
      heap.send_helper_away(FakeProgram::Heap::Wait::no);
    }
    if (call != Fake::Call::purge || !std::exchange(is_first, false)) return;
    system.run_helper();
    EXPECT_EQ(used(), before);
  });
  EXPECT_GT(heap.purge_slabs(), 0U);
  EXPECT_GE(waits, 1000U);
  heap.let_helper_come();
}

TEST_F(HeapRemoteRest, are_found_though_somebody_is_in_a_slow_path_for_long) {
  Domain& asleep = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = fill(asleep);
  release_all(other, blocks);
  heap.trim(other);
  other.in_slow_path = true;
  std::uint64_t tries = 0;
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::barrier && ++tries == 200) other.in_slow_path = false;
  });
  heap.collect_for_others();
  EXPECT_LE(used(), kLittle);
  system.run_helper();
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

}  // namespace
}  // namespace allod::test

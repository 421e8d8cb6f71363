// Layer 3: memory that is given back to the system.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "space_world.hpp"

namespace allod::test {
namespace {

class SpacePurge : public SpaceOfSpans {
 protected:
  void SetUp() override { start(); }
  // A span that has been written to and will merge with no other. All are to be made before the
  // first is freed.
  Span* touched(std::uint32_t slices) {
    Span* const span = allocate(slices);
    static_cast<void>(allocate(1));
    fill(span, 1);
    return span;
  }
  static std::size_t resident(const Span* span) {
    return Fake::resident_bytes(memory(span), span->size.bytes());
  }
  static constexpr std::size_t kEverything = ~std::size_t{0};
};

TEST_F(SpacePurge, gives_back_what_has_been_free_for_the_delay) {
  Span* const old = touched(4);
  Span* const young = touched(6);
  space.free(old);
  system.advance_clock(60);
  space.free(young);
  system.advance_clock(60);
  EXPECT_EQ(space.next_purge_in(100), 0U);
  EXPECT_EQ(space.purge(100, kEverything, kEverything), Slices{4}.bytes());
  EXPECT_EQ(resident(old), 0U);
  EXPECT_EQ(resident(young), Slices{6}.bytes());
  EXPECT_EQ(space.dirty_bytes(), Slices{6}.bytes());
  EXPECT_EQ(space.next_purge_in(100), 40U);
  EXPECT_EQ(space.purge(100, kEverything, kEverything), 0U);
  system.advance_clock(40);
  EXPECT_EQ(space.purge(100, kEverything, kEverything), Slices{6}.bytes());
  EXPECT_EQ(space.next_purge_in(100), ~0U);
}

TEST_F(SpacePurge, having_asked_in_vain_misses_nothing_later) {
  const auto ask = [&](std::uint32_t delay) {
    return space.purge(delay, kEverything, kEverything);
  };
  Span* const first = touched(4);
  Span* const second = touched(6);
  Span* const third = touched(3);
  EXPECT_EQ(ask(100), 0U) << "nothing is free";
  space.free(first);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(ask(100), 0U);
    system.advance_clock(10);
  }
  space.free(second);
  EXPECT_EQ(ask(100), Slices{4}.bytes()) << "at once when it is due";
  EXPECT_EQ(ask(100), 0U);
  system.advance_clock(10);
  EXPECT_EQ(ask(10), Slices{6}.bytes()) << "by a delay that is shorter now";
  EXPECT_EQ(ask(100), 0U);
  space.free(third);
  EXPECT_EQ(ask(100), 0U);
  EXPECT_EQ(space.purge(100, 0, kEverything), 0U) << "what was freed last";
  space.free(touched(1));
  EXPECT_GT(space.purge(100, 0, kEverything), 0U) << "beyond the budget, and not due";
}

TEST_F(SpacePurge, gives_back_the_oldest_beyond_the_budget) {
  Span* const old = touched(4);
  Span* const young = touched(4);
  space.free(old);
  system.advance_clock(1);
  space.free(young);
  EXPECT_EQ(space.purge(1000, Slices{4}.bytes(), kEverything), Slices{4}.bytes());
  EXPECT_EQ(resident(old), 0U);
  EXPECT_EQ(resident(young), Slices{4}.bytes());
}

TEST_F(SpacePurge, gives_back_no_more_than_the_limit_in_one_step) {
  space.free(touched(10));
  std::size_t given = 0;
  for (std::size_t left = 10; left > 0;) {
    const std::size_t step = space.purge(0, 0, Slices{3}.bytes());
    EXPECT_EQ(step, Slices{left < 3 ? static_cast<std::uint32_t>(left) : 3U}.bytes());
    space.check_invariants();
    given += step;
    left -= step >> kSliceShift;
  }
  EXPECT_EQ(given, Slices{10}.bytes());
  EXPECT_EQ(free_spans(), Sizes{10}) << "the parts are merged again";
  EXPECT_EQ(space.purge(0, 0, kEverything), 0U);
}

TEST_F(SpacePurge, leaves_memory_that_reads_as_zero_and_is_known_to) {
  Span* const freed = touched(4);
  const Address base = freed->base;
  space.free(freed);
  space.purge(0, 0, kEverything);
  Span* const span = allocate(4);
  EXPECT_EQ(span->base, base);
  EXPECT_TRUE(span->zero);
  EXPECT_TRUE(is_all(span, 0));
}

TEST_F(SpacePurge, vouches_for_zeros_only_if_the_system_does) {
  system.set_purge(Fake::Purge::scrambles);
  Span* const freed = touched(4);
  const Address base = freed->base;
  space.free(freed);
  space.purge(0, 0, Slices{4}.bytes());
  Span* const span = allocate(4);
  EXPECT_EQ(span->base, base);
  EXPECT_FALSE(span->zero);
}

TEST_F(SpacePurge, ends_when_the_system_keeps_everything) {
  Span* const one = touched(4);
  Span* const two = touched(2);
  space.free(one);
  space.free(two);
  system.set_purge(Fake::Purge::refuses);
  // If it does not end by itself, this ends it.
  system.set_observer([&](Fake::Call) {
    if (system.count(Fake::Call::purge) > 1000) system.set_purge(Fake::Purge::zeroes);
  });
  EXPECT_EQ(space.purge(0, 0, kEverything), 0U) << "nothing was given back";
  EXPECT_LE(system.count(Fake::Call::purge), 2U);
  EXPECT_EQ(space.counters().purged, 0U);
  EXPECT_EQ(space.dirty_bytes(), Slices{6}.bytes());
}

TEST_F(SpacePurge, gets_to_every_span_even_if_one_cannot_be_given_back) {
  Span* const one = touched(2);
  Span* const two = touched(4);
  space.free(one);
  system.advance_clock(1);
  space.free(two);
  system.fail_call(Fake::Call::purge, 1);
  std::size_t given = 0;
  for (int i = 0; i < 3; ++i) given += space.purge(0, 0, kEverything);
  EXPECT_EQ(given, Slices{6}.bytes());
  EXPECT_EQ(space.dirty_bytes(), 0U);
}

TEST_F(SpacePurge, does_not_merge_what_has_memory_with_what_has_none) {
  Span* const left = allocate(4);
  Span* const right = allocate(4);
  static_cast<void>(allocate(1));
  space.free(left);
  space.purge(0, 0, kEverything);
  space.free(right);
  EXPECT_EQ(free_spans(), (Sizes{4, 4}));
  space.check_invariants();
  space.purge(0, 0, kEverything);
  EXPECT_EQ(free_spans(), Sizes{8});
}

TEST_F(SpacePurge, lets_others_work_while_the_system_is_at_it) {
  Span* const left = allocate(4);
  Span* const middle = allocate(4);
  Span* const right = allocate(4);
  static_cast<void>(allocate(1));
  space.free(middle);
  bool interrupted = false;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::purge || interrupted) return;
    interrupted = true;
    space.check_invariants();
    space.free(left);
    space.free(right);
    EXPECT_EQ(allocate(12)->size, Slices{12}) << "not from a span on its way";
    space.check_invariants();
    EXPECT_FALSE(space.grow(left, {5}));
  });
  EXPECT_EQ(space.purge(0, 0, Slices{4}.bytes()), Slices{4}.bytes());
  EXPECT_TRUE(interrupted);
  space.check_invariants();
}

// Two threads, one at a time: the system is slow with what the other gives back.
TEST_F(SpacePurge, waits_for_what_is_being_given_back_before_it_has_no_memory) {
  if (!kAddressesAbound) GTEST_SKIP() << "takes more addresses than the fake has";
  const Slices large{20000};
  Span* const before = space.allocate(large, {1});
  ASSERT_NE(before, nullptr);
  space.free(before);
  std::thread other;
  std::promise<void> may_go_on;
  std::promise<void> is_purging;
  bool has_begun = false;
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::purge && !has_begun) {
      has_begun = true;
      is_purging.set_value();
      may_go_on.get_future().wait();
    } else if (call == Fake::Call::yield && other.joinable()) {
      may_go_on.set_value();
      other.join();
    }
  });
  other = std::thread{[&] { space.purge(0, 0, large.bytes()); }};
  is_purging.get_future().wait();
  system.set_address_space_limit(system.mapped_bytes() + Slices{1000}.bytes());
  EXPECT_NE(space.allocate(large + Slices{1}, {1}), nullptr);
  EXPECT_FALSE(other.joinable()) << "it has waited";
  if (other.joinable()) {
    may_go_on.set_value();
    other.join();
  }
  space.check_invariants();
}

TEST_F(SpacePurge, gives_the_addresses_back_of_a_block_that_was_a_region_of_its_own) {
  Span* const span = allocate(300);
  const Address base = span->base;
  const std::size_t mapped = system.mapped_bytes();
  space.free(span);
  EXPECT_EQ(space.counters().regions, 1U);
  space.purge(0, 0, kEverything);
  EXPECT_EQ(space.counters().regions, 0U);
  EXPECT_EQ(system.mapped_bytes(), mapped - Slices{300}.bytes());
  EXPECT_EQ(space.map().tag_of(base), space::kForeignTag);
  EXPECT_EQ(space.map().span_of(base), nullptr);
  EXPECT_NE(allocate(300), nullptr);
}

TEST_F(SpacePurge, is_undone_in_the_child_of_a_fork) {
  Span* const freed = touched(4);
  const Address base = freed->base;
  space.free(freed);
  // What a child does that was forked while the system is giving the memory back. It never comes
  // back from here, as a child never comes back into its parent's call.
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::purge) return;
    {
      LockGuard guard{space.lock()};
      space.repair_after_fork();
    }
    space.check_invariants();
    const Span* const span = allocate(4);
    const bool right = span != nullptr && span->base == base && !span->zero;
    std::_Exit(right ? 0 : 1);
  });
  EXPECT_EXIT(space.purge(0, 0, kEverything), testing::ExitedWithCode(0), "");
  system.set_observer({});
}

}  // namespace
}  // namespace allod::test

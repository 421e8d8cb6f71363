// Layer 3: a system that refuses.
#include <gtest/gtest.h>

#include "space_world.hpp"

namespace allod::test {
namespace {

TEST_F(SpaceOfSpans, fails_cleanly_without_any_addresses) {
  system.fail_from_call(1);
  EXPECT_FALSE(space.start(kRegionBytes, kHugeFrom));
  system.succeed();
}

TEST_F(SpaceOfSpans, takes_a_smaller_region_when_addresses_are_scarce) {
  system.set_address_space_limit(8 * kMiB);
  ASSERT_TRUE(space.start(64 * kMiB, kHugeFrom));
  Span* const span = allocate(4);
  ASSERT_NE(span, nullptr);
  EXPECT_LE(space.counters().reserved, 8 * kMiB);
  fill(span, 1);
}

TEST_F(SpaceOfSpans, hands_out_all_that_the_limit_allows_and_then_says_no) {
  system.set_address_space_limit(32 * kMiB);
  ASSERT_TRUE(space.start(8 * kMiB, kHugeFrom));
  std::vector<Span*> spans;
  while (Span* const span = allocate(16)) spans.push_back(span);
  EXPECT_GE(spans.size(), 24U) << "of 32";
  EXPECT_GT(space.counters().refused, 0U);
  space.check_invariants();
  for (Span* const span : spans) space.free(span);
  space.check_invariants();
  for (std::size_t i = 0; i < spans.size(); ++i) EXPECT_NE(allocate(16), nullptr);
}

TEST_F(SpaceOfSpans, commits_only_what_it_needs_when_memory_is_scarce) {
  ASSERT_TRUE(space.start(kRegionBytes, kHugeFrom));
  ASSERT_NE(allocate(1), nullptr);
  system.set_memory_limit(system.usable_bytes() + Slices{40}.bytes());
  std::uint32_t got = 0;
  while (allocate(1) != nullptr) ++got;
  EXPECT_GE(got, 40U + 31U);
  system.set_memory_limit(0);
  EXPECT_NE(allocate(1), nullptr);
}

TEST_F(SpaceOfSpans, refuses_a_region_outside_of_the_maps_window) {
  if (!kAddressesAbound) GTEST_SKIP() << "the map has no window";
  system.set_address_space_limit(std::size_t{256} << 20);
  ASSERT_TRUE(space.start(kRegionBytes, kHugeFrom));
  static_cast<void>(allocate(1));
  const std::size_t before = system.mapped_bytes();
  system.set_placement(Fake::Placement::ascending);
  system.fail_call(Fake::Call::reserve_at, 1);
  Span* const span = allocate(300);
  EXPECT_EQ(span, nullptr);
  EXPECT_LE(system.mapped_bytes(), before + kMiB);
}

TEST_F(SpaceOfSpans, refuses_what_is_larger_than_all_addresses) {
  start();
  constexpr std::uint32_t kMost = kAddressesAbound ? 1U << 31 : 1U << 15;
  EXPECT_EQ(allocate(kMost), nullptr);
  EXPECT_EQ(allocate(kMost - 1), nullptr);
  EXPECT_EQ(allocate(1, kMost), nullptr);
  EXPECT_EQ(allocate(kMost - 1, kMost / 2), nullptr);
}

// One of everything. Returns whether every request was served.
bool play_scenario(FakeSpace& space) {
  bool served = true;
  std::vector<Span*> spans;
  const auto note = [&](Span* span) {
    if (span == nullptr) {
      served = false;
      return;
    }
    space.map().set_tags(span->base, span->size, space::kHugeTag);
    spans.push_back(span);
  };
  const auto free_at = [&](std::size_t index) {
    if (index >= spans.size()) return;
    space.free(spans[index]);
    spans.erase(spans.begin() + static_cast<std::ptrdiff_t>(index));
  };
  note(space.allocate({3}, {1}));
  note(space.allocate({1}, {1}));
  note(space.allocate_described({2}, space::Filling::sparse, 384));
  note(space.allocate({5}, {8}));
  note(space.allocate({20}, {1}));
  free_at(0);
  note(space.allocate({1}, {1}));
  space.check_invariants();
  note(space.allocate({40}, {1}));
  if (!spans.empty()) {
    Span* const last = spans.back();
    if (space.map().tag_of(last->base) == space::kHugeTag) {
      const Slices larger{last->size.count + 7};
      // Whether there is room for this depends on what else is there.
      if (!space.grow(last, larger)) static_cast<void>(space.remap(last, larger));
      space.map().set_tags(last->base, last->size, space::kHugeTag);
      space.shrink(last, {2});
    }
  }
  space.check_invariants();
  free_at(1);
  served &= space.purge(0, 0, ~std::size_t{0}) > 0;
  note(space.allocate({2}, {4}));
  note(space.allocate_described({1}, space::Filling::dense, 448));
  for (int i = 0; i < 30; ++i) note(space.allocate({1}, {1}));
  space.check_invariants();
  while (!spans.empty()) free_at(spans.size() / 2);
  space.purge(0, 0, ~std::size_t{0});
  return served;
}

class SpaceUnderFailure : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(pages, SpaceUnderFailure, testing::Values(4096, 16384, 65536));

TEST_P(SpaceUnderFailure, stays_whole_whichever_call_fails) {
  std::uint64_t failed_scenarios = 0;
  for (std::uint64_t nth = 1;; ++nth) {
    ASSERT_LT(nth, 1000U);
    auto space = std::make_unique<FakeSpace>();
    Fake& system = space->platform();
    system.set_page_size(GetParam());
    system.fail_nth_call(nth);
    if (!space->start(kMiB, kMiB / 2)) continue;
    const bool served = play_scenario(*space);
    space->check_invariants();
    EXPECT_EQ(space->counters().used, 0U);
    const bool failed = system.injected_failures() != 0;
    failed_scenarios += served ? 0 : 1;
    // Everything can be had again afterwards.
    system.succeed();
    EXPECT_TRUE(play_scenario(*space)) << nth;
    space->check_invariants();
    if (!failed) break;
  }
  EXPECT_GT(failed_scenarios, 0U) << "failures reach the caller";
}

TEST_P(SpaceUnderFailure, stays_whole_when_everything_fails_from_some_call_on) {
  for (std::uint64_t nth = 1;; ++nth) {
    ASSERT_LT(nth, 1000U);
    auto space = std::make_unique<FakeSpace>();
    Fake& system = space->platform();
    system.set_page_size(GetParam());
    system.fail_from_call(nth);
    if (!space->start(kMiB, kMiB / 2)) continue;
    play_scenario(*space);
    space->check_invariants();
    EXPECT_EQ(space->counters().used, 0U);
    const bool failed = system.injected_failures() != 0;
    system.succeed();
    EXPECT_TRUE(play_scenario(*space)) << nth;
    space->check_invariants();
    if (!failed) break;
  }
}

TEST_P(SpaceUnderFailure, stays_whole_when_memory_ends) {
  for (std::size_t bytes = 0; bytes < 8 * kMiB; bytes += 3 * kSliceBytes) {
    auto space = std::make_unique<FakeSpace>();
    Fake& system = space->platform();
    system.set_page_size(GetParam());
    ASSERT_TRUE(space->start(kMiB, kMiB / 2));
    system.fail_after_bytes(bytes);
    play_scenario(*space);
    space->check_invariants();
    EXPECT_EQ(space->counters().used, 0U);
    system.succeed();
    EXPECT_TRUE(play_scenario(*space));
    space->check_invariants();
  }
}

}  // namespace
}  // namespace allod::test

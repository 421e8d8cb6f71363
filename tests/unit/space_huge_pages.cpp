// Layer 3: huge pages, and memory that is present.
#include <gtest/gtest.h>

#include "space_world.hpp"

namespace allod::test {
namespace {

TEST_F(SpaceOfSpans, asks_for_huge_pages_where_spans_are_dense_and_enough_is_used) {
  start();
  while (space.counters().used < kHugeFrom) EXPECT_FALSE(is_huge(allocate_dense(1)));
  for (int i = 0; i < 64; ++i) {
    EXPECT_TRUE(is_huge(allocate_dense(1))) << i;
    EXPECT_FALSE(is_huge(allocate(1))) << i;
  }
}

TEST_F(SpaceOfSpans, makes_whole_huge_pages_usable) {
  start();
  use_enough();
  for (int i = 0; i < 20; ++i) {
    const Address page = align_down(allocate_dense(3)->base, kHugePage);
    for (Address at = page; at < page + kHugePage; at += kSliceBytes) {
      EXPECT_TRUE(system.is_huge_at(at));
    }
  }
}

TEST_F(SpaceOfSpans, asks_for_no_huge_pages_where_large_spans_are) {
  start(64 * kMiB);
  use_enough();
  EXPECT_TRUE(is_huge(allocate_dense(64)));
  EXPECT_FALSE(is_huge(allocate_dense(65)));
}

// Where the system gives them to all memory unasked.
TEST_F(SpaceOfSpans, avoids_huge_pages_while_little_is_used) {
  start();
  EXPECT_TRUE(system.avoids_huge_at(allocate(1)->base));
  while (space.counters().used < kHugeFrom) static_cast<void>(allocate(1));
  const Span* const large = allocate(2 * kRegionBytes / kSliceBytes);
  EXPECT_FALSE(system.avoids_huge_at(large->base)) << "a large block is the system's matter";
}

TEST_F(SpaceOfSpans, never_asks_for_huge_pages_when_told_so) {
  ASSERT_TRUE(space.start(kRegionBytes, ~std::size_t{0}));
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(is_huge(allocate_dense(1)));
}

TEST_F(SpaceOfSpans, takes_the_other_kind_of_memory_when_addresses_are_scarce) {
  start();
  use_enough();
  system.set_address_space_limit(system.mapped_bytes());
  std::uint32_t dense = 0;
  while (allocate_dense(1) != nullptr) ++dense;
  EXPECT_EQ(dense, (kRegionBytes - kHugeFrom) / kSliceBytes);
  EXPECT_EQ(allocate(1), nullptr);
}

TEST_F(SpaceOfSpans, gives_up_a_huge_page_of_which_it_purges_a_part) {
  start();
  const std::vector<Span*> pages = three_huge_pages();
  // From the middle of the first page to that of the third.
  const Address base = pages[0]->base;
  for (std::size_t i = 16; i < 80; ++i) space.free(pages[i]);
  EXPECT_EQ(space.purge(0, 0, ~std::size_t{0}), 64 * kSliceBytes);
  EXPECT_FALSE(system.is_huge_at(base));
  EXPECT_FALSE(system.is_huge_at(base + 3 * kHugePage - kSliceBytes));
  // Fresh memory comes in huge pages as before, from the next one on.
  for (std::size_t i = 0; i < 64; ++i) static_cast<void>(allocate_dense(1));
  const Span* span = allocate_dense(1);
  while (span->base < base + 4 * kHugePage) span = allocate_dense(1);
  EXPECT_TRUE(is_huge(span));
}

TEST_F(SpaceOfSpans, takes_no_mappings_for_holes_in_huge_pages) {
  start();
  use_enough();
  std::vector<Span*> spans(64 * kMiB / kSliceBytes);
  for (Span*& span : spans) span = allocate_dense(1);
  const std::size_t before = system.mappings();
  for (std::size_t i = 0; i < spans.size(); i += 5) space.free(spans[i]);
  EXPECT_GT(space.purge(0, 0, ~std::size_t{0}), 10 * kMiB);
  EXPECT_LE(system.mappings(), before + 1);
}

TEST_F(SpaceOfSpans, has_two_mappings_for_each_kind_however_much_is_used) {
  // With 32 bits, regions lie side by side for 64 MiB, and then elsewhere.
  constexpr std::size_t kOfEach = kAddressesAbound ? 200 : 62;
  start();
  use_enough();
  static_cast<void>(allocate_dense(1));
  const std::size_t before = system.mappings();
  for (std::size_t i = 0; i < kOfEach; ++i) {
    ASSERT_NE(allocate(static_cast<std::uint32_t>(1 + i % 30)), nullptr);
    ASSERT_NE(allocate_dense(static_cast<std::uint32_t>(1 + i % 30)), nullptr);
  }
  ASSERT_GT(space.counters().regions, kAddressesAbound ? 15U : 7U);
  EXPECT_LE(system.mappings(), before + 1) << "chunks of metadata";
}

TEST_F(SpaceOfSpans, needs_few_regions_where_they_lie_apart) {
  if (!kAddressesAbound) GTEST_SKIP() << "takes more addresses than the fake has";
  system.set_gathering(false);
  start();
  for (std::size_t i = 0; i < 1024; ++i) ASSERT_NE(allocate(16), nullptr);
  EXPECT_LE(space.counters().regions, 60U) << "of 4 MiB in 1 GiB there are 256";
}

TEST_F(SpaceOfSpans, has_memory_for_a_process_that_is_short_of_mappings) {
  for (const bool gathers : {true, false}) {
    for (std::size_t left = 0; left < 12; ++left) {
      auto one = std::make_unique<FakeSpace>();
      Fake& world = one->platform();
      world.set_gathering(gathers);
      world.set_guards(true);
      ASSERT_TRUE(one->start(kRegionBytes, kHugeFrom));
      std::vector<Span*> guarded;
      for (int i = 0; i < 8; ++i) {
        guarded.push_back(one->allocate({4}, {1}));
        one->map().set_tags(guarded.back()->base, {4}, space::kHugeTag);
        one->guard(*guarded.back(), end_of(*guarded.back()) - 4096);
      }
      ASSERT_EQ(world.pages_at(memory(guarded[0]) + 4 * kSliceBytes - 1), Fake::Pages::guarded);
      world.set_mapping_limit(world.mappings() + left);
      for (int i = 0; i < 4'000; ++i) {
        const auto filling = i % 2 == 0 ? space::Filling::dense : space::Filling::sparse;
        Span* const span = one->allocate_described({1}, filling, 512);
        ASSERT_NE(span, nullptr) << i << " of 4,000, with " << left << " mappings left";
        one->map().set_tags(span->base, span->size, space::kHugeTag);
      }
      for (Span* const span : guarded) one->free(span);
      one->check_invariants();
    }
  }
}

TEST_F(SpaceOfSpans, leaves_what_is_not_usable_out_of_core_files) {
  start(64 * kMiB);
  const Span* const span = allocate(1);
  const unsigned char* const untouched = memory(span) + 32 * kMiB;
  EXPECT_FALSE(system.is_left_out_of_dumps(memory(span)));
  EXPECT_TRUE(system.is_left_out_of_dumps(untouched));
  for (int i = 0; i < 16; ++i) static_cast<void>(allocate(32));
  EXPECT_EQ(system.pages_at(untouched), Fake::Pages::usable);
  EXPECT_FALSE(system.is_left_out_of_dumps(untouched));
}

TEST_F(SpaceOfSpans, purges_huge_pages_as_a_whole) {
  start();
  const std::vector<Span*> pages = three_huge_pages();
  const Address base = pages[0]->base;
  for (Span* span : pages) space.free(span);
  EXPECT_EQ(space.purge(0, 0, kSliceBytes), kHugePage);
  EXPECT_EQ(space.purge(0, 0, kHugePage + kSliceBytes), 2 * kHugePage);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(system.is_huge_at(base + i * kHugePage));
}

TEST_F(SpaceOfSpans, purging_all_comes_to_an_end_while_others_free) {
  start();
  std::vector<Span*> spans(64);
  for (Span*& span : spans) span = allocate(2);
  const auto free_another = [&] {
    space.free(spans.back());
    spans.pop_back();
  };
  free_another();
  free_another();
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::purge && !spans.empty()) free_another();
  });
  EXPECT_EQ(space.purge_free(), 4 * kSliceBytes);
  EXPECT_GT(spans.size(), 50U);
  system.set_observer(nullptr);
}

TEST_F(SpaceOfSpans, asks_again_for_a_huge_page_that_was_purged_in_parts) {
  start();
  const std::vector<Span*> pages = three_huge_pages();
  const Address base = pages[0]->base;
  for (const std::size_t from : {0U, 48U}) {
    for (std::size_t i = from; i < from + 48; ++i) space.free(pages[i]);
    space.purge(0, 0, ~std::size_t{0});
  }
  ASSERT_FALSE(system.is_huge_at(base + kHugePage));
  for (std::size_t i = 0; i < 96; ++i) {
    const Span* const span = allocate_dense(1);
    EXPECT_TRUE(span->zero);
    EXPECT_EQ(system.huge_bytes_once(), (1 + i / 32) * kHugePage) << i;
    EXPECT_EQ(span->base, base + i * kSliceBytes);
  }
}

// Regions of a large heap grow with it. A huge page that two of them share, or that is committed in
// two steps, would be made of small ones.
TEST_F(SpaceOfSpans, has_whole_huge_pages_in_dense_regions_of_any_size) {
  start();
  use_enough();
  while (space.counters().reserved < 24 * kRegionBytes) {
    const space::Region& region = *allocate_dense(31)->region;
    ASSERT_EQ(region.base % kHugePage, 0U);
    ASSERT_EQ(region.committed.bytes() % kHugePage, 0U) << "of " << region.size.bytes();
  }
}

TEST_F(SpaceOfSpans, keeps_purged_huge_pages_for_dense_spans) {
  start();
  const std::vector<Span*> pages = three_huge_pages();
  const Address base = pages[0]->base;
  for (Span* span : pages) space.free(span);
  space.purge(0, 0, ~std::size_t{0});
  EXPECT_FALSE(is_huge(allocate(1)));
  EXPECT_EQ(allocate_dense(1)->base, base);
}

TEST_F(SpaceOfSpans, takes_memory_that_is_present_before_memory_that_is_not) {
  start();
  Span* const first = allocate(4);
  const Address base = first->base;
  static_cast<void>(allocate(1));
  space.free(first);
  Span* const again = allocate(4);
  EXPECT_EQ(again->base, base);
  EXPECT_FALSE(again->zero) << "it may have been written to";
}

TEST_F(SpaceOfSpans, knows_how_much_more_was_used_lately_in_spans_that_are_not_large) {
  start();
  Span* const large = allocate(65);
  Span* const first = allocate(64);
  Span* const second = allocate(10);
  EXPECT_EQ(space.below_peak(), 0U);
  space.free(large);
  EXPECT_EQ(space.below_peak(), 0U);
  space.free(first);
  EXPECT_EQ(space.below_peak(), Slices{64}.bytes());
  space.shrink(second, {4});
  EXPECT_EQ(space.below_peak(), Slices{70}.bytes());
  static_cast<void>(space.allocate({20}, {1}));
  EXPECT_EQ(space.below_peak(), Slices{50}.bytes());
  space.forget_peak();
  EXPECT_EQ(space.below_peak(), Slices{50}.bytes()) << "it was just before";
  space.forget_peak();
  EXPECT_EQ(space.below_peak(), 0U);
  Span* const grown = allocate(60);
  space.free(allocate(40));
  ASSERT_TRUE(space.grow(grown, {80}));
  EXPECT_EQ(space.below_peak(), Slices{100}.bytes()) << "it has become a large one";
  space.shrink(grown, {30});
  EXPECT_EQ(space.below_peak(), Slices{70}.bytes());
}

}  // namespace
}  // namespace allod::test

// Layer 3: spans, as they are cut, merged, lengthened and moved.
#include <gtest/gtest.h>

#include <algorithm>

#include "space_world.hpp"

namespace allod::test {
namespace {

TEST_F(SpaceOfSpans, leads_from_every_byte_of_a_span_to_it) {
  start();
  Span* const span = allocate(5);
  ASSERT_NE(span, nullptr);
  EXPECT_EQ(span->size, Slices{5});
  EXPECT_EQ(span->base % kSliceBytes, 0U);
  for (Address at = span->base; at < end_of(*span); at += 4096) {
    EXPECT_EQ(space.map().span_of(at), span);
  }
  EXPECT_TRUE(span->zero);
  EXPECT_TRUE(is_all(span, 0));
  fill(span, 1);
}

// --- memory that is present, lengthened ----------------------------------------------------------

TEST_F(SpaceOfSpans, lengthens_memory_that_is_present_by_what_is_free_behind_it) {
  start();
  Span* const first = allocate(20);
  Span* const second = allocate(20);
  static_cast<void>(allocate(1));
  const Address base = first->base;
  space.free(second);
  space.purge(0, 0, ~std::size_t{0});
  fill(first, 7);
  space.free(first);
  Span* const longer = allocate(30);
  ASSERT_EQ(longer->base, base);
  EXPECT_EQ(longer->size, Slices{30});
  EXPECT_FALSE(longer->zero);
  EXPECT_EQ(free_spans(), Sizes{10});
  EXPECT_EQ(space.dirty_bytes(), 0U) << "the rest has no memory";
  EXPECT_EQ(space.counters().clean, Slices{10}.bytes());
  EXPECT_EQ(space.counters().used, Slices{31}.bytes());
}

TEST_F(SpaceOfSpans, lengthens_memory_that_is_present_by_what_was_never_handed_out) {
  start();
  Span* const first = allocate(20);
  const Address base = first->base;
  space.free(first);
  Span* const longer = allocate(40);
  EXPECT_EQ(longer->base, base);
  EXPECT_FALSE(longer->zero);
  EXPECT_EQ(free_spans(), Sizes{});
}

TEST_F(SpaceOfSpans, lengthens_no_small_spans_and_none_with_a_neighbour_in_use) {
  start();
  Span* const small = allocate(4);
  const Address base = small->base;
  space.free(small);
  Span* const next = allocate(8);
  EXPECT_NE(next->base, base) << "not worth a search";
  Span* const first = allocate(20);
  static_cast<void>(allocate(5));
  const Address large = first->base;
  space.free(first);
  EXPECT_NE(allocate(30)->base, large);
  EXPECT_EQ(space.dirty_bytes(), Slices{24}.bytes());
}

TEST_F(SpaceOfSpans, lengthens_nothing_for_more_than_twice_as_much_or_for_an_alignment) {
  start();
  Span* const first = allocate(20);
  space.free(first);
  EXPECT_TRUE(allocate(50)->zero) << "what was never touched need not be cleared";
  Span* const aligned = allocate(24, 2);
  EXPECT_TRUE(aligned->zero);
  EXPECT_EQ(space.dirty_bytes(), Slices{20}.bytes());
}

TEST_F(SpaceOfSpans, leaves_a_region_where_it_is_that_the_program_has_cut_into_several_mappings) {
  start();
  static_cast<void>(allocate(1));
  Span* const first = allocate(300);
  Span* const used = allocate(310);
  space.free(first);
  system.set_remaps(false);
  EXPECT_TRUE(allocate(400)->zero);
  EXPECT_EQ(space.dirty_bytes(), Slices{300}.bytes());
  EXPECT_FALSE(space.remap(used, {500}));
  EXPECT_EQ(used->size, Slices{310});
}

TEST_F(SpaceOfSpans, moves_the_memory_of_a_block_that_was_a_region_to_a_larger_one) {
  start();
  static_cast<void>(allocate(1));
  Span* const first = allocate(300);
  fill(first, 4);
  space.free(first);
  const std::size_t reserved = space.counters().reserved;
  Span* const larger = allocate(400);
  ASSERT_NE(larger, nullptr);
  EXPECT_FALSE(larger->zero);
  EXPECT_EQ(memory(larger)[Slices{300}.bytes() - 1], 4);
  EXPECT_EQ(memory(larger)[Slices{300}.bytes()], 0);
  EXPECT_EQ(space.dirty_bytes(), 0U);
  EXPECT_EQ(space.counters().used, Slices{401}.bytes());
  EXPECT_EQ(space.counters().reserved, reserved + Slices{100}.bytes());
  fill(larger, 5);
}

TEST_F(SpaceOfSpans, keeps_the_memory_of_a_block_that_was_a_region_where_it_cannot_be_moved) {
  start();
  static_cast<void>(allocate(1));
  for (const bool for_ever : {false, true}) {
    for (std::uint64_t nth = 1; nth <= 8; ++nth) {
      Span* const first = allocate(300);
      ASSERT_NE(first, nullptr);
      space.free(first);
      for_ever ? system.fail_from_call(nth) : system.fail_nth_call(nth);
      Span* const larger = allocate(400);
      system.succeed();
      space.check_invariants();
      EXPECT_EQ(space.counters().used, Slices{larger != nullptr ? 401U : 1U}.bytes());
      if (larger != nullptr) {
        fill(larger, 5);
        space.free(larger);
      }
      space.purge(0, 0, ~std::size_t{0});
      space.check_invariants();
    }
  }
}

// --- merge and split -----------------------------------------------------------------------------

TEST_F(SpaceOfSpans, merges_neighbours_in_whatever_order_they_are_freed) {
  start();
  std::vector<int> order{0, 1, 2, 3};
  do {
    std::vector<Span*> spans;
    for (int i = 0; i < 4; ++i) spans.push_back(allocate(3));
    Span* const wall = allocate(1);
    for (const int i : order) space.free(spans[static_cast<std::size_t>(i)]);
    space.check_invariants();
    ASSERT_EQ(free_spans(), Sizes{12});
    space.free(wall);
    ASSERT_EQ(free_spans(), Sizes{13});
    // The next round is cut from the same span.
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(space.counters().regions, 1U);
}

TEST_F(SpaceOfSpans, splits_the_smallest_span_that_fits_and_files_the_rest) {
  start();
  Span* const small = allocate(4);
  static_cast<void>(allocate(1));
  Span* const large = allocate(12);
  static_cast<void>(allocate(1));
  const Address small_base = small->base;
  const Address large_base = large->base;
  space.free(small);
  space.free(large);
  EXPECT_EQ(allocate(3)->base, small_base);
  EXPECT_EQ(free_spans(), (Sizes{1, 12}));
  EXPECT_EQ(allocate(5)->base, large_base);
  EXPECT_EQ(free_spans(), (Sizes{1, 7}));
  EXPECT_EQ(allocate(1)->base, small_base + 3 * kSliceBytes);
  EXPECT_EQ(free_spans(), Sizes{7});
}

TEST_F(SpaceOfSpans, holds_a_span_by_a_larger_descriptor_until_it_is_freed) {
  start();
  constexpr std::size_t kBytes = 384;
  Span* const span = space.allocate_described({2}, space::Filling::sparse, kBytes);
  ASSERT_NE(span, nullptr);
  EXPECT_EQ(address_of(span) % 64, 0U);
  auto* const rest = reinterpret_cast<unsigned char*>(span + 1);
  const std::size_t rest_bytes = kBytes - sizeof(Span);
  EXPECT_TRUE(std::all_of(rest, rest + rest_bytes, [](unsigned char b) { return b == 0; }));
  std::memset(rest, 5, rest_bytes);
  EXPECT_EQ(space.map().span_of(span->base + kSliceBytes), span);
  space.free(span);
  EXPECT_EQ(free_spans(), Sizes{2});
  Span* const next = space.allocate_described({1}, space::Filling::sparse, kBytes);
  EXPECT_EQ(next, span) << "the descriptor is stable";
  EXPECT_EQ(rest[100], 5);
  space.free(next);
}

// --- grow and shrink --------------------------------------------------------------------------

TEST_F(SpaceOfSpans, grows_into_a_free_neighbour_and_leaves_the_rest_of_it) {
  start();
  Span* const span = allocate(2);
  Span* const neighbour = allocate(6);
  static_cast<void>(allocate(1));
  space.free(neighbour);
  fill(span, 7);
  EXPECT_TRUE(space.grow(span, {5}));
  EXPECT_EQ(span->size, Slices{5});
  EXPECT_EQ(free_spans(), Sizes{3});
  EXPECT_EQ(memory(span)[2 * kSliceBytes - 1], 7);
  EXPECT_EQ(space.map().span_of(end_of(*span) - 1), span);
  space.check_invariants();
  EXPECT_TRUE(space.grow(span, {8})) << "all of the neighbour";
  EXPECT_EQ(free_spans(), Sizes{});
  fill(span, 8);
}

TEST_F(SpaceOfSpans, does_not_grow_into_a_used_or_too_small_neighbour) {
  start();
  Span* const span = allocate(2);
  Span* const neighbour = allocate(2);
  static_cast<void>(allocate(1));
  EXPECT_FALSE(space.grow(span, {3}));
  space.free(neighbour);
  EXPECT_FALSE(space.grow(span, {5}));
  EXPECT_EQ(span->size, Slices{2});
  EXPECT_EQ(free_spans(), Sizes{2});
}

TEST_F(SpaceOfSpans, grows_into_slices_that_were_never_handed_out) {
  start();
  Span* const span = allocate(2);
  EXPECT_TRUE(space.grow(span, {100}));
  EXPECT_EQ(span->size, Slices{100});
  EXPECT_TRUE(is_all(span, 0));
  fill(span, 3);
  EXPECT_FALSE(space.grow(span, {1000})) << "the region ends before";
  EXPECT_EQ(span->size, Slices{100});
  EXPECT_EQ(space.counters().used, Slices{100}.bytes());
}

TEST_F(SpaceOfSpans, still_uses_other_regions_when_growth_has_filled_one) {
  start(kMiB);  // 16 slices
  static_cast<void>(allocate(8));
  static_cast<void>(allocate(2));
  Span* const span = allocate(7);  // in a second region
  ASSERT_EQ(space.counters().regions, 2U);
  EXPECT_TRUE(space.grow(span, {16}));
  EXPECT_NE(allocate(6), nullptr);
  EXPECT_EQ(space.counters().regions, 2U) << "the first region has room";
}

TEST_F(SpaceOfSpans, shrinks_and_gives_the_rest_to_its_neighbour) {
  start();
  Span* const span = allocate(8);
  Span* const neighbour = allocate(2);
  static_cast<void>(allocate(1));
  space.free(neighbour);
  fill(span, 9);
  space.shrink(span, {3});
  EXPECT_EQ(span->size, Slices{3});
  EXPECT_TRUE(is_all(span, 9));
  EXPECT_EQ(free_spans(), Sizes{7});
  space.shrink(span, {3});
  EXPECT_EQ(span->size, Slices{3});
}

TEST_F(SpaceOfSpans, counts_what_it_hands_out_when_there_is_no_metadata_to_split) {
  start();
  Span* const span = allocate(2);
  Span* const neighbour = allocate(6);
  static_cast<void>(allocate(1));
  space.free(neighbour);
  // From here on, no descriptor can be had for what is left over.
  system.fail_from_call(1);
  while (space.metadata().allocate(system, sizeof(Span)) != nullptr) {
  }
  EXPECT_TRUE(space.grow(span, {3}));
  EXPECT_GE(span->size, Slices{3});
  space.check_invariants();
  // The descriptor that the neighbour had can be had again.
  while (space.metadata().allocate(system, sizeof(Span)) != nullptr) {
  }
  const Slices before = span->size;
  space.shrink(span, {1});
  EXPECT_EQ(span->size, before);
  space.check_invariants();
  space.free(span);
  space.check_invariants();
  Span* const larger = allocate(1);
  ASSERT_NE(larger, nullptr);
  EXPECT_EQ(larger->size, before);
}

TEST_F(SpaceOfSpans, turns_so_many_slices_into_metadata_as_are_asked_for) {
  start();
  Span* const span = allocate(40);
  static_cast<void>(allocate(1));
  space.free(span);
  system.fail_from_call(1);
  const std::size_t bytes = Slices{20}.bytes();
  auto* const table = static_cast<unsigned char*>(space.allocate_metadata(bytes));
  ASSERT_NE(table, nullptr);
  for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(table[i], 0) << i;
  space.check_invariants();
  const std::size_t mapped = space.metadata().mapped_bytes();
  // What is more than there is takes nothing.
  for (int i = 0; i < 10; ++i) EXPECT_EQ(space.allocate_metadata(kMaxBlock), nullptr);
  EXPECT_EQ(space.metadata().mapped_bytes(), mapped);
  space.check_invariants();
}

// --- remap ------------------------------------------------------------------------------------

TEST_F(SpaceOfSpans, lengthens_a_region_of_its_own_where_it_stands) {
  start();
  static_cast<void>(allocate(1));  // brings the metadata
  system.place_next_at(Fake::arena_bytes() / 16);
  Span* const span = allocate(300);
  const Address base = span->base;
  fill(span, 4);
  EXPECT_FALSE(space.grow(span, {400}));
  EXPECT_TRUE(space.remap(span, {400}));
  EXPECT_EQ(span->base, base);
  EXPECT_EQ(span->size, Slices{400});
  EXPECT_EQ(space.map().span_of(end_of(*span) - 1), span);
  EXPECT_EQ(memory(span)[Slices{300}.bytes() - 1], 4);
  EXPECT_EQ(memory(span)[Slices{300}.bytes()], 0);
}

TEST_F(SpaceOfSpans, moves_a_region_of_its_own_when_it_cannot_stay) {
  start();
  Span* const span = allocate(300);
  const Address base = span->base;
  fill(span, 4);
  EXPECT_TRUE(space.remap(span, {400}));
  EXPECT_NE(span->base, base);
  EXPECT_EQ(memory(span)[Slices{300}.bytes() - 1], 4);
  EXPECT_EQ(space.map().tag_of(base), space::kForeignTag);
  EXPECT_EQ(space.map().span_of(base), nullptr);
  EXPECT_EQ(space.map().span_of(span->base), span);
  EXPECT_EQ(system.pages_at(reinterpret_cast<void*>(base)), Fake::Pages::none);
  space.map().set_tags(span->base, span->size, space::kHugeTag);
}

TEST_F(SpaceOfSpans, does_not_move_a_span_that_shares_its_region) {
  start();
  Span* const span = allocate(2);
  EXPECT_FALSE(space.remap(span, {400}));
  EXPECT_EQ(span->size, Slices{2});
}

TEST_F(SpaceOfSpans, leaves_a_region_alone_that_the_system_will_not_move) {
  start();
  Span* const span = allocate(300);
  fill(span, 4);
  system.fail_from_call(1);
  EXPECT_FALSE(space.remap(span, {400}));
  system.succeed();
  EXPECT_EQ(span->size, Slices{300});
  EXPECT_TRUE(is_all(span, 4));
}

TEST_F(SpaceOfSpans, does_not_move_a_region_to_where_the_map_cannot_see_it) {
  if (!kAddressesAbound) GTEST_SKIP() << "the map sees all addresses";
  system.set_address_space_limit(std::size_t{256} << 20);
  start();
  Span* const span = allocate(300);
  fill(span, 4);
  // There is no room to grow, and only room outside of the map's window to move to.
  const std::size_t below = span->base - system.arena() - kSliceBytes;
  system.place_next_at(below);
  ASSERT_NE(system.reserve(kSliceBytes, kSliceBytes), nullptr);
  system.place_next_at(0);
  EXPECT_FALSE(space.remap(span, {400}));
  EXPECT_EQ(span->size, Slices{300});
  EXPECT_EQ(space.map().span_of(span->base), span);
  EXPECT_TRUE(is_all(span, 4));
}

TEST_F(SpaceOfSpans, remaps_completely_or_not_at_all_whichever_call_fails) {
  start();
  static_cast<void>(allocate(1));
  for (const bool for_ever : {false, true}) {
    for (std::uint64_t nth = 1; nth <= 8; ++nth) {
      Span* const span = allocate(300);
      ASSERT_NE(span, nullptr);
      fill(span, 4);
      const std::size_t mapped = system.mapped_bytes();
      for_ever ? system.fail_from_call(nth) : system.fail_nth_call(nth);
      const bool done = space.remap(span, {400});
      system.succeed();
      EXPECT_EQ(span->size, Slices{done ? 400U : 300U});
      EXPECT_EQ(system.mapped_bytes() - mapped, Slices{done ? 100U : 0U}.bytes());
      EXPECT_EQ(memory(span)[0], 4);
      EXPECT_EQ(memory(span)[Slices{300}.bytes() - 1], 4);
      EXPECT_EQ(space.map().span_of(end_of(*span) - 1), span);
      space.map().set_tags(span->base, span->size, space::kHugeTag);
      space.check_invariants();
      space.free(span);
      space.purge(0, 0, ~std::size_t{0});
    }
  }
}

// --- alignment --------------------------------------------------------------------------------

TEST_F(SpaceOfSpans, starts_a_span_on_any_power_of_two_of_slices) {
  if (!kAddressesAbound) GTEST_SKIP() << "takes more addresses than the fake has";
  start();
  for (std::uint32_t alignment = 1; alignment <= 4096; alignment *= 2) {
    for (const std::uint32_t slices : {1U, 3U, 64U}) {
      Span* const span = allocate(slices, alignment);
      ASSERT_NE(span, nullptr);
      EXPECT_EQ(span->base % (alignment * kSliceBytes), 0U);
      EXPECT_EQ(span->size, Slices{slices});
      EXPECT_TRUE(!span->zero || is_all(span, 0));
      fill(span, 1);
      space.check_invariants();
      if (slices == 3) space.free(span);
    }
  }
}

TEST_F(SpaceOfSpans, frees_what_alignment_cut_off) {
  start();
  static_cast<void>(allocate(1));
  const std::size_t before = space.counters().used;
  Span* const span = allocate(2, 8);
  EXPECT_EQ(space.counters().used - before, Slices{2}.bytes());
  space.free(span);
  for (const std::uint32_t size : free_spans()) EXPECT_GE(size, 1U);
  EXPECT_NE(allocate(6), nullptr);
}

}  // namespace
}  // namespace allod::test

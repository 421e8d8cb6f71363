// Layer 3: spans, as they are cut, merged, lengthened and given back.
#include "allod/space/space.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <semaphore>
#include <thread>

#include "world.hpp"

namespace allod::test {
namespace {

using os::Fake;
using space::Span;
constexpr std::size_t kMiB = std::size_t{1} << 20;

class SpaceOfSpans : public testing::Test {
 protected:
  static constexpr std::size_t kRegionBytes = 16 * kMiB;
  static constexpr std::size_t kHugeFrom = 4 * kMiB;
  static constexpr std::size_t kHugePage = 2 * kMiB;

  void start(std::size_t region_bytes = kRegionBytes) {
    ASSERT_TRUE(space.start(region_bytes, kHugeFrom));
  }
  void TearDown() override { space.check_invariants(); }

  Span* allocate(std::uint32_t slices, std::uint32_t alignment = 1) {
    Span* const span = space.allocate({slices}, {alignment});
    if (span != nullptr) space.map().set_tags(span->base, span->size, space::kHugeTag);
    return span;
  }
  Span* allocate_dense(std::uint32_t slices) {
    constexpr std::size_t kDescriptor = 256;
    Span* const span = space.allocate_described({slices}, space::Filling::dense, kDescriptor);
    if (span != nullptr) space.map().set_tags(span->base, span->size, space::kHugeTag);
    return span;
  }
  bool is_huge(const Span* span) { return system.is_huge_at(span->base); }
  void use_enough() {
    while (space.counters().used < kHugeFrom) static_cast<void>(allocate(1));
  }
  // Slice by slice, all in use; behind them is another one.
  std::vector<Span*> three_huge_pages() {
    use_enough();
    std::vector<Span*> spans(3 * kHugePage / kSliceBytes);
    for (Span*& span : spans) span = allocate_dense(1);
    static_cast<void>(allocate_dense(1));
    EXPECT_EQ(spans.front()->base % kHugePage, 0U);
    return spans;
  }
  static unsigned char* memory(const Span* span) {
    return reinterpret_cast<unsigned char*>(span->base);
  }
  static void fill(const Span* span, int value) {
    std::memset(memory(span), value, span->size.bytes());
  }
  static bool is_all(const Span* span, unsigned char value) {
    return std::all_of(memory(span), memory(span) + span->size.bytes(),
                       [&](unsigned char byte) { return byte == value; });
  }
  // Sizes of the free spans, in order of their addresses.
  std::vector<std::uint32_t> free_spans() {
    std::vector<std::uint32_t> sizes;
    space.for_each_span([&](const Span& span) {
      if (is_free(span)) sizes.push_back(span.size.count);
    });
    return sizes;
  }
  FakeSpace space;
  Fake& system = space.platform();
};

using Sizes = std::vector<std::uint32_t>;

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
  start();
  use_enough();
  static_cast<void>(allocate_dense(1));
  const std::size_t before = system.mappings();
  for (std::size_t i = 0; i < 200; ++i) {
    ASSERT_NE(allocate(static_cast<std::uint32_t>(1 + i % 30)), nullptr);
    ASSERT_NE(allocate_dense(static_cast<std::uint32_t>(1 + i % 30)), nullptr);
  }
  ASSERT_GT(space.counters().regions, 15U);
  EXPECT_LE(system.mappings(), before + 1) << "chunks of metadata";
}

TEST_F(SpaceOfSpans, needs_few_regions_where_they_lie_apart) {
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
  for (int i = 0; i < 10; ++i) EXPECT_EQ(space.allocate_metadata(std::size_t{8} << 30), nullptr);
  EXPECT_EQ(space.metadata().mapped_bytes(), mapped);
  space.check_invariants();
}

// --- remap ------------------------------------------------------------------------------------

TEST_F(SpaceOfSpans, lengthens_a_region_of_its_own_where_it_stands) {
  start();
  static_cast<void>(allocate(1));  // brings the metadata
  system.place_next_at(std::size_t{8} << 30);
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

// --- purge ------------------------------------------------------------------------------------

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
  const Slices large{20000};
  Span* const before = space.allocate(large, {1});
  ASSERT_NE(before, nullptr);
  space.free(before);
  std::thread other;
  std::binary_semaphore may_go_on{0};
  std::binary_semaphore is_purging{0};
  bool has_begun = false;
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::purge && !has_begun) {
      has_begun = true;
      is_purging.release();
      may_go_on.acquire();
    } else if (call == Fake::Call::yield && other.joinable()) {
      may_go_on.release();
      other.join();
    }
  });
  other = std::thread{[&] { space.purge(0, 0, large.bytes()); }};
  is_purging.acquire();
  system.set_address_space_limit(system.mapped_bytes() + Slices{1000}.bytes());
  EXPECT_NE(space.allocate(large + Slices{1}, {1}), nullptr);
  EXPECT_FALSE(other.joinable()) << "it has waited";
  if (other.joinable()) {
    may_go_on.release();
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

// --- a system that refuses ----------------------------------------------------------------------

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
  EXPECT_EQ(allocate(1U << 31), nullptr);
  EXPECT_EQ(allocate((1U << 31) - 1), nullptr);
  EXPECT_EQ(allocate(1, 1U << 31), nullptr);
  EXPECT_EQ(allocate((1U << 31) - 1, 1U << 30), nullptr);
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

// --- guards and random places ---------------------------------------------------------------

class SpaceWithGuards : public SpaceOfSpans {
 protected:
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kDescriptor = 256;

  SpaceWithGuards() { system.set_guards(true); }
  Span* allocate_guarded(std::uint32_t slices, std::size_t guard = kPage) {
    Span* const span = space.allocate_described({slices}, space::Filling::sparse, kDescriptor);
    space.map().set_tags(span->base, span->size, space::kHugeTag);
    space.guard(*span, end_of(*span) - guard);
    return span;
  }
  Fake::Pages pages_at(Address at) { return system.pages_at(reinterpret_cast<void*>(at)); }
  // Of a guarded span of two slices whose second page cannot be touched.
  void expect_all_open_once_free(Span* span) {
    const Address base = span->base;
    space.free(span);
    EXPECT_EQ(pages_at(base + kPage), Fake::Pages::usable);
    EXPECT_EQ(pages_at(base + 2 * kSliceBytes - 1), Fake::Pages::usable);
    const Span* const next = allocate(2);
    ASSERT_EQ(next->base, base);
    EXPECT_FALSE(is_partly_closed(*next));
    fill(next, 2);
  }
};

TEST_F(SpaceWithGuards, the_end_of_a_guarded_span_cannot_be_touched) {
  start();
  const Span* const span = allocate_guarded(2);
  EXPECT_EQ(open_end_of(*span), end_of(*span) - kPage);
  EXPECT_EQ(pages_at(end_of(*span) - kPage - 1), Fake::Pages::usable);
  EXPECT_EQ(pages_at(end_of(*span) - kPage), Fake::Pages::guarded);
  EXPECT_TRUE(is_guarded_at(*span, end_of(*span) - 1));
  EXPECT_FALSE(is_guarded_at(*span, end_of(*span) - kPage - 1));
  EXPECT_FALSE(is_guarded_at(*span, end_of(*span)));
}

TEST_F(SpaceWithGuards, what_is_free_has_no_guard_and_the_next_owner_finds_zeros_there) {
  start();
  Span* const span = allocate_guarded(2);
  const Address base = span->base;
  std::memset(memory(span), 1, 2 * kSliceBytes - kPage);
  space.free(span);
  EXPECT_EQ(pages_at(base + 2 * kSliceBytes - 1), Fake::Pages::usable);
  const Span* const next = allocate(2);
  ASSERT_EQ(next->base, base);
  EXPECT_EQ(open_end_of(*next), end_of(*next));
  EXPECT_EQ(memory(next)[2 * kSliceBytes - kPage], 0);
  fill(next, 2);
}

TEST_F(SpaceWithGuards, what_was_closed_within_a_span_is_open_when_that_is_free) {
  start();
  Span* const span = allocate_guarded(2);
  space.note_closed(*span);
  ASSERT_TRUE(system.guard(memory(span) + kPage, 2 * kPage));
  expect_all_open_once_free(span);
}

TEST_F(SpaceWithGuards, a_guard_moves) {
  start();
  Span* const span = allocate_guarded(2, 2 * kPage);
  const Address end = end_of(*span);
  ASSERT_TRUE(space.move_guard(*span, end - 3 * kPage));
  EXPECT_EQ(open_end_of(*span), end - 3 * kPage);
  EXPECT_EQ(pages_at(end - 3 * kPage), Fake::Pages::guarded);
  ASSERT_TRUE(space.move_guard(*span, end - kPage));
  EXPECT_EQ(open_end_of(*span), end - kPage);
  EXPECT_EQ(pages_at(end - kPage - 1), Fake::Pages::usable);
  EXPECT_EQ(pages_at(end - 1), Fake::Pages::guarded);
  ASSERT_TRUE(space.move_guard(*span, end));
  EXPECT_EQ(pages_at(end - 1), Fake::Pages::usable);
  EXPECT_FALSE(is_partly_closed(*span));
  ASSERT_TRUE(space.move_guard(*span, end - kPage));
  EXPECT_EQ(pages_at(end - 1), Fake::Pages::guarded);
}

TEST_F(SpaceWithGuards, a_guard_that_the_system_does_not_move_stays_where_it_is) {
  start();
  Span* const span = allocate_guarded(2, 2 * kPage);
  const Address end = end_of(*span);
  system.fail_call(Fake::Call::unguard, 1);
  EXPECT_FALSE(space.move_guard(*span, end - kPage));
  EXPECT_EQ(open_end_of(*span), end - 2 * kPage);
  system.fail_call(Fake::Call::guard, 1);
  EXPECT_TRUE(space.move_guard(*span, end - 3 * kPage));
  EXPECT_EQ(open_end_of(*span), end - 2 * kPage);
  EXPECT_EQ(pages_at(end - 3 * kPage), Fake::Pages::usable);
  EXPECT_EQ(pages_at(end - 2 * kPage), Fake::Pages::guarded);
}

TEST_F(SpaceWithGuards, what_is_shut_keeps_what_it_holds_and_its_guard) {
  start();
  Span* const span = allocate_guarded(2);
  const Address base = span->base;
  memory(span)[kPage] = 7;
  ASSERT_TRUE(space.shut(*span, base, 2 * kSliceBytes));
  EXPECT_EQ(pages_at(base + kPage), Fake::Pages::shut);
  ASSERT_TRUE(space.reopen(base, 2 * kSliceBytes));
  EXPECT_EQ(memory(span)[kPage], 7);
  EXPECT_EQ(pages_at(base + 2 * kSliceBytes - 1), Fake::Pages::guarded);
}

TEST_F(SpaceWithGuards, what_was_shut_within_a_span_is_open_when_that_is_free) {
  start();
  Span* const span = allocate_guarded(2);
  ASSERT_TRUE(space.shut(*span, span->base + kPage, kPage));
  EXPECT_TRUE(is_partly_closed(*span));
  expect_all_open_once_free(span);
}

TEST_F(SpaceWithGuards, nothing_is_shut_where_the_system_refuses) {
  start();
  Span* const span = allocate_guarded(1);
  system.fail_call(Fake::Call::shut, 1);
  EXPECT_FALSE(space.shut(*span, span->base, kPage));
  EXPECT_EQ(pages_at(span->base), Fake::Pages::usable);
  EXPECT_TRUE(space.shut(*span, span->base, kPage));
}

TEST_F(SpaceWithGuards, nothing_more_is_shut_when_the_system_does_not_reopen) {
  start();
  Span* const span = allocate_guarded(1);
  Span* const other = allocate_guarded(1);
  const Address base = span->base;
  ASSERT_TRUE(space.shut(*span, base, kPage));
  system.fail_call(Fake::Call::reopen, 1);
  EXPECT_FALSE(space.reopen(base, kPage));
  EXPECT_FALSE(space.shut(*other, other->base, kPage));
  // And if it goes meanwhile, nobody gets it.
  system.fail_call(Fake::Call::reopen, 1);
  space.free(span);
  EXPECT_EQ(free_spans(), Sizes{});
  EXPECT_NE(allocate(1)->base, base);
}

TEST_F(SpaceWithGuards, so_many_spans_have_parts_that_are_shut_and_no_more) {
  start();
  std::vector<Span*> spans;
  for (std::uint32_t i = 0; i < FakeSpace::kMostShut; ++i) {
    spans.push_back(allocate_guarded(1));
    ASSERT_TRUE(space.shut(*spans.back(), spans.back()->base, kPage));
  }
  Span* const one_more = allocate_guarded(1);
  EXPECT_FALSE(space.shut(*one_more, one_more->base, kPage));
  // Those that have some may have others.
  EXPECT_TRUE(space.shut(*spans[0], spans[0]->base + 2 * kPage, kPage));
  space.free(spans[0]);
  EXPECT_TRUE(space.shut(*one_more, one_more->base, kPage));
}

TEST_F(SpaceWithGuards, free_neighbours_of_guarded_spans_merge) {
  start();
  Span* const first = allocate_guarded(1);
  Span* const second = allocate_guarded(1);
  Span* const third = allocate_guarded(1);
  static_cast<void>(allocate(1));
  space.free(first);
  space.free(third);
  space.free(second);
  EXPECT_EQ(free_spans(), (Sizes{3}));
  EXPECT_EQ(space.purge(0, 0, ~std::size_t{0}), 3 * kSliceBytes);
}

TEST_F(SpaceWithGuards, without_a_guard_that_was_refused_all_can_be_touched) {
  start();
  system.fail_call(Fake::Call::guard, 1);
  const Span* const span = allocate_guarded(1);
  EXPECT_EQ(open_end_of(*span), end_of(*span));
  fill(span, 1);
}

TEST_F(SpaceWithGuards, a_span_whose_guard_stays_is_lost_without_its_memory) {
  start();
  Span* const span = allocate_guarded(1);
  std::memset(memory(span), 1, kSliceBytes - kPage);
  const Address base = span->base;
  system.fail_call(Fake::Call::unguard, 1);
  space.free(span);
  EXPECT_EQ(space.map().tag_of(base), space::kFreeTag);
  EXPECT_EQ(system.purged_bytes(), kSliceBytes - kPage);
  EXPECT_EQ(free_spans(), Sizes{});
  EXPECT_NE(allocate(1)->base, base);
}

TEST_F(SpaceWithGuards, memory_in_huge_pages_and_of_the_program_has_none) {
  start();
  const auto sparse = space::Filling::sparse;
  EXPECT_EQ(space.guard_bytes(sparse, nullptr, false), kPage);
  EXPECT_EQ(space.guard_bytes(space::Filling::dense, nullptr, false), kPage);
  use_enough();
  EXPECT_EQ(space.guard_bytes(sparse, nullptr, false), kPage);
  EXPECT_EQ(space.guard_bytes(space::Filling::dense, nullptr, false), 0U);
  const auto guard_of = [&](const space::PageWishes& wishes) {
    const space::PageSource source{wishes};
    return space.guard_bytes(sparse, &source, false);
  };
  EXPECT_EQ(guard_of({.purging = space::Purging::at_once}), kPage);
  EXPECT_EQ(guard_of({.pages = space::Pages::large}), 0U);
  EXPECT_EQ(guard_of({.pages = space::Pages::huge_2m}), 0U);
  EXPECT_EQ(guard_of({.locked = true}), 0U);
  EXPECT_EQ(guard_of({.buffer = 4096, .buffer_bytes = 4096}), 0U);
}

class SpaceAtRandom : public SpaceOfSpans {
 protected:
  SpaceAtRandom() { system.set_scattering(true); }
  Span* allocate_slab(std::uint32_t slices = 1) {
    Span* const span = space.allocate_described({slices}, space::Filling::sparse, 256);
    space.map().set_tags(span->base, span->size, space::kHugeTag);
    return span;
  }
  static std::size_t neighbours(const std::vector<Span*>& spans) {
    std::size_t count = 0;
    for (std::size_t i = 1; i < spans.size(); ++i) {
      if (spans[i]->base == end_of(*spans[i - 1])) ++count;
    }
    return count;
  }
};

TEST_F(SpaceAtRandom, fresh_slabs_lie_in_no_order_and_waste_no_addresses) {
  start();
  std::vector<Span*> spans(64);
  for (Span*& span : spans) span = allocate_slab();
  // In order there would be 63.
  EXPECT_LT(neighbours(spans), 16U);
  const auto at = [](const Span* a, const Span* b) { return a->base < b->base; };
  std::sort(spans.begin(), spans.end(), at);
  EXPECT_EQ(neighbours(spans), 63U);
  EXPECT_EQ(free_spans(), Sizes{});
}

TEST_F(SpaceAtRandom, memory_that_is_there_is_used_first) {
  start();
  Span* const span = allocate(8);
  static_cast<void>(allocate(1));
  const Address base = span->base;
  space.free(span);
  for (int i = 0; i < 8; ++i) {
    const Address at = allocate_slab()->base;
    EXPECT_TRUE(at >= base && at < base + 8 * kSliceBytes);
  }
  EXPECT_EQ(space.dirty_bytes(), 0U);
}

TEST_F(SpaceAtRandom, slabs_lie_near_the_start_of_a_large_free_span) {
  start();
  Span* const span = allocate(200);
  static_cast<void>(allocate(1));
  const Address base = span->base;
  space.free(span);
  EXPECT_LE(allocate_slab()->base, base + 32 * kSliceBytes);
}

TEST_F(SpaceAtRandom, slabs_of_several_slices_lie_in_order) {
  start();
  std::vector<Span*> spans(8);
  for (Span*& span : spans) span = allocate_slab(4);
  EXPECT_EQ(neighbours(spans), 7U);
}

TEST_F(SpaceAtRandom, where_addresses_are_scarce_slabs_are_had_all_the_same) {
  start(kMiB);
  std::size_t slabs = 0;
  system.set_address_space_limit(system.mapped_bytes() + 3 * kMiB);
  while (Span* const span = space.allocate_described({3}, space::Filling::sparse, 256)) {
    space.map().set_tags(span->base, span->size, space::kHugeTag);
    ++slabs;
  }
  EXPECT_GE(slabs, 2 * kMiB / kSliceBytes / 3);
}

}  // namespace
}  // namespace allod::test

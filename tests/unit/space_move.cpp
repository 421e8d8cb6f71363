// Layer 3: pages that move from free spans to a new one.
#include <gtest/gtest.h>

#include <random>

#include "space_world.hpp"

namespace allod::test {
namespace {

using space::Seams;

// --- where mappings begin -----------------------------------------------------------------------

// Two bits for each slice, beside a model that knows the mapping of each.
class SeamsAndModel : public testing::Test {
 protected:
  static constexpr std::uint32_t kSlices = 200;
  static constexpr std::uint32_t kNone = 0;

  void TearDown() override {
    std::uint32_t count = 0;
    for (std::uint32_t at = 1; at < kSlices; ++at)
      count += mapping[at] != mapping[at - 1] ? 1U : 0U;
    EXPECT_EQ(seams->count(), count);
  }
  std::uint32_t run_in_model(std::uint32_t first, std::uint32_t most) const {
    std::uint32_t run = 1;
    while (run < most && mapping[first + run] == mapping[first]) ++run;
    return run;
  }
  void move(std::uint32_t first, std::uint32_t size) {
    seams->note_moved(first, size);
    std::fill_n(mapping.begin() + first, size, ++last);
  }
  void renew(std::uint32_t first, std::uint32_t size) {
    std::fill_n(mapping.begin() + first, size, kNone);
    const std::uint32_t end = first + size;
    const bool joins_before = first == 0 || mapping[first - 1] == kNone;
    seams->note_renewed(first, size, joins_before, end == kSlices || mapping[end] == kNone);
  }

  std::vector<std::uint64_t> memory = std::vector<std::uint64_t>(Seams::bytes_for({kSlices}) / 8);
  Seams* seams = new (memory.data()) Seams{{kSlices}};
  std::vector<std::uint32_t> mapping = std::vector<std::uint32_t>(kSlices, kNone);
  std::uint32_t last = kNone;
};

TEST_F(SeamsAndModel, agree_after_any_moves) {
  std::mt19937 random{1};
  for (int i = 0; i < 20'000; ++i) {
    const auto first = static_cast<std::uint32_t>(random() % kSlices);
    const auto size = static_cast<std::uint32_t>(1 + random() % (kSlices - first));
    const bool has_moved = std::any_of(mapping.begin() + first, mapping.begin() + first + size,
                                       [](std::uint32_t id) { return id != kNone; });
    ASSERT_EQ(seams->run_from(first, size), run_in_model(first, size));
    ASSERT_EQ(seams->has_moved(first, size), has_moved);
    // Where all is split, few runs are long: so most moves are small.
    const std::uint32_t part = random() % 4 != 0 ? 1 + size % 8 : size;
    const std::uint32_t most = part < size ? part : size;
    random() % 3 == 0 ? renew(first, size) : move(first, most);
    if (i % 100 == 0) TearDown();
  }
}

// --- the space ----------------------------------------------------------------------------------

class SpaceMoves : public SpaceOfSpans {
 protected:
  void SetUp() override { start(); }
  // Written spans that merge with no other, free but for the first; all are made before one is
  // freed.
  std::vector<Span*> dirty(const Sizes& sizes) {
    std::vector<Span*> spans;
    for (const std::uint32_t size : sizes) {
      spans.push_back(allocate(size));
      static_cast<void>(allocate(1));
      fill(spans.back(), 7);
    }
    for (Span* const span : spans) space.free(span);
    return spans;
  }
  // The last slice shows later whether the others were written.
  Span* filled(std::uint32_t slices, std::uint32_t part = ~0U) {
    Span* const span = allocate(slices + 1);
    EXPECT_TRUE(space.fill(*span, {(part < slices ? part : slices) + 1}, kEverything));
    return span;
  }
  static std::size_t resident(const Span* span) {
    return Fake::resident_bytes(memory(span), span->size.bytes());
  }
  static constexpr std::size_t kEverything = ~std::size_t{0};
};

TEST_F(SpaceMoves, give_a_new_span_the_memory_of_smaller_ones) {
  dirty({8, 5, 3});
  Span* const span = filled(16);
  EXPECT_EQ(resident(span), Slices{16}.bytes());
  EXPECT_FALSE(span->zero);
  EXPECT_EQ(memory(span)[0], 7);
  EXPECT_EQ(memory(span)[Slices{16}.bytes() - 1], 7);
  EXPECT_EQ(space.dirty_bytes(), 0U);
  EXPECT_EQ(space.counters().moved, Slices{16}.bytes());
  EXPECT_EQ(space.counters().moves, 3U);
  EXPECT_EQ(space.counters().purged, 0U);
}

TEST_F(SpaceMoves, leave_behind_what_the_program_said_of_them) {
  dirty({8, 5, 3});
  const Span* const span = filled(16);
  for (std::uint32_t slice = 0; slice < 16; ++slice) {
    EXPECT_FALSE(system.has_foreign_advice(memory(span) + Slices{slice}.bytes())) << slice;
  }
}

TEST_F(SpaceMoves, leave_zeros_where_they_were) {
  dirty({8});
  static_cast<void>(filled(9));
  Span* const again = allocate(8);
  EXPECT_TRUE(again->zero);
  EXPECT_TRUE(is_all(again, 0));
}

TEST_F(SpaceMoves, stop_when_nothing_is_left) {
  dirty({4});
  Span* const span = filled(9);
  EXPECT_EQ(resident(span), Slices{4}.bytes());
  EXPECT_FALSE(span->zero);
}

TEST_F(SpaceMoves, take_no_more_than_will_be_written) {
  dirty({12});
  Span* const span = filled(16, 5);
  EXPECT_EQ(resident(span), Slices{5}.bytes());
  EXPECT_EQ(space.dirty_bytes(), Slices{7}.bytes());
}

TEST_F(SpaceMoves, leave_a_span_alone_that_has_memory) {
  dirty({12, 9});
  Span* const span = filled(10);
  EXPECT_EQ(space.counters().moves, 0U);
  EXPECT_TRUE(is_all(span, 7));
}

TEST_F(SpaceMoves, fill_a_span_behind_the_memory_that_it_has) {
  Span* const large = allocate(20);
  fill(large, 6);
  Span* const small = allocate(4);
  static_cast<void>(allocate(1));
  Span* const other = allocate(9);
  fill(other, 5);
  static_cast<void>(allocate(1));
  space.free(small);
  EXPECT_GT(space.purge(0, 0, kEverything) + space.purge(0, 0, kEverything), 0U);
  space.free(large);
  space.free(other);
  Span* const span = allocate(24);
  EXPECT_EQ(span->base, large->base) << "lengthened into clean memory";
  EXPECT_TRUE(space.fill(*span, span->size, kEverything));
  EXPECT_EQ(resident(span), Slices{23}.bytes());
  EXPECT_EQ(memory(span)[0], 6);
  EXPECT_EQ(memory(span)[Slices{20}.bytes()], 5);
}

TEST_F(SpaceMoves, go_on_from_within_one_mapping_at_a_time) {
  dirty({6, 5, 4});
  Span* const span = filled(15);
  EXPECT_EQ(system.moved_pieces(), 3U);
  space.free(span);
  // The fake refuses pages in several mappings. One more slice has not moved.
  Span* const next = filled(40);
  EXPECT_EQ(resident(next), Slices{16}.bytes());
  EXPECT_EQ(space.counters().moves, 3U + 4U);
  EXPECT_EQ(system.moved_pieces(), 4U) << "where pages were, all is one again";
}

TEST_F(SpaceMoves, end_with_one_mapping_once_all_is_purged) {
  dirty({6, 5, 4});
  Span* const span = filled(15);
  space.free(span);
  space.free(allocate(1));
  static_cast<void>(space.purge_free());
  EXPECT_EQ(system.moved_pieces(), 0U);
  EXPECT_EQ(system.count(Fake::Call::renew), 1U);
  static_cast<void>(filled(30));
  Span* const other = allocate(3);
  fill(other, 1);
  space.free(other);
  static_cast<void>(space.purge_free());
  EXPECT_EQ(system.count(Fake::Call::renew), 1U) << "nothing moved there";
}

TEST_F(SpaceMoves, may_stay_a_mapping_if_the_system_refuses) {
  dirty({6});
  space.free(filled(7));
  system.fail_call(Fake::Call::renew, 1);
  EXPECT_GT(space.purge_free(), 0U);
  EXPECT_EQ(system.moved_pieces(), 1U);
  EXPECT_EQ(resident(filled(8)), 0U);
}

TEST_F(SpaceMoves, lose_a_span_of_which_the_system_lost_a_part) {
  dirty({8, 5});
  const std::size_t before = space.dirty_bytes();
  Span* const span = allocate(14);
  system.fail_call(Fake::Call::move_pages, 2);
  EXPECT_FALSE(space.fill(*span, {14}, kEverything));
  EXPECT_EQ(resident(span), 0U) << "what had moved there is given back";
  EXPECT_EQ(span->guarded_from, span->base + Slices{8}.bytes()) << "not touched from here on";
  EXPECT_EQ(space.dirty_bytes(), before - Slices{8}.bytes());
  Span* const next = allocate(14);
  EXPECT_NE(next->base, span->base);
  fill(next, 1);
}

TEST_F(SpaceMoves, do_not_make_memory_younger_that_stays) {
  static_cast<void>(dirty({8}));
  system.advance_clock(60);
  system.fail_call(Fake::Call::move_pages, 1);
  EXPECT_FALSE(space.fill(*allocate(13), {13}, kEverything));
  EXPECT_EQ(space.next_purge_in(100), 40U);
}

// The program may have left advice or a mapping there.
TEST_F(SpaceMoves, purge_memory_that_is_not_in_one_mapping_with_its_neighbours) {
  const auto spans = dirty({8, 5});
  system.map_apart(memory(spans[0]), spans[0]->size.bytes());
  Span* const span = filled(12);
  EXPECT_EQ(space.counters().moved, 0U);
  EXPECT_EQ(space.dirty_bytes(), Slices{5}.bytes());
  EXPECT_EQ(resident(span), 0U);
  EXPECT_EQ(resident(filled(12)), Slices{5}.bytes());
}

// --- spans that were not written yet -------------------------------------------------------------

class Guesses : public SpaceMoves {
 protected:
  static constexpr std::uint32_t kSize = 8;
  static constexpr std::size_t kBudget = Slices{3 * kSize}.bytes();

  // A block for which there is memory: whether it got that.
  bool gets_memory() {
    dirty({kSize});
    Span* const span = allocate(kSize + 1);
    space.map().set_tags(span->base, {1}, space::kHugeTag);
    EXPECT_TRUE(space.fill(*span, {kSize + 1}, kBudget));
    blocks.push_back(span);
    EXPECT_EQ(space.purge_free() == 0, span->is_filled) << "nobody else gets it";
    return span->is_filled;
  }
  // The slice that was left out.
  static void write(Span* span) { memory(span)[Slices{kSize}.bytes()] = 1; }
  std::vector<Span*> blocks;
};

TEST_F(Guesses, end_at_the_budget) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(gets_memory());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(gets_memory());
}

TEST_F(Guesses, go_on_once_one_was_written) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(gets_memory());
  write(blocks[1]);
  EXPECT_TRUE(gets_memory());
  EXPECT_FALSE(gets_memory());
  write(blocks[0]);
  write(blocks[3]);
  EXPECT_TRUE(gets_memory());
  EXPECT_TRUE(gets_memory());
  EXPECT_FALSE(gets_memory());
}

TEST_F(Guesses, go_on_once_one_was_freed) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(gets_memory());
  EXPECT_FALSE(gets_memory());
  space.free(blocks[2]);
  EXPECT_TRUE(gets_memory());
  EXPECT_FALSE(gets_memory());
}

// Sixteen are remembered, however small they are.
TEST_F(Guesses, are_few) {
  std::vector<Span*> spans;
  for (int i = 0; i < 20; ++i) {
    dirty({1});
    spans.push_back(allocate(2));
    space.map().set_tags(spans.back()->base, {1}, space::kHugeTag);
    EXPECT_TRUE(space.fill(*spans.back(), {2}, kEverything));
    EXPECT_EQ(spans.back()->is_filled, i < 16);
  }
}

// One block may need more than the budget.
TEST_F(Guesses, may_be_one_that_is_larger) {
  dirty({4 * kSize});
  Span* const span = allocate(4 * kSize + 1);
  EXPECT_TRUE(space.fill(*span, {4 * kSize + 1}, kBudget));
  EXPECT_TRUE(span->is_filled);
}

// --- huge pages ----------------------------------------------------------------------------------

class HugeFills : public SpaceMoves {
 protected:
  void SetUp() override {}
  static constexpr std::size_t kHugePage = 2 * kMiB;
  // Ten MiB from within a huge page, of which `part` will be written.
  Span* filled_in(std::size_t huge_from, std::uint32_t part = kSize) {
    start(8 * kSize * kSliceBytes, huge_from);
    static_cast<void>(allocate(1));
    Span* const span = allocate(kSize);
    EXPECT_TRUE(space.fill(*span, {part}, kEverything));
    return span;
  }
  static constexpr std::uint32_t kSize = 5 * kHugePage / kSliceBytes;
};

TEST_F(HugeFills, populate_what_no_free_span_had) {
  const Span* const span = filled_in(0);
  EXPECT_EQ(system.huge_bytes_once(), 4 * kHugePage);
  EXPECT_EQ(span->absent_from % kHugePage, 0U);
  EXPECT_TRUE(span->is_filled);
}

TEST_F(HugeFills, populate_no_more_than_will_be_written) {
  const Span* const span = filled_in(0, kSize / 2);
  const Address end = span->base + Slices{kSize / 2 - 1}.bytes();
  EXPECT_EQ(span->absent_from, align_down(end, kHugePage));
  EXPECT_EQ(system.huge_bytes_once(), span->absent_from - align_up(span->base, kHugePage));
}

TEST_F(HugeFills, do_not_come_in_a_small_process) {
  const Span* const span = filled_in(kEverything);
  EXPECT_EQ(system.huge_bytes_once(), 0U);
  EXPECT_FALSE(span->is_filled);
}

// --- the rest ------------------------------------------------------------------------------------

TEST_F(SpaceMoves, leave_huge_pages_where_they_are) {
  const auto spans = three_huge_pages();
  for (Span* const span : spans) {
    fill(span, 7);
    space.free(span);
  }
  const std::size_t before = space.dirty_bytes();
  ASSERT_GT(before, 0U);
  Span* const span = filled(static_cast<std::uint32_t>(spans.size()) + 1);
  EXPECT_EQ(space.counters().moved, 0U);
  EXPECT_EQ(space.dirty_bytes(), before);
  EXPECT_TRUE(span->zero);
}

// Such a region grows and moves as one mapping.
TEST_F(SpaceMoves, leave_a_span_alone_that_is_a_region) {
  dirty({8});
  Span* const span = filled(kRegionBytes / kSliceBytes + 1);
  EXPECT_EQ(space.counters().moved, 0U);
  EXPECT_TRUE(space.remap(span, span->size + Slices{1}));
}

TEST_F(SpaceMoves, keep_the_order_of_what_stays) {
  Span* const old = allocate(4);
  static_cast<void>(allocate(1));
  Span* const young = allocate(9);
  static_cast<void>(allocate(1));
  space.free(old);
  system.advance_clock(60);
  space.free(young);
  static_cast<void>(filled(20, 5));
  system.advance_clock(50);
  EXPECT_EQ(space.purge(100, kEverything, kEverything), Slices{4}.bytes());
  system.advance_clock(60);
  EXPECT_EQ(space.purge(100, kEverything, kEverything), Slices{4}.bytes());
}

TEST_F(SpaceMoves, count_what_will_be_written_in_the_recent_peak) {
  constexpr std::uint32_t kLarge = 100;
  const auto use = [&](std::uint32_t part) {
    Span* const span = allocate(kLarge);
    EXPECT_TRUE(space.fill(*span, {part}, kEverything));
    return span;
  };
  space.free(allocate(kLarge));
  EXPECT_EQ(space.below_peak(), 0U) << "a large span may be untouched";
  space.free(use(30));
  EXPECT_EQ(space.below_peak(), Slices{30}.bytes());
  Span* const again = use(30);
  EXPECT_TRUE(space.fill(*again, {20}, kEverything)) << "as if a domain had kept it";
  EXPECT_EQ(space.below_peak(), Slices{10}.bytes());
  space.free(again);
  EXPECT_EQ(space.below_peak(), Slices{30}.bytes());
  space.free(use(kLarge));
  EXPECT_EQ(space.below_peak(), Slices{kLarge}.bytes());
  space.free(use(50));
  EXPECT_EQ(space.below_peak(), Slices{kLarge}.bytes());
  Span* const shorter = use(kLarge);
  space.shrink(shorter, {60});
  EXPECT_EQ(space.below_peak(), Slices{40}.bytes());
  ASSERT_TRUE(space.grow(shorter, {80}));
  EXPECT_EQ(space.below_peak(), Slices{20}.bytes());
}

// Each begins and ends a mapping within a clean span. There are as many as the process can spare.
TEST_F(SpaceMoves, end_before_mappings_are_scarce) {
  if (!kAddressesAbound) GTEST_SKIP() << "takes more addresses than the fake has";
  constexpr std::size_t kMost = 8192 / 2;
  const auto make = [&](std::uint32_t slices) {
    std::vector<Span*> spans(kMost + 200);
    for (Span*& span : spans) {
      span = allocate(slices);
      static_cast<void>(allocate(1));
    }
    return spans;
  };
  std::vector<Span*> holes = make(3);
  const std::vector<Span*> donors = make(1);
  for (Span* const span : holes) space.free(span);
  static_cast<void>(space.purge_free());
  for (Span* const span : donors) space.free(span);
  for (Span*& span : holes) {
    span = filled(3, 1);
    memory(span)[kSliceBytes] = 1;  // as was guessed
  }
  const std::uint64_t moves = space.counters().moves;
  EXPECT_GE(moves, kMost);
  EXPECT_LT(moves, holes.size()) << "the first in a region begins nothing";
  EXPECT_EQ(system.moved_pieces(), moves);
  space.free(holes.front());
  static_cast<void>(space.purge_free());
  for (Span* const span : make(1)) space.free(span);
  static_cast<void>(filled(3, 1));
  EXPECT_EQ(space.counters().moves, moves + 1) << "one mapping is spare again";
}

}  // namespace
}  // namespace allod::test

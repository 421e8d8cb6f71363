// Layer 3: guards, and places at random.
#include <gtest/gtest.h>

#include <algorithm>

#include "space_world.hpp"

namespace allod::test {
namespace {

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

// What lies behind the last span cannot be reached by a stray write.
TEST_F(SpaceAtRandom, nothing_is_usable_that_no_span_has_had) {
  start();
  static_cast<void>(allocate_slab());
  static_cast<void>(allocate(5));
  space.for_each_untouched([](Address, std::size_t) { ADD_FAILURE(); });
}
TEST_F(SpaceOfSpans, memory_that_no_span_has_had_is_visited) {
  start();
  const Span* const span = allocate(5);
  std::size_t visits = 0;
  space.for_each_untouched([&](Address from, std::size_t bytes) {
    EXPECT_EQ(from, end_of(*span));
    EXPECT_GT(bytes, 0U);
    ++visits;
  });
  EXPECT_EQ(visits, 1U);
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

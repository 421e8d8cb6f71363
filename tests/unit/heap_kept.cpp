// Layer 5: huge blocks that domains keep for their next request.
#include <gtest/gtest.h>

#include <algorithm>

#include "heap_world.hpp"

namespace allod::test {
namespace {

constexpr std::size_t kHuge = 5 * kMiB;

class HeapKept : public HeapWorld {
 protected:
  void SetUp() override {
    HeapWorld::SetUp();
    heap.options().purge_delay_ms = 500;
    heap.options().purge_budget = 16 * kMiB;
    start_helper();
  }
  // Dirty memory makes it start.
  void start_helper() {
    Domain& domain = attach();
    void* const block = allocate(domain, kHuge);
    release(domain, block);
    EXPECT_FALSE(is_kept(block));
    ASSERT_TRUE(system.helper_waits());
    heap.trim(domain);
    heap.detach(domain);
  }
  // Of which little is in memory.
  void* allocate_sparse(Domain& domain, std::size_t size = kHuge,
                        std::size_t touched = kSliceBytes) {
    void* const block = allocate(domain, size);
    std::memset(block, 1, touched);
    return block;
  }
  std::vector<void*> keep_sparse(Domain& domain, std::size_t count, std::size_t size = kHuge,
                                 std::size_t touched = kSliceBytes) {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < count; ++i) {
      blocks.push_back(allocate_sparse(domain, size, touched));
    }
    release_all(domain, blocks);
    return blocks;
  }
  std::size_t count_kept(const std::vector<void*>& blocks) {
    return static_cast<std::size_t>(
        std::ranges::count_if(blocks, [&](const void* block) { return is_kept(block); }));
  }
  // A block that was just freed and is kept.
  void* keep(Domain& domain, std::size_t size = kHuge) {
    void* const block = allocate(domain, size);
    std::memset(block, 1, size);
    release(domain, block);
    EXPECT_TRUE(is_kept(block));
    return block;
  }
  bool is_kept(const void* block) {
    const space::Span* const span = heap.space().map().span_of(address_of(block));
    return span != nullptr && heap.is_kept(*span);
  }
  std::uint64_t span_calls() {
    const auto counters = heap.space().counters();
    return counters.span_allocations + counters.span_frees;
  }
  static std::size_t resident(const void* block) { return Fake::resident_bytes(block, kHuge); }
};

TEST_F(HeapKept, serves_the_next_request_for_as_much_without_the_space) {
  Domain& domain = attach();
  void* const block = keep(domain);
  const std::uint64_t before = span_calls();
  for (int i = 0; i < 10; ++i) {
    bool zero = false;
    EXPECT_EQ(program.allocate_zeroable(domain, kHuge, &zero), block);
    EXPECT_FALSE(zero);
    EXPECT_FALSE(is_kept(block));
    EXPECT_EQ(heap.usable_size(block), kHuge);
    release(domain, block);
  }
  EXPECT_EQ(span_calls(), before);
}

TEST_F(HeapKept, serves_hardly_smaller_requests_only) {
  Domain& domain = attach();
  void* const block = keep(domain);
  EXPECT_EQ(allocate(domain, kHuge - kHuge / 16), block);
  release(domain, block);
  void* const half = allocate(domain, kHuge / 2);
  EXPECT_EQ(half, block) << "cut from what was kept";
  EXPECT_EQ(used(), kHuge / 2);
  release(domain, half);
  EXPECT_NE(allocate(domain, 2 * kHuge), nullptr);
  EXPECT_FALSE(is_kept(half));
}

TEST_F(HeapKept, serves_aligned_requests_where_it_is_aligned) {
  Domain& domain = attach();
  auto* const block = static_cast<char*>(keep(domain));
  for (std::size_t alignment = kSliceBytes; alignment <= 8 * kMiB; alignment *= 2) {
    void* const aligned = heap.allocate_aligned(domain, kHuge, alignment, nullptr);
    EXPECT_EQ(address_of(aligned) % alignment, 0U);
    if (address_of(block) % alignment == 0) {
      EXPECT_EQ(aligned, block);
    }
    release(domain, aligned);
  }
}

TEST_F(HeapKept, is_what_slabs_and_growing_blocks_are_cut_from) {
  Domain& domain = attach();
  void* const block = keep(domain);
  EXPECT_EQ(heap.space().dirty_bytes(), 0U);
  void* const small = allocate(domain, 100);
  EXPECT_EQ(align_down(address_of(small), kSliceBytes), address_of(block));
  void* const other = keep(domain, 8 * kMiB);
  EXPECT_EQ(heap.allocate_growing(&domain, kMiB), other);
}

TEST_F(HeapKept, knows_that_it_was_freed) {
  Domain& domain = attach();
  auto* const block = static_cast<char*>(keep(domain));
  EXPECT_EQ(heap.usable_size(block), 0U);
  EXPECT_EQ(heap.bounds_of(block).start, nullptr);
  EXPECT_EQ(heap.bounds_of(block + kHuge / 2).start, nullptr);
  EXPECT_EQ(heap.describe(MisuseKind::double_free, block + kHuge / 2).block, nullptr);
  EXPECT_FALSE(heap.fits(domain, block, kHuge));
  EXPECT_EQ(heap.kind_of_interior(block + kHuge / 2), MisuseKind::double_free);
  for (char* const address : {block, block + kHuge / 2}) {
    release(domain, address);
    expect_one(MisuseKind::double_free, address);
    heap.release_detached(address);
    expect_one(MisuseKind::double_free, address);
  }
  EXPECT_EQ(allocate(domain, kHuge), block);
  release(domain, block + kHuge / 2);
  expect_one(MisuseKind::invalid_free, block + kHuge / 2);
}

TEST_F(HeapKept, takes_the_place_of_what_was_kept_before) {
  Domain& domain = attach();
  const std::vector<void*> blocks = allocate_many(domain, 3, kHuge);
  for (void* const block : blocks) std::memset(block, 1, kHuge);
  release_all(domain, blocks);
  EXPECT_FALSE(is_kept(blocks[0]));
  EXPECT_FALSE(is_kept(blocks[1]));
  EXPECT_TRUE(is_kept(blocks[2]));
  EXPECT_EQ(heap.space().dirty_bytes(), 2 * kHuge);
}

TEST_F(HeapKept, is_many_blocks_of_which_little_is_in_memory) {
  Domain& domain = attach();
  std::vector<void*> blocks = keep_sparse(domain, 10);
  EXPECT_EQ(count_kept(blocks), 10U);
  EXPECT_EQ(heap.space().dirty_bytes(), 0U);
  const std::uint64_t before = span_calls();
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> again = allocate_many(domain, 10, kHuge);
    EXPECT_EQ(count_kept(blocks), 0U);
    std::ranges::sort(blocks);
    std::ranges::sort(again);
    EXPECT_EQ(again, blocks) << "where their memory is";
    release_all(domain, again);
  }
  EXPECT_EQ(span_calls(), before);
}

TEST_F(HeapKept, is_cut_to_what_is_asked_for_and_lengthened_again) {
  heap.options().purge_budget = 64 * kMiB;
  Domain& domain = attach();
  void* const block = keep_sparse(domain, 2, 4 * kHuge).front();
  EXPECT_EQ(allocate_sparse(domain, kHuge), block) << "the one that was freed first";
  EXPECT_EQ(heap.usable_size(block), kHuge);
  EXPECT_EQ(used(), 5 * kHuge);
  void* const other = allocate(domain, 4 * kHuge);
  EXPECT_EQ(used(), 5 * kHuge) << "the whole of the other one";
  release(domain, block);
  EXPECT_EQ(allocate(domain, 2 * kHuge), block) << "what was cut off is behind it";
  EXPECT_EQ(heap.usable_size(block), 2 * kHuge);
  EXPECT_EQ(used(), 6 * kHuge);
  release(domain, static_cast<char*>(block) + kHuge);
  expect_one(MisuseKind::invalid_free, static_cast<char*>(block) + kHuge);
  release(domain, other);
}

TEST_F(HeapKept, is_the_smallest_sparse_block_that_is_large_enough_and_aligned) {
  Domain& domain = attach();
  std::vector<void*> blocks;
  for (const std::size_t size : {8 * kMiB, 6 * kMiB, 9 * kMiB, 5 * kMiB}) {
    blocks.push_back(allocate_sparse(domain, size));
  }
  release_all(domain, blocks);
  const auto is_aligned_to = [&](std::size_t alignment) {
    return address_of(blocks[1]) % alignment == 0;
  };
  if (!is_aligned_to(64 * kMiB)) {
    EXPECT_NE(heap.allocate_aligned(domain, 6 * kMiB, 64 * kMiB, nullptr), blocks[1]);
  }
  EXPECT_EQ(allocate(domain, 6 * kMiB), blocks[1]);
  EXPECT_EQ(allocate(domain, 7 * kMiB), blocks[0]);
}

TEST_F(HeapKept, is_no_sparse_block_for_who_wants_zeros) {
  Domain& domain = attach();
  const std::vector<void*> blocks = keep_sparse(domain, 3);
  bool zero = false;
  void* const block = program.allocate_zeroable(domain, kHuge + kMiB, &zero);
  EXPECT_TRUE(zero) << "nothing has to be cleared, and so comes into memory";
  EXPECT_EQ(count_kept(blocks), 3U);
  release(domain, block);
}

TEST_F(HeapKept, is_as_many_sparse_blocks_as_their_memory_is_a_part_of_the_budget) {
  Domain& domain = attach();
  const std::vector<void*> blocks = keep_sparse(domain, 8, kHuge, 2 * kMiB);
  // 5 MiB for the one that was freed last, and 2 MiB for each of the others.
  EXPECT_EQ(count_kept(blocks), 6U);
  EXPECT_FALSE(is_kept(blocks[0])) << "the oldest have given way";
  EXPECT_FALSE(is_kept(blocks[1]));
}

TEST_F(HeapKept, is_few_sparse_blocks_whatever_is_in_memory) {
  Domain& domain = attach();
  const std::vector<void*> blocks = keep_sparse(domain, 40, kHuge, 1);
  EXPECT_EQ(count_kept(blocks), 17U);
  EXPECT_TRUE(is_kept(blocks.back()));
  EXPECT_TRUE(is_kept(blocks[23]));
  EXPECT_FALSE(is_kept(blocks[22]));
}

TEST_F(HeapKept, is_no_sparse_block_where_the_system_does_not_tell) {
  Domain& domain = attach();
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::present) system.fail_call(call, 1);
  });
  EXPECT_EQ(count_kept(keep_sparse(domain, 5)), 1U);
}

TEST_F(HeapKept, makes_way_for_slabs_but_where_it_is_sparse) {
  Domain& domain = attach();
  const std::vector<void*> blocks = keep_sparse(domain, 2);
  static_cast<void>(allocate(domain, 100));
  EXPECT_EQ(count_kept(blocks), 2U);
}

TEST_F(HeapKept, gives_sparse_blocks_back_that_are_not_asked_for) {
  Domain& domain = attach();
  const std::vector<void*> blocks = keep_sparse(domain, 4);
  void* const busy = allocate(domain, 3 * kHuge);
  std::uint64_t waits = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait) return;
    if (++waits == 1) {
      EXPECT_EQ(count_kept(blocks), 4U);
    }
    if (waits <= 8) {
      // Another one is freed and asked for all the time.
      release(domain, busy);
      EXPECT_EQ(allocate(domain, 3 * kHuge), busy);
    }
  });
  system.run_helper();
  EXPECT_GT(waits, 8U);
  EXPECT_EQ(count_kept(blocks), 0U);
  for (const void* const block : blocks) EXPECT_EQ(resident(block), 0U);
  EXPECT_EQ(used(), 3 * kHuge);
}

TEST_F(HeapKept, gives_sparse_blocks_back_with_all_else) {
  Domain& one = attach();
  Domain& two = attach();
  const std::vector<void*> first = keep_sparse(one, 3);
  std::vector<void*> second = keep_sparse(two, 3);
  heap.detach(two);
  EXPECT_EQ(count_kept(second), 0U);
  EXPECT_EQ(count_kept(first), 3U);
  heap.trim(one);
  EXPECT_EQ(count_kept(first), 0U);
  EXPECT_EQ(used(), 0U);
  Domain& own = attach();
  Domain& other = attach();
  const std::vector<void*> mine = keep_sparse(own, 3);
  const std::vector<void*> others = keep_sparse(other, 3);
  heap.before_fork(&own);
  heap.after_fork_in_child(&own);
  EXPECT_EQ(count_kept(mine) + count_kept(others), 0U);
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapKept, serves_others_with_sparse_blocks_when_the_system_refuses) {
  Domain& one = attach();
  Domain& two = attach();
  static_cast<void>(allocate(two, 100));
  const std::vector<void*> blocks = keep_sparse(one, 3, 12 * kMiB);
  system.set_address_space_limit(kMiB);
  EXPECT_NE(allocate(two, 12 * kMiB), nullptr);
  EXPECT_EQ(count_kept(blocks), 0U);
}

TEST_F(HeapKept, is_a_part_of_the_budget) {
  std::vector<Domain*> domains;
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) {
    domains.push_back(&attach());
    blocks.push_back(allocate(*domains.back(), kHuge));
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) release(*domains[i], blocks[i]);
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(is_kept(blocks[i]), i < 3) << i;
  // What is left of the budget is less than a block, and callers purge by steps.
  for (Domain* const domain : domains) pass_time(*domain, 10 * 256);
  EXPECT_LE(heap.space().dirty_bytes(), kHuge) << "what was freed last, and no more";
  system.run_helper();
}

TEST_F(HeapKept, is_nothing_where_nobody_would_see_to_it) {
  Domain& domain = attach();
  const auto expect_not_kept = [&] {
    void* const block = allocate(domain, kHuge);
    release(domain, block);
    EXPECT_FALSE(is_kept(block));
  };
  heap.options().purge_budget = kHuge - 1;
  expect_not_kept();
  heap.options().purge_budget = 16 * kMiB;
  heap.options().purge_thread = false;
  expect_not_kept();
  heap.options().purge_thread = true;
  for (const std::int32_t delay : {0, -1}) {
    heap.options().purge_delay_ms = delay;
    expect_not_kept();
  }
  heap.options().purge_delay_ms = 500;
  void* const detached = allocate(domain, kHuge);
  heap.release_detached(detached);
  EXPECT_FALSE(is_kept(detached)) << "by a thread without a domain";
}

TEST_F(HeapKept, is_nothing_when_the_system_has_no_helper) {
  system.run_helper();
  Domain& domain = attach();
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::start_helper) system.fail_call(call, 1);
  });
  for (int i = 0; i < 4; ++i) {
    void* const block = allocate(domain, kHuge);
    release(domain, block);
    EXPECT_FALSE(is_kept(block));
    EXPECT_FALSE(system.helper_waits());
  }
  system.set_observer(nullptr);
  heap.options().purge_budget = kHuge;
  start_helper();
  static_cast<void>(keep(attach()));  // for which nothing is left if another holds it
  system.run_helper();
}

TEST_F(HeapKept, ends_when_the_helper_may_not_go_on) {
  Domain& domain = attach();
  void* block = keep(domain);
  heap.options().purge_delay_ms = 0;
  system.run_helper();
  EXPECT_FALSE(is_kept(block));
  EXPECT_EQ(resident(block), 0U) << "at once, from now on";
  heap.options().purge_delay_ms = 500;
  start_helper();
  block = keep(domain);
  void* const other = allocate(domain, 3 * kMiB);
  std::memset(other, 1, 3 * kMiB);
  release(domain, other);
  block = keep(domain);
  system.set_purge(Fake::Purge::refuses);
  system.run_helper();
  EXPECT_TRUE(heap.space().refuses_purge());
  EXPECT_FALSE(is_kept(block));
}

TEST_F(HeapKept, ends_while_the_helper_goes_on_for_heaps_with_delays) {
  Domain& domain = attach();
  void* const block = keep(domain);
  space::PageWishes wishes;
  wishes.purging = space::Purging::after_delay;
  wishes.delay_ms = 60'000;
  int error = 0;
  auto* const own = heap.create_heap("own", wishes, &error);
  ASSERT_NE(own, nullptr);
  heaps::HeapRequest request{.size = 8 * kMiB};
  void* const delayed = heap.allocate_in(&domain, *own, request);
  std::memset(delayed, 1, request.size);
  heap.release_in(&domain, *own, delayed);
  heap.collect_heap(*own);
  heap.options().purge_delay_ms = -1;
  std::uint64_t waits = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits != 2) return;
    EXPECT_NE(heap.space().delayed_bytes(), 0U);
    EXPECT_FALSE(is_kept(block));
  });
  system.run_helper();
  EXPECT_GE(waits, 2U);
  heap.destroy_heap(*own);
}

TEST_F(HeapKept, has_a_helper_for_who_frees_while_one_leaves) {
  heap.options().purge_budget = 0;
  Domain& domain = attach();
  void* const late = allocate(domain, 8 * kMiB);
  std::memset(late, 1, 8 * kMiB);
  release(domain, allocate(domain, kHuge));
  heap.options().purge_delay_ms = 0;
  bool is_late = false;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::purge || std::exchange(is_late, true)) return;
    heap.options().purge_delay_ms = 500;
    release(domain, late);
    EXPECT_GE(heap.space().dirty_bytes(), 8 * kMiB);
  });
  system.run_helper();
  EXPECT_TRUE(is_late);
  EXPECT_EQ(heap.space().dirty_bytes(), 0U);
}

TEST_F(HeapKept, asks_for_no_share_that_nobody_can_give) {
  static_cast<void>(keep(attach()));
  Domain& domain = attach();
  heap.options().purge_budget = 8 * kMiB;
  void* const block = allocate(domain, 9 * kMiB);
  const std::uint64_t before = Fake::wakes();
  release(domain, block);
  EXPECT_EQ(Fake::wakes(), before);
}

TEST_F(HeapKept, is_not_what_could_not_be_unguarded) {
  system.set_guards(true);
  auto& space = heap.space();
  void* const block = allocate(attach(), kHuge);
  space::Span* const span = space.map().span_of(address_of(block));
  space.guard(*span, end_of(*span) - 4096);
  ASSERT_TRUE(space::is_partly_closed(*span));
  system.fail_call(Fake::Call::unguard, 1);
  space.free(span);
  EXPECT_FALSE(heap.is_kept(*span));
}

TEST_F(HeapKept, goes_back_to_the_system_when_it_is_not_asked_for) {
  Domain& one = attach();
  Domain& two = attach();
  void* const first = keep(one);
  void* const second = keep(two);
  ASSERT_TRUE(system.helper_waits());
  const std::uint64_t start = system.now_ms();
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || system.now_ms() >= start + 500) return;
    EXPECT_EQ(resident(first), kHuge) << "too early";
  });
  system.run_helper();
  EXPECT_LE(system.now_ms(), start + 1000);
  EXPECT_EQ(resident(first), 0U);
  EXPECT_EQ(resident(second), 0U);
  EXPECT_FALSE(is_kept(first));
  // All of the budget is there again.
  heap.options().purge_budget = 2 * kHuge;
  start_helper();
  static_cast<void>(keep(one));
  static_cast<void>(keep(two));
  system.run_helper();
}

TEST_F(HeapKept, stays_while_it_is_asked_for_again_and_again) {
  Domain& domain = attach();
  void* const block = keep(domain);
  std::uint64_t waits = 0;
  std::size_t then = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits > 8) return;
    EXPECT_TRUE(is_kept(block));
    EXPECT_EQ(allocate(domain, kHuge), block);
    then = resident(block);
    release(domain, block);
  });
  system.run_helper();
  EXPECT_GT(waits, 8U);
  EXPECT_EQ(then, kHuge);
  EXPECT_EQ(resident(block), 0U);
}

TEST_F(HeapKept, holds_no_more_of_the_budget_than_it_is) {
  heap.options().purge_budget = 16 * kMiB;
  Domain& domain = attach();
  void* block = keep(domain, 16 * kMiB);
  block = allocate(domain, kHuge);
  Domain& other = attach();
  void* const others = allocate(other, kHuge);
  std::uint64_t waits = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait) return;
    if (++waits <= 4) {
      release(domain, block);
      EXPECT_TRUE(is_kept(block));
      EXPECT_EQ(allocate(domain, kHuge), block);
    } else if (waits == 5) {
      release(other, others);
      EXPECT_TRUE(is_kept(others));
    }
  });
  system.run_helper();
  EXPECT_GE(waits, 5U);
}

TEST_F(HeapKept, is_shared_with_who_wants_less) {
  Domain& greedy = attach();
  Domain& modest = attach();
  Domain& third = attach();
  void* const large = keep(greedy, 15 * kMiB);
  // Nobody gives way to who wants more.
  void* const larger = allocate(third, 16 * kMiB);
  release(third, larger);
  EXPECT_FALSE(is_kept(larger));
  EXPECT_EQ(keep(greedy, 15 * kMiB), large);
  void* const block = allocate(modest, kHuge);
  release(modest, block);
  EXPECT_FALSE(is_kept(block)) << "nothing is left";
  // Its owner goes on, and has more than its share.
  EXPECT_EQ(allocate(greedy, 15 * kMiB), large);
  release(greedy, large);
  EXPECT_FALSE(is_kept(large));
  void* const kept = keep(modest);
  // Half of the budget each.
  for (const std::size_t size : {8 * kMiB, 9 * kMiB}) {
    void* const more = allocate(third, size);
    release(third, more);
    EXPECT_EQ(is_kept(more), size == 8 * kMiB);
    EXPECT_TRUE(is_kept(kept));
  }
  system.run_helper();
}

TEST_F(HeapKept, is_taken_from_who_has_more_than_its_share_and_sleeps) {
  Domain& greedy = attach();
  Domain& modest = attach();
  void* const large = keep(greedy, 15 * kMiB);
  void* const block = allocate(modest, kHuge);
  release(modest, block);
  EXPECT_TRUE(is_kept(large));
  std::uint64_t waits = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits != 1) return;
    EXPECT_FALSE(is_kept(large)) << "before the helper has waited once";
    static_cast<void>(keep(modest));
  });
  system.run_helper();
  EXPECT_GE(waits, 1U);
  // And later it may have as much again.
  start_helper();
  static_cast<void>(keep(greedy, 15 * kMiB));
  system.run_helper();
}

TEST_F(HeapKept, is_left_alone_in_a_slow_path) {
  Domain& domain = attach();
  void* const block = keep(domain);
  std::uint64_t waits = 0;
  domain.in_slow_path = true;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits != 6) return;
    EXPECT_TRUE(is_kept(block));
    domain.in_slow_path = false;
  });
  system.run_helper();
  EXPECT_GE(waits, 6U);
  EXPECT_FALSE(is_kept(block));
}

TEST_F(HeapKept, keeps_to_a_budget_that_became_smaller) {
  Domain& domain = attach();
  void* block = keep(domain, 12 * kMiB);
  heap.options().purge_budget = kHuge;
  std::uint64_t waits = 0;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::wait || ++waits > 4) return;
    block = allocate(domain, 12 * kMiB);
    release(domain, block);
    if (waits > 2) {
      EXPECT_FALSE(is_kept(block));
    }
  });
  system.run_helper();
  EXPECT_GT(waits, 4U);
}

TEST_F(HeapKept, leaves_a_quarter_of_the_budget_to_others) {
  Domain& domain = attach();
  std::vector<void*> slabs;
  for (int i = 0; i < 3; ++i) slabs.push_back(allocate(domain, kMiB));
  void* const block = keep(domain, 16 * kMiB);
  heap.give_up(domain);
  release_all(domain, slabs);
  pass_time(domain, 10 * 256);
  EXPECT_GE(heap.space().dirty_bytes(), 2 * kMiB);
  static_cast<void>(block);
  system.run_helper();
}

TEST_F(HeapKept, makes_room_for_what_grows_in_place) {
  Domain& domain = attach();
  auto* const grown = static_cast<char*>(allocate(domain, kHuge));
  ASSERT_EQ(keep(domain), grown + kHuge);
  EXPECT_EQ(heap.resize_in_place(&domain, grown, 2 * kHuge), grown);
  EXPECT_EQ(used(), 2 * kHuge);
}

TEST_F(HeapKept, gives_no_way_to_what_is_rarely_asked_for) {
  Domain& domain = attach();
  void* const small = heap.allocate_growing(&domain, 100 * kKiB);
  void* const block = keep(domain);
  release(domain, small);
  EXPECT_TRUE(is_kept(block));
  // Aligned ones are spans whatever their size.
  heap.give_up_kept();
  void* const aligned = heap.allocate_aligned(domain, 100 * kKiB, kMiB, nullptr);
  release(domain, aligned);
  EXPECT_TRUE(is_kept(aligned));
  EXPECT_EQ(heap.allocate_aligned(domain, 100 * kKiB, kMiB, nullptr), aligned);
}

TEST_F(HeapKept, serves_heaps_without_a_domain_when_the_system_refuses) {
  auto* const own = heap.create_heap(nullptr);
  ASSERT_NE(own, nullptr);
  Domain& domain = attach();
  void* const block = keep(domain, 12 * kMiB);
  system.set_address_space_limit(kMiB);
  heaps::HeapRequest request{.size = 12 * kMiB};
  EXPECT_EQ(heap.allocate_in(nullptr, *own, request), block);
}

TEST_F(HeapKept, stays_when_a_buffer_is_full) {
  std::vector<char> memory(8 * kSliceBytes);
  space::PageWishes wishes;
  wishes.buffer = address_of(memory.data());
  wishes.buffer_bytes = memory.size();
  int error = 0;
  auto* const own = heap.create_heap("own", wishes, &error);
  ASSERT_NE(own, nullptr);
  Domain& domain = attach();
  void* const block = keep(domain);
  heaps::HeapRequest request{.size = memory.size() + 1};
  EXPECT_EQ(heap.allocate_in(&domain, *own, request), nullptr);
  EXPECT_TRUE(is_kept(block));
}

TEST_F(HeapKept, serves_others_when_the_system_refuses) {
  Domain& one = attach();
  Domain& two = attach();
  static_cast<void>(allocate(two, 100));
  void* const block = keep(one, 12 * kMiB);
  system.set_address_space_limit(kMiB);
  EXPECT_EQ(allocate(two, 12 * kMiB), block);
}

TEST_F(HeapKept, goes_when_all_is_to_go) {
  Domain& one = attach();
  Domain& two = attach();
  void* const first = keep(one);
  void* const second = keep(two);
  EXPECT_GE(heap.trim(one), 2 * kHuge);
  EXPECT_EQ(resident(first), 0U);
  EXPECT_EQ(resident(second), 0U);
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapKept, goes_with_its_thread) {
  Domain& domain = attach();
  void* const block = keep(domain);
  heap.detach(domain);
  EXPECT_FALSE(is_kept(block));
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(heap.space().dirty_bytes(), kHuge);
  heap.options().purge_budget = kHuge;
  static_cast<void>(keep(attach()));
}

TEST_F(HeapKept, is_nobodys_in_a_forked_child) {
  Domain& own = attach();
  Domain& other = attach();
  void* const mine = keep(own);
  void* const others = keep(other);
  ASSERT_TRUE(system.helper_waits());
  heap.before_fork(&own);
  heap.after_fork_in_child(&own);
  EXPECT_FALSE(is_kept(mine));
  EXPECT_FALSE(is_kept(others));
  EXPECT_EQ(used(), 0U);
  EXPECT_FALSE(system.helper_waits());
  heap.space().purge_free();
  pass_time(own, 300);
  EXPECT_FALSE(system.helper_waits()) << "for what the parent has reserved";
  heap.trim(own);
  system.advance_clock(20);  // after a fork none begins at once
  start_helper();
  static_cast<void>(keep(own));
}

TEST(HelperState, knows_each_start_from_the_others) {
  heap::HelperState state;
  EXPECT_TRUE(state.is_none());
  const std::uint32_t first = state.begin();
  ASSERT_NE(first, 0U);
  EXPECT_EQ(state.begin(), 0U);
  EXPECT_FALSE(state.is_none());
  EXPECT_FALSE(state.is_running());
  // It ends before who started it says that it runs.
  state.end();
  const std::uint32_t second = state.begin();
  ASSERT_NE(second, 0U);
  state.began(first);
  EXPECT_FALSE(state.is_running());
  state.began(second);
  EXPECT_TRUE(state.is_running());
  state.leave();
  EXPECT_FALSE(state.is_running());
  EXPECT_FALSE(state.is_none());
  state.began(second);
  EXPECT_FALSE(state.is_running());
  state.go_on();
  EXPECT_TRUE(state.is_running());
}

}  // namespace
}  // namespace allod::test

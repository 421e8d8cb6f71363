// Layer 5: huge blocks that domains keep for their next request.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "heap_kept.hpp"

namespace allod::test {
namespace {

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

}  // namespace
}  // namespace allod::test

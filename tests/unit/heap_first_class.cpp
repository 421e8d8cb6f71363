// Layer 5: first-class heaps.
#include <gtest/gtest.h>

#include <set>

#include "heap_first_class.hpp"

namespace allod::test {
namespace {

TEST_F(FirstClassHeap, serves_every_size_and_alignment) {
  HeapDomain& own = create();
  std::vector<void*> blocks;
  for (std::size_t size = 0; size < 3 * kMiB; size += 1 + size / 3) {
    for (std::size_t alignment = 1; alignment <= 256 * kKiB; alignment *= 4) {
      void* const block = allocate_in(own, size, alignment);
      ASSERT_NE(block, nullptr);
      ASSERT_EQ(address_of(block) % alignment, 0U);
      ASSERT_GE(heap.usable_size(block), size);
      std::memset(block, 0x5a, size);
      blocks.push_back(block);
    }
  }
  EXPECT_EQ(walk(own), std::set<void*>(blocks.begin(), blocks.end()));
  EXPECT_EQ(figures(own).live_blocks, blocks.size());
  heap.check_invariants();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    i % 2 == 0 ? release_in(own, blocks[i]) : release(*caller, blocks[i]);
  }
  EXPECT_EQ(figures(own).live, 0U);
  EXPECT_EQ(figures(own).live_blocks, 0U);
  heap.collect_heap(own);
  EXPECT_EQ(figures(own).held, 0U);
  heap.delete_heap(own);
  EXPECT_EQ(used(), 0U);
}

TEST_F(FirstClassHeap, tells_the_zeros_of_fresh_memory) {
  HeapDomain& own = create();
  heaps::HeapRequest request{.size = 20 * kKiB};
  void* const block = heap.allocate_in(caller, own, request);
  EXPECT_TRUE(request.zero);
  std::memset(block, 1, 20 * kKiB);
  release_in(own, block);
  request = {.size = 20 * kKiB};
  EXPECT_EQ(heap.allocate_in(caller, own, request), block);
  EXPECT_FALSE(request.zero);
  heap.destroy_heap(own);
}

TEST_F(FirstClassHeap, takes_little_memory_while_it_is_empty) {
  static_cast<void>(create());
  const std::size_t before = heap.space().metadata().used_bytes();
  for (int i = 0; i < 1000; ++i) static_cast<void>(create());
  EXPECT_LE(heap.space().metadata().used_bytes() - before, 1000 * kKiB);
  EXPECT_EQ(used(), 0U);
}

TEST_F(FirstClassHeap, becomes_another_one_when_it_is_gone) {
  HeapDomain& first = create("first");
  const std::uint32_t id = first.id();
  heap.limit_heap(first, 100);
  heap.delete_heap(first);
  HeapDomain& second = create();
  EXPECT_EQ(&second, &first);
  EXPECT_EQ(second.id(), id);
  EXPECT_STREQ(second.name, "");
  EXPECT_EQ(second.figures.limit, ~std::size_t{0});
  std::size_t metadata = 0;
  for (int round = 0; round < 100; ++round) {
    HeapDomain& next = create();
    static_cast<void>(fill(next, 300, 16 + static_cast<std::size_t>(round)));
    round % 2 == 0 ? heap.destroy_heap(next) : static_cast<void>(heap.delete_heap(next));
    if (round % 2 == 0) continue;
    // What delete leaves goes when its blocks go, here at once.
    metadata = heap.space().metadata().used_bytes();
  }
  EXPECT_LT(metadata, 256 * kKiB);
}

TEST_F(FirstClassHeap, cuts_a_name_that_is_too_long) {
  const std::string name(100, 'n');
  EXPECT_STREQ(create(name.c_str()).name, name.substr(0, HeapDomain::kNameBytes - 1).c_str());
}

TEST_F(FirstClassHeap, shares_no_slab_with_others) {
  HeapDomain& one = create();
  HeapDomain& two = create();
  void* const a = allocate_in(one, 64);
  void* const b = allocate_in(two, 64);
  void* const c = allocate(*caller, 64);
  EXPECT_NE(&program.slab_of(a), &program.slab_of(b));
  EXPECT_NE(&program.slab_of(a), &program.slab_of(c));
  EXPECT_TRUE(heap.contains(one, a));
  EXPECT_FALSE(heap.contains(one, b));
  EXPECT_FALSE(heap.contains(one, c));
  EXPECT_FALSE(heap.contains(one, static_cast<char*>(a) + 1));
  EXPECT_FALSE(heap.contains(one, nullptr));
  release_in(one, a);
  EXPECT_FALSE(heap.contains(one, a));
  heap.destroy_heap(one);
  heap.destroy_heap(two);
}

// --- free ----------------------------------------------------------------------------------------

TEST_F(FirstClassHeap, gets_a_block_back_at_once_when_nobody_uses_it) {
  HeapDomain& own = create();
  void* const block = allocate_in(own, 64);
  release(*caller, block);
  EXPECT_EQ(own.figures.live_blocks, 0U);
  EXPECT_EQ(caller->counters.remote_frees.value(), 0U);
  EXPECT_EQ(allocate_in(own, 64), block);
  heap.destroy_heap(own);
}

TEST_F(FirstClassHeap, gets_a_block_back_later_when_somebody_uses_it) {
  HeapDomain& own = create();
  const std::vector<void*> blocks = fill(own, 10, 64);
  own.lean_to_nobody();
  own.lock.lock();
  release(*caller, blocks[3]);
  EXPECT_EQ(own.figures.live_blocks, 10U);
  EXPECT_EQ(caller->counters.remote_frees.value(), 1U);
  for (const heap::RemoteBatch& batch : caller->remote()) {
    EXPECT_EQ(batch.slab, nullptr) << "a batch would outlive the slab";
  }
  own.lock.unlock();
  EXPECT_EQ(figures(own).live_blocks, 9U);
  EXPECT_FALSE(heap.contains(own, blocks[3]));
  heap.destroy_heap(own);
}

TEST_F(FirstClassHeap, looks_now_and_then_for_what_others_freed) {
  HeapDomain& own = create();
  const std::vector<void*> blocks = fill(own, 10, 64);
  mark(blocks[0]);
  std::set<void*> fresh;
  for (int i = 0; i < 64; ++i) fresh.insert(allocate_in(own, 64));
  EXPECT_TRUE(fresh.contains(blocks[0]));
  heap.destroy_heap(own);
}

TEST_F(FirstClassHeap, frees_huge_blocks_from_threads_without_domain) {
  HeapDomain& own = create();
  void* const block = allocate_in(own, 5 * kMiB);
  EXPECT_EQ(figures(own).huge_blocks, 1U);
  heap.release_detached(block);
  EXPECT_EQ(figures(own).huge_blocks, 0U);
  EXPECT_EQ(used(), 0U);
}

TEST_F(FirstClassHeap, reports_misuse) {
  HeapDomain& own = create();
  HeapDomain& other = create();
  const std::vector<void*> blocks = fill(own, 5, 64);
  void* const huge = allocate_in(own, 5 * kMiB);

  release(*caller, static_cast<char*>(blocks[0]) + 1);
  expect_one(MisuseKind::invalid_free, static_cast<char*>(blocks[0]) + 1);
  release_in(own, static_cast<char*>(huge) + 16);
  expect_one(MisuseKind::invalid_free, static_cast<char*>(huge) + 16);
  heap.release_detached(static_cast<char*>(huge) + 16);
  expect_one(MisuseKind::invalid_free, static_cast<char*>(huge) + 16);

  release_in(own, blocks[1]);
  release_in(own, blocks[1]);
  expect_one(MisuseKind::double_free, blocks[1]);
  release(*caller, blocks[1]);
  expect_one(MisuseKind::double_free, blocks[1]);
  mark(blocks[1]);
  EXPECT_EQ(figures(own).live_blocks, 5U);
  expect_one(MisuseKind::double_free, blocks[1]);

  for (void* const block : {blocks[2], huge}) {
    release_in(other, block);
    const std::vector<Misuse> seen = reports();
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_EQ(seen[0].kind, MisuseKind::wrong_heap);
    EXPECT_EQ(seen[0].owner, own.id());
    EXPECT_EQ(seen[0].claimed_owner, other.id());
  }
  EXPECT_TRUE(heap.contains(own, blocks[2]));
  void* const plain = allocate(*caller, 64);
  release_in(own, plain);
  expect_one(MisuseKind::wrong_heap, plain);
  release_in(own, nullptr);

  heap.destroy_heap(own);
  release(*caller, blocks[2]);
  expect_one(MisuseKind::double_free, blocks[2]);
}

TEST_F(FirstClassHeap, that_is_gone_must_not_be_used) {
  HeapDomain& own = create();
  heap.destroy_heap(own);
  EXPECT_DEATH(static_cast<void>(allocate_in(own, 1)), "after it was deleted or destroyed");
  EXPECT_DEATH(heap.destroy_heap(own), "after it was deleted or destroyed");
  EXPECT_DEATH(heap.delete_heap(own), "after it was deleted or destroyed");
}

// --- realloc -------------------------------------------------------------------------------------

TEST_F(FirstClassHeap, keeps_a_block_that_is_resized) {
  HeapDomain& own = create();
  void* const block = allocate_in(own, 100);
  EXPECT_EQ(heap.resize_in_place(caller, block, 110), block);
  EXPECT_EQ(heap.resize_in_place(caller, block, 90), block);
  EXPECT_EQ(heap.resize_in_place(caller, block, 1000), nullptr);
  heaps::HeapRequest request{.size = 1000};
  bool owned = false;
  void* const beside = heap.allocate_beside(caller, block, request, &owned);
  EXPECT_TRUE(owned);
  EXPECT_TRUE(heap.contains(own, beside));
  void* const plain = allocate(*caller, 100);
  EXPECT_EQ(heap.allocate_beside(caller, plain, request, &owned), nullptr);
  EXPECT_FALSE(owned);
  heap.destroy_heap(own);
}

TEST_F(FirstClassHeap, grows_and_moves_huge_blocks_by_their_pages) {
  HeapDomain& own = create();
  void* const block = allocate_in(own, 20 * kMiB);
  std::memset(block, 7, 20 * kMiB);
  heap.limit_heap(own, 30 * kMiB);
  EXPECT_EQ(heap.resize_in_place(caller, block, 31 * kMiB), nullptr);
  void* const larger = heap.resize_in_place(caller, block, 30 * kMiB);
  ASSERT_NE(larger, nullptr);
  EXPECT_EQ(figures(own).live, 30 * kMiB);
  EXPECT_EQ(figures(own).held, 30 * kMiB);
  EXPECT_TRUE(is_all(larger, 20 * kMiB, 7));
  EXPECT_TRUE(heap.contains(own, larger));
  EXPECT_EQ(heap.resize_in_place(caller, larger, 10 * kMiB), larger);
  EXPECT_EQ(figures(own).live, 10 * kMiB);
  EXPECT_EQ(figures(own).peak_live, 30 * kMiB);
  heap.check_invariants();
  heap.delete_heap(own);
  void* const after = heap.resize_in_place(caller, larger, 5 * kMiB);
  EXPECT_EQ(after, larger);
  heap.check_invariants();
  release(*caller, after);
  EXPECT_EQ(used(), 0U);
}

// --- limit ---------------------------------------------------------------------------------------

TEST_F(FirstClassHeap, keeps_to_its_limit) {
  HeapDomain& own = create();
  heap.limit_heap(own, 640);
  std::vector<void*> blocks = fill(own, 10, 64);
  heaps::HeapRequest request{.size = 1};
  EXPECT_EQ(heap.allocate_in(caller, own, request), nullptr);
  EXPECT_TRUE(request.over_limit);
  EXPECT_EQ(figures(own).refused, 1U);
  mark(blocks[0]);
  EXPECT_NE(allocate_in(own, 64), nullptr) << "what others freed counts no more";
  EXPECT_EQ(allocate_in(own, 5 * kMiB), nullptr);
  heap.limit_heap(own, 64);
  release_in(own, blocks[1]);
  EXPECT_EQ(allocate_in(own, 8), nullptr);
  heap.limit_heap(own, ~std::size_t{0});
  EXPECT_NE(allocate_in(own, 5 * kMiB), nullptr);
  heap.destroy_heap(own);
}

// --- the end -------------------------------------------------------------------------------------

TEST_F(FirstClassHeap, leaves_its_blocks_to_others_when_it_is_deleted) {
  HeapDomain& own = create();
  const std::vector<void*> blocks = fill(own, 3000, 64);
  void* const huge = allocate_in(own, 5 * kMiB);
  mark(blocks[2999]);
  std::memset(blocks[0], 3, 64);
  heap.delete_heap(own);
  heap.check_invariants();
  EXPECT_EQ(count_orphans(), 3U);
  EXPECT_TRUE(is_all(blocks[0], 64, 3));
  EXPECT_EQ(heap.usable_size(huge), 5 * kMiB);
  HeapDomain& next = create();
  EXPECT_EQ(&next, &own);
  EXPECT_TRUE(walk(next).empty());
  EXPECT_FALSE(heap.contains(next, blocks[0]));
  for (std::size_t i = 0; i < 2999; ++i) release(*caller, blocks[i]);
  release(*caller, huge);
  heap.trim(*caller);
  EXPECT_EQ(used(), 0U);
}

TEST_F(FirstClassHeap, never_takes_an_orphan) {
  Domain& leaving = attach();
  const std::vector<void*> blocks = allocate_many(leaving, 10, 64);
  // A free that waits in a batch.
  release(*caller, blocks[0]);
  heap.detach(leaving);
  HeapDomain& own = create();
  void* const block = allocate_in(own, 64);
  EXPECT_NE(&program.slab_of(block), &program.slab_of(blocks[0]));
  heap.destroy_heap(own);
  EXPECT_EQ(count_orphans(), 1U);
}

TEST_F(FirstClassHeap, is_destroyed_with_everything_in_it) {
  HeapDomain& own = create();
  for (std::size_t size = 1; size < 3 * kMiB; size += 1 + size / 2) {
    static_cast<void>(fill(own, 50, size));
  }
  heap.destroy_heap(own);
  heap.check_invariants();
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(count_orphans(), 0U);
}

TEST_F(FirstClassHeap, leaves_no_mark_in_the_descriptors_of_what_it_destroys) {
  HeapDomain& own = create();
  const std::vector<void*> blocks = fill(own, 1024, 64);
  Slab* const slab = &program.slab_of(blocks[0]);
  for (void* const block : blocks) mark(block);
  heap.destroy_heap(own);
  // The descriptor serves somebody else now, who must not lose a block.
  const std::vector<void*> others = allocate_many(*caller, 1000, 64);
  ASSERT_EQ(&program.slab_of(others[0]), slab);
  EXPECT_EQ(slab->remote_count(), 0U);
  heap.trim(*caller);
  release_all(*caller, others);
}

TEST_F(FirstClassHeap, of_many_blocks_is_destroyed_in_few_steps) {
  HeapDomain& own = create();
  static_cast<void>(fill(own, 100'000, 16));
  const std::uint64_t before = heap.space().counters().span_frees;
  const std::size_t slabs = figures(own).slabs;
  heap.destroy_heap(own);
  EXPECT_EQ(heap.space().counters().span_frees - before, slabs);
  EXPECT_LT(slabs, 30U);
}

// A thread read the heap as the owner just before the heap went, and announces a slab now.
TEST_F(FirstClassHeap, passes_on_what_is_announced_to_it_too_late) {
  HeapDomain& own = create();
  const std::vector<void*> blocks = fill(own, 10, 64);
  Slab& slab = program.slab_of(blocks[0]);
  heap.delete_heap(own);
  HeapDomain& next = create();
  ASSERT_EQ(&next, &own);
  void* const mine = allocate(*caller, 64);
  ASSERT_EQ(slab.owner(), caller) << "adopted";
  const std::uint32_t index = slab.index_of(address_of(blocks[0]));
  static_cast<void>(slab.give_remotely(index / kWordBits, bit(index % kWordBits)));
  ASSERT_EQ(slab.is_announced(), false);
  slab.set_owner(&next);
  slab.announce();
  slab.set_owner(caller);
  EXPECT_EQ(figures(next).live_blocks, 0U);
  heap.trim(*caller);
  EXPECT_EQ(slab.remote_count(), 0U) << "its owner of today has heard of it";
  release(*caller, mine);
  heap.destroy_heap(next);
}

// --- walking -------------------------------------------------------------------------------------

TEST_F(FirstClassHeap, may_be_changed_by_who_walks_it) {
  HeapDomain& own = create();
  for (const std::size_t size : {16U, 64U, 5000U, 70'000U}) static_cast<void>(fill(own, 200, size));
  std::size_t told = 0;
  EXPECT_TRUE(heap.walk_heap(own, [&](void* block, std::size_t) {
    release_in(own, block);
    if (told < 50) {
      EXPECT_NE(allocate_in(own, 300), nullptr);
    }
    return ++told < 600;
  }));
  EXPECT_EQ(told, 600U);
  heap.check_invariants();
  bool destroyed = false;
  EXPECT_TRUE(heap.walk_heap(own, [&](void*, std::size_t) {
    if (!destroyed) heap.destroy_heap(own);
    destroyed = true;
    return true;
  }));
  EXPECT_EQ(used(), 0U);
}

TEST_F(FirstClassHeap, cannot_be_walked_without_memory_for_it) {
  HeapDomain& own = create();
  static_cast<void>(fill(own, 10, 64));
  system.fail_call(Fake::Call::map, 1);
  EXPECT_FALSE(heap.walk_heap(own, [](void*, std::size_t) { return true; }));
  heap.destroy_heap(own);
}

// --- faults --------------------------------------------------------------------------------------

TEST_F(FirstClassHeap, fails_cleanly_whatever_call_of_the_system_fails) {
  for (std::uint64_t nth = 1; nth < 60; ++nth) {
    FakeProgram other;
    other.start(calm());
    auto& space = other.heap();
    Domain* const domain = space.attach();
    if (domain == nullptr) continue;
    other.system().fail_nth_call(nth);
    std::vector<HeapDomain*> made;
    for (int i = 0; i < 400; ++i) {
      if (HeapDomain* const one = space.create_heap("many")) made.push_back(one);
    }
    for (HeapDomain* const one : made) {
      for (const std::size_t size : {20U, 3000U, 100'000U, 2'000'000U}) {
        heaps::HeapRequest request{.size = size};
        void* const block = space.allocate_in(domain, *one, request);
        if (block != nullptr) std::memset(block, 1, size);
        if (size == 3000U) space.release_in(domain, *one, block);
      }
      if (made.size() > 20 && one == made[20]) break;
    }
    space.check_invariants();
    for (HeapDomain* const one : made) space.destroy_heap(*one);
    space.check_invariants();
    EXPECT_EQ(other.space().counters().used, 0U);
    if (other.system().injected_failures() == 0) break;
  }
}

TEST_F(FirstClassHeap, takes_what_the_caller_has_in_stock_when_the_system_gives_no_more) {
  HeapDomain& own = create();
  release_all(*caller, allocate_many(*caller, 2000, 500));
  system.fail_from_call(1);
  std::size_t blocks = 0;
  while (allocate_in(own, 500) != nullptr) ++blocks;
  EXPECT_GT(blocks, 2000U);
  EXPECT_EQ(caller->cached(Sizes::of(500)), 0U);
  system.succeed();
  heap.destroy_heap(own);
}

}  // namespace
}  // namespace allod::test

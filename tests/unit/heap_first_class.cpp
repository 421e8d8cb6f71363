// Layer 5: first-class heaps.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "heap_world.hpp"

namespace allod::test {
namespace {

class FirstClassHeap : public HeapWorld {
 protected:
  using HeapDomain = FakeProgram::Heap::HeapDomain;

  void SetUp() override {
    HeapWorld::SetUp();
    caller = &attach();
  }
  // A thread to which heaps may lean.
  Domain& attach() {
    Domain& domain = HeapWorld::attach();
    always_check(heap.take_seat(), "no seat");
    return domain;
  }
  HeapDomain& create(const char* name = nullptr) {
    HeapDomain* const made = heap.create_heap(name);
    always_check(made != nullptr, "no heap");
    return *made;
  }
  void* allocate_in(HeapDomain& in, std::size_t size, std::size_t alignment = 1) {
    heaps::HeapRequest request{.size = size, .alignment = alignment};
    return heap.allocate_in(caller, in, request);
  }
  std::vector<void*> fill(HeapDomain& in, std::size_t count, std::size_t size) {
    std::vector<void*> blocks(count);
    for (void*& block : blocks) block = allocate_in(in, size);
    return blocks;
  }
  void release_in(HeapDomain& in, void* block) { heap.release_in(caller, in, block); }
  heaps::HeapFigures figures(HeapDomain& of) { return heap.figures_of(of); }
  std::set<void*> walk(HeapDomain& through) {
    std::set<void*> seen;
    EXPECT_TRUE(heap.walk_heap(through, [&](void* block, std::size_t bytes) {
      EXPECT_EQ(bytes, heap.usable_size(block));
      EXPECT_TRUE(seen.insert(block).second) << "a block is told twice";
      return true;
    }));
    return seen;
  }
  std::size_t count_orphans() {
    std::size_t count = 0;
    LockGuard guard{heap.registry_lock()};
    heap.for_each_orphan([&](const Slab&) { ++count; });
    return count;
  }
  static heaps::Seat& seat() { return *static_cast<heaps::Seat*>(Fake::own_word()); }
  static bool leans_to_nobody(const HeapDomain& own) {
    return own.leans_to.load() == &heaps::nobodys_seat;
  }
  static const void* in_turn_on(const heaps::HeapTurns<FakeProgram::Heap::Lock>& turns) {
    return &turns;
  }
  // Puts whoever has the seat into a turn on a heap, and out again once somebody has waited for it
  // three times.
  void occupy(heaps::Seat& seat, const heaps::HeapTurns<FakeProgram::Heap::Lock>& turns) {
    seat.on.store(&turns);
    yields_ = 0;
    system.set_observer([this, &seat](Fake::Call call) {
      if (call == Fake::Call::yield && ++yields_ == 3) seat.on.store(nullptr);
    });
  }
  void expect_waited_for() {
    EXPECT_EQ(yields_, 3);
    system.set_observer({});
  }
  // Marks a block as a thread does that finds the heap in use.
  void mark(void* block) { heap.release_detached(block); }

  Domain* caller = nullptr;

 private:
  int yields_ = 0;
};

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

// --- fork ----------------------------------------------------------------------------------------

TEST_F(FirstClassHeap, goes_on_in_the_child_of_a_fork) {
  HeapDomain& own = create();
  Domain& other = attach();
  const std::vector<void*> blocks = fill(own, 100, 64);
  own.lean_to_nobody();
  own.lock.lock();
  release(other, blocks[0]);
  own.lock.unlock();
  system.set_thread(caller->thread);
  heap.before_fork(caller);
  EXPECT_NE(allocate_in(own, 64), nullptr) << "other handlers of the forking thread may allocate";
  heap.after_fork_in_child(caller);
  EXPECT_EQ(figures(own).live_blocks, 100U);
  release(*caller, blocks[1]);
  heap.destroy_heap(own);
  EXPECT_EQ(used(), 0U);
}

TEST_F(FirstClassHeap, is_waited_for_by_a_fork) {
  HeapDomain& own = create();
  system.set_thread(caller->thread);
  own.in_slow_path.store(true);
  int yields = 0;
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::yield && ++yields == 3) own.in_slow_path.store(false);
  });
  heap.before_fork(caller);
  EXPECT_EQ(yields, 3);
  system.set_observer({});
  heap.after_fork_in_parent();
}

TEST_F(FirstClassHeap, is_not_used_by_others_during_a_fork) {
  HeapDomain& own = create();
  Domain& other = attach();
  void* const block = allocate_in(own, 64);
  system.set_thread(caller->thread);
  heap.before_fork(caller);
  system.set_thread(other.thread);
  // A thread of its own does not hold what the forking one holds.
  const auto elsewhere = [](auto use) { std::thread{use}.join(); };
  EXPECT_DEATH(elsewhere([&] {
                 heaps::HeapRequest request{.size = 64};
                 static_cast<void>(heap.allocate_in(&other, own, request));
               }),
               "would wait for ever");
  EXPECT_DEATH(elsewhere([&] { heap.release(other, block); }), "would wait for ever");
  system.set_thread(caller->thread);
  heap.after_fork_in_parent();
  heap.destroy_heap(own);
}

// --- whose turn it is ----------------------------------------------------------------------------

TEST_F(FirstClassHeap, leans_to_its_maker_and_then_to_whoever_uses_it) {
  Domain& other = attach();
  system.set_thread(caller->thread);
  HeapDomain& own = create();
  EXPECT_EQ(own.leans_to.load(), &seat());
  void* const block = allocate_in(own, 64);
  EXPECT_EQ(heap.allocate_at_once(own, 64), reinterpret_cast<char*>(block) + 64);

  system.set_thread(other.thread);
  EXPECT_EQ(heap.allocate_at_once(own, 64), nullptr) << "it leans to another thread";
  heaps::HeapRequest request{.size = 64};
  EXPECT_NE(heap.allocate_in(&other, own, request), nullptr);
  EXPECT_TRUE(leans_to_nobody(own)) << "that asked for a turn and took the leaning away";
  for (std::uint32_t i = 0; leans_to_nobody(own); ++i) {
    ASSERT_LE(i, own.patience + 1) << "it never leans again";
    request = {.size = 64};
    EXPECT_NE(heap.allocate_in(&other, own, request), nullptr);
  }
  EXPECT_EQ(own.leans_to.load(), &seat());
  EXPECT_EQ(own.patience, 2 * HeapDomain::kFirstPatience);
  heap.destroy_heap(own);
  EXPECT_TRUE(leans_to_nobody(own));
}

TEST_F(FirstClassHeap, keeps_leaning_when_others_free_by_plain_free_until_nobody_looks) {
  Domain& other = attach();
  system.set_thread(caller->thread);
  HeapDomain& own = create();
  const heaps::Seat* const makers = &seat();
  const std::vector<void*> blocks = fill(own, 600, 64);
  system.set_thread(other.thread);
  std::size_t freed = 0;
  for (; own.leans_to.load() == makers && freed < blocks.size(); ++freed) {
    release(other, blocks[freed]);
  }
  EXPECT_GE(freed, HeapDomain::kMostMarks) << "a thread that frees does not take the heap away";
  EXPECT_LE(freed, HeapDomain::kMostMarks + 2) << "but a heap that is left alone gets its memory";
  EXPECT_EQ(own.figures.live_blocks, blocks.size() - freed);
  heap.destroy_heap(own);
}

TEST_F(FirstClassHeap, waits_for_the_thread_that_it_leans_to) {
  Domain& other = attach();
  system.set_thread(caller->thread);
  HeapDomain& own = create();
  void* const block = allocate_in(own, 64);
  heaps::Seat& makers = seat();
  makers.on.store(in_turn_on(own));
  EXPECT_EQ(heap.allocate_at_once(own, 64), nullptr) << "a signal handler within a turn";
  release(*caller, block);
  EXPECT_EQ(own.figures.live_blocks, 1U);
  makers.on.store(nullptr);
  EXPECT_FALSE(heap.contains(own, block)) << "it leaves a mark";
  system.set_thread(other.thread);
  occupy(makers, own);
  heap.limit_heap(own, 1000);
  expect_waited_for();
  heap.destroy_heap(own);
}

TEST_F(FirstClassHeap,
       waits_for_its_thread_even_when_another_one_says_much_too_late_that_it_is_in) {
  Domain& other = attach();
  system.set_thread(caller->thread);
  HeapDomain& own = create();
  heaps::Seat& late = seat();
  EXPECT_EQ(own.leans_to.load(), &late) << "it has looked";
  system.set_thread(other.thread);
  while (own.leans_to.load() != &seat()) {
    heaps::HeapRequest request{.size = 64};
    ASSERT_NE(heap.allocate_in(&other, own, request), nullptr);
  }
  occupy(seat(), own);
  late.on.store(in_turn_on(own));
  late.on.store(nullptr);  // for it has looked again
  attach();
  heap.limit_heap(own, 1000);
  expect_waited_for();
  heap.destroy_heap(own);
}

TEST_F(FirstClassHeap, can_be_used_by_a_handler_that_interrupts_a_turn_on_another_heap) {
  HeapDomain& own = create();
  HeapDomain& second = create();
  void* const block = allocate_in(own, 64);
  void* const in_second = allocate_in(second, 64);
  seat().on.store(in_turn_on(own));
  EXPECT_EQ(heap.allocate_at_once(second, 64), nullptr);
  EXPECT_NE(allocate_in(second, 64), nullptr);
  release_in(second, in_second);
  EXPECT_EQ(seat().on.load(), in_turn_on(own));
  seat().on.store(nullptr);
  release_in(own, block);
  heap.destroy_heap(own);
  heap.destroy_heap(second);
}

TEST_F(FirstClassHeap, leans_to_a_seat_and_so_to_whoever_has_it_next) {
  HeapDomain& own = create();
  static_cast<void>(allocate_in(own, 64));
  const heaps::Seat* const makers = &seat();
  heap.leave_seat();
  EXPECT_TRUE(heap.take_seat()) << "a thread that has ended for us gets none";
  EXPECT_EQ(&seat(), &heaps::nobodys_seat);
  EXPECT_EQ(heap.allocate_at_once(own, 64), nullptr);
  attach();
  EXPECT_EQ(&seat(), makers);
  EXPECT_NE(heap.allocate_at_once(own, 64), nullptr);
  own.lean_to_nobody();
  heap.leave_seat();
  EXPECT_EQ(heap.allocate_at_once(own, 64), nullptr) << "nobody is no thread that has ended";
  for (std::uint32_t i = 0; i < 2 * HeapDomain::kFirstPatience; ++i) {
    static_cast<void>(allocate_in(own, 64));
  }
  EXPECT_TRUE(leans_to_nobody(own));
  heap.destroy_heap(own);
}

TEST_F(FirstClassHeap, leans_to_its_thread_again_after_a_fork_kept_it_out) {
  HeapDomain& own = create();
  system.set_thread(caller->thread);
  occupy(seat(), own);
  heap.before_fork(caller);
  expect_waited_for();
  EXPECT_EQ(heap.allocate_at_once(own, 64), nullptr) << "the gate is closed";
  heap.after_fork_in_parent();
  static_cast<void>(allocate_in(own, 64));
  EXPECT_NE(heap.allocate_at_once(own, 64), nullptr);
  heap.before_fork(caller);
  heap.after_fork_in_child(caller);
  EXPECT_TRUE(leans_to_nobody(own));
  EXPECT_NE(allocate_in(own, 64), nullptr);
  heap.destroy_heap(own);
}

TEST_F(FirstClassHeap, gives_the_seats_of_threads_that_a_fork_has_ended_to_others) {
  heaps::Seat* const kept = &seat();
  attach();
  heaps::Seat* const lost = &seat();
  HeapDomain& own = create();
  lost->on.store(in_turn_on(own));
  system.set_thread(caller->thread);
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::yield) lost->on.store(nullptr);
  });
  heap.before_fork(caller);
  system.set_observer({});
  heap.after_fork_in_child(caller);
  EXPECT_EQ(&seat(), kept);
  attach();
  EXPECT_EQ(&seat(), lost);
  attach();
  EXPECT_NE(&seat(), kept);
  heap.destroy_heap(own);
}

TEST_F(FirstClassHeap, keeps_its_books_when_slabs_fill_and_empty_at_hand) {
  HeapDomain& own = create();
  Random random{3};
  std::vector<void*> blocks;
  for (int step = 0; step < 60'000; ++step) {
    const bool grows = (step / 6000) % 2 == 0;
    if (blocks.empty() || random.below(10) < (grows ? 7U : 3U)) {
      const std::size_t size = 200 * (1 + random.below(4));
      void* block = heap.allocate_at_once(own, size);
      if (block == nullptr) block = allocate_in(own, size);
      ASSERT_NE(block, nullptr);
      blocks.push_back(block);
    } else {
      std::swap(blocks[random.below(blocks.size())], blocks.back());
      if (!heap.release_at_once(own, blocks.back())) release_in(own, blocks.back());
      blocks.pop_back();
    }
    if (step % 2000 == 0) heap.check_invariants();
    if (step % 9000 == 0) {
      ASSERT_EQ(walk(own), std::set<void*>(blocks.begin(), blocks.end()));
    }
  }
  for (void* const block : blocks) ASSERT_TRUE(heap.release_at_once(own, block));
  EXPECT_FALSE(heap.release_at_once(own, blocks.front())) << "freed twice";
  heap.collect_heap(own);
  EXPECT_EQ(figures(own).held, 0U);
  heap.destroy_heap(own);
}

TEST_F(FirstClassHeap, knows_what_is_free_although_the_newest_free_block_waits_to_be_reused) {
  HeapDomain& own = create();
  const std::vector<void*> blocks = fill(own, 20, 64);
  void* const block = blocks[7];
  ASSERT_TRUE(heap.release_at_once(own, block));
  EXPECT_EQ(own.newest[Sizes::of(64)], block);
  EXPECT_FALSE(heap.contains(own, block));
  EXPECT_EQ(own.figures.live_blocks, blocks.size() - 1);
  heap.check_invariants();
  EXPECT_EQ(heap.allocate_at_once(own, 64), block);

  ASSERT_TRUE(heap.release_at_once(own, block));
  EXPECT_FALSE(heap.release_at_once(own, block)) << "freed twice";
  EXPECT_FALSE(walk(own).contains(block));
  EXPECT_EQ(own.newest[Sizes::of(64)], nullptr) << "a walk has put it back";
  EXPECT_FALSE(heap.release_at_once(own, block)) << "and twice after that";

  ASSERT_TRUE(heap.release_at_once(own, blocks[8]));
  ASSERT_TRUE(heap.release_at_once(own, blocks[9])) << "the older one stays the newest";
  EXPECT_EQ(own.newest[Sizes::of(64)], blocks[8]);
  for (const std::size_t freed : {8U, 9U}) {
    EXPECT_FALSE(heap.release_at_once(own, blocks[freed])) << "freed twice";
  }
  EXPECT_FALSE(heap.release_at_once(own, static_cast<char*>(blocks[0]) + 16)) << "within a block";
  heap.limit_heap(own, own.figures.live);
  EXPECT_EQ(heap.allocate_at_once(own, 64), nullptr) << "at the limit";
  heap.check_invariants();
  heap.destroy_heap(own);
}

TEST_F(FirstClassHeap, finds_a_double_free_by_another_thread_of_the_newest_free_block) {
  Domain& other = attach();
  system.set_thread(caller->thread);
  HeapDomain& own = create();
  void* const block = allocate_in(own, 64);
  static_cast<void>(allocate_in(own, 64));
  ASSERT_TRUE(heap.release_at_once(own, block));
  system.set_thread(other.thread);
  release(other, block);
  EXPECT_TRUE(reports().empty()) << "it has left a mark";
  system.set_thread(caller->thread);
  heap.collect_heap(own);
  const std::vector<Misuse> seen = reports();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].kind, heap::MisuseKind::double_free);
  EXPECT_EQ(seen[0].address, block);
  heap.check_invariants();
  heap.destroy_heap(own);
}

// --- all of it -----------------------------------------------------------------------------------

TEST_F(FirstClassHeap, agrees_with_a_model_over_many_random_steps) {
  struct Model {
    HeapDomain* own;
    std::set<void*> blocks;
  };
  Random random{29};
  std::vector<Model> heaps;
  std::vector<void*> loose;  // of heaps that were deleted
  for (int step = 0; step < 20'000; ++step) {
    if (heaps.empty() || (heaps.size() < 8 && random.one_in(100))) {
      heaps.push_back({&create("model"), {}});
    }
    const std::size_t which = random.below(heaps.size());
    Model& model = heaps[which];
    if (random.one_in(300)) {
      if (random.one_in(2)) {
        heap.destroy_heap(*model.own);
      } else {
        heap.delete_heap(*model.own);
        loose.insert(loose.end(), model.blocks.begin(), model.blocks.end());
      }
      heaps.erase(heaps.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (random.one_in(2)) {
      void* const block = allocate_in(*model.own, random.any_magnitude(2 * kMiB));
      ASSERT_TRUE(block != nullptr && model.blocks.insert(block).second);
    } else if (!model.blocks.empty()) {
      auto at = model.blocks.lower_bound(allocate(*caller, 1 + random.below(500)));
      if (at == model.blocks.end()) at = model.blocks.begin();
      void* const block = *at;
      model.blocks.erase(at);
      switch (random.below(3)) {
        case 0:
          release_in(*model.own, block);
          break;
        case 1:
          release(*caller, block);
          break;
        default:
          mark(block);
          break;
      }
    }
    if (step % 500 == 0) {
      heap.check_invariants();
      for (const Model& one : heaps) {
        ASSERT_EQ(walk(*one.own), one.blocks);
        ASSERT_EQ(figures(*one.own).live_blocks, one.blocks.size());
      }
    }
  }
  for (void* const block : loose) release(*caller, block);
  for (const Model& model : heaps) heap.destroy_heap(*model.own);
}

}  // namespace
}  // namespace allod::test

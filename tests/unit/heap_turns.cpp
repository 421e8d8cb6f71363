// Layer 5: first-class heaps, in forks and when several threads use one.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "heap_first_class.hpp"

namespace allod::test {
namespace {

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

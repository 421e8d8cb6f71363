// Layer 5: how domains come and go, what becomes of their slabs, and what a fork leaves.
#include <gtest/gtest.h>

#include "heap_world.hpp"

namespace allod::test {
namespace {

class HeapLifetime : public HeapWorld {
 protected:
  std::size_t count_orphans() {
    std::size_t count = 0;
    LockGuard guard{heap.registry_lock()};
    heap.for_each_orphan([&](const Slab&) { ++count; });
    return count;
  }
  std::size_t count_domains() {
    std::size_t count = 0;
    LockGuard guard{heap.registry_lock()};
    heap.for_each_domain([&](const Domain&) { ++count; });
    return count;
  }
};

TEST_F(HeapLifetime, leaves_nothing_behind_when_a_thread_has_freed_everything) {
  Domain& domain = attach();
  for (std::size_t size = 1; size < 3 * kMiB; size += 1 + size / 2) {
    release_all(domain, allocate_many(domain, 50, size));
  }
  heap.detach(domain);
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(count_orphans(), 0U);
}

TEST_F(HeapLifetime, gives_a_domain_that_was_left_to_the_next_thread) {
  Domain& first = attach();
  Domain& second = attach();
  static_cast<void>(allocate(second, 64));
  heap.detach(first);
  Domain& third = attach();
  EXPECT_EQ(&third, &first);
  EXPECT_EQ(third.thread, 3U);
  EXPECT_NE(allocate(third, 64), nullptr);
  EXPECT_EQ(count_domains(), 2U);
}

TEST_F(HeapLifetime, stays_as_large_however_many_threads_come_and_go) {
  std::size_t metadata = 0;
  for (int round = 0; round < 100; ++round) {
    Domain& domain = attach();
    for (std::size_t size = 1; size < 100 * kKiB; size += 1 + size / 2) {
      release_all(domain, allocate_many(domain, 30, size));
    }
    heap.detach(domain);
    if (round == 10) metadata = heap.space().metadata().used_bytes();
    if (round > 10) {
      EXPECT_EQ(heap.space().metadata().used_bytes(), metadata);
    }
  }
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapLifetime, makes_orphans_of_slabs_that_are_in_use) {
  Domain& leaving = attach();
  const std::vector<void*> blocks = allocate_many(leaving, 10, 64);
  std::memset(blocks[0], 3, 64);
  heap.detach(leaving);
  EXPECT_EQ(count_orphans(), 1U);
  EXPECT_TRUE(is_all(blocks[0], 64, 3));
  EXPECT_EQ(heap.usable_size(blocks[0]), 64U);
  EXPECT_EQ(heap.describe(MisuseKind::invalid_free, blocks[0]).owner, space::kOrphanOwner);
}

TEST_F(HeapLifetime, has_orphans_adopted_by_who_needs_their_class) {
  Domain& leaving = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = allocate_many(leaving, 10, 64);
  heap.detach(leaving);
  void* const block = allocate(other, 64);
  EXPECT_EQ(&program.slab_of(block), &program.slab_of(blocks[0]));
  EXPECT_EQ(other.counters.slabs_adopted.value(), 1U);
  EXPECT_EQ(count_orphans(), 0U);
  // The blocks of the one who left are now like its own.
  release_all(other, blocks);
  EXPECT_EQ(other.counters.remote_frees.value(), 0U);
  release(other, block);
  heap.trim(other);
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapLifetime, adopts_orphans_of_single_blocks_too) {
  Domain& leaving = attach();
  Domain& other = attach();
  void* const block = allocate(leaving, 600 * kKiB);
  heap.detach(leaving);
  release(other, block);
  EXPECT_EQ(allocate(other, 600 * kKiB), block);
  EXPECT_EQ(other.counters.slabs_adopted.value(), 1U);
  auto* const inside = static_cast<char*>(block) + kSliceBytes;
  EXPECT_EQ(heap.space().map().tag_of(address_of(inside)), space::kInteriorTag);
}

TEST_F(HeapLifetime, collects_what_was_freed_while_nobody_owned_it) {
  Domain& leaving = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = allocate_many(leaving, 1024, 64);  // all of a slab
  heap.detach(leaving);
  release(other, blocks[7]);
  heap.trim(other);
  heap.release_detached(blocks[9]);
  Domain& adopter = attach();
  EXPECT_EQ(allocate(adopter, 64), blocks[7]);
  EXPECT_EQ(allocate(adopter, 64), blocks[9]);
}

TEST_F(HeapLifetime, does_not_adopt_what_has_no_free_block) {
  Domain& leaving = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = allocate_many(leaving, 1024, 64);
  heap.detach(leaving);
  EXPECT_NE(allocate(other, 64), nullptr);
  EXPECT_EQ(other.counters.slabs_adopted.value(), 0U);
  EXPECT_EQ(count_orphans(), 1U);
}

TEST_F(HeapLifetime, gives_back_orphans_that_have_become_empty) {
  Domain& leaving = attach();
  Domain& other = attach();
  std::vector<std::vector<void*>> blocks;
  for (const std::size_t size : {16U, 64U, 400U, 5000U}) {
    blocks.push_back(allocate_many(leaving, 100, size));
  }
  heap.detach(leaving);
  const std::size_t orphans = count_orphans();
  EXPECT_GE(orphans, 4U);
  for (const std::vector<void*>& of_class : blocks) release_all(other, of_class);
  EXPECT_EQ(count_orphans(), orphans);
  pass_time(other, 20 * 256);
  EXPECT_EQ(count_orphans(), 0U);
}

TEST_F(HeapLifetime, survives_frees_that_are_still_waiting_when_the_slab_changes_hands) {
  Domain& leaving = attach();
  Domain& freeing = attach();
  Domain& adopter = attach();
  const std::vector<void*> blocks = allocate_many(leaving, 100, 64);
  for (std::size_t i = 0; i < 50; ++i) release(freeing, blocks[i]);
  heap.detach(leaving);
  static_cast<void>(allocate(adopter, 64));
  ASSERT_EQ(adopter.counters.slabs_adopted.value(), 1U);
  heap.detach(freeing);  // sends what waited
  heap.trim(adopter);
  EXPECT_EQ(adopter.counters.collected.value() + 1,
            program.slab_of(blocks[0]).free_count() + 1 - (1024 - 100 - 1));
}

// The owner frees a block, and so does another thread whose free is still on its way: the second
// one is found by whoever collects it first.
class HeapOrphanFreedTwice : public HeapLifetime {
 protected:
  void SetUp() override {
    HeapLifetime::SetUp();
    leaving = &attach();
    other = &attach();
    blocks = allocate_many(*leaving, 3, 64);
  }
  void free_twice_and_leave() {
    release(*other, blocks[1]);
    release(*leaving, blocks[1]);
    heap.detach(*leaving);
    ASSERT_TRUE(reports().empty());
  }

  Domain* leaving = nullptr;
  Domain* other = nullptr;
  std::vector<void*> blocks;
};

TEST_F(HeapOrphanFreedTwice, is_reported_by_who_adopts_it) {
  free_twice_and_leave();
  heap.detach(*other);  // sends what waited
  Domain& adopter = attach();
  static_cast<void>(allocate(adopter, 64));
  expect_one(MisuseKind::double_free, blocks[1]);
}

TEST_F(HeapOrphanFreedTwice, is_reported_by_who_looks_at_orphans) {
  free_twice_and_leave();
  heap.trim(*other);
  expect_one(MisuseKind::double_free, blocks[1]);
}

TEST_F(HeapOrphanFreedTwice, is_reported_by_the_owner_that_leaves) {
  release(*leaving, blocks[1]);
  heap.trim(*leaving);
  Slab& slab = program.slab_of(blocks[0]);
  const std::uint32_t index = slab.index_of(address_of(blocks[1]));
  // Marked, but not announced yet when the owner looks into its inbox for the last time.
  static_cast<void>(slab.give_remotely(index / kWordBits, bit(index % kWordBits)));
  heap.detach(*leaving);
  expect_one(MisuseKind::double_free, blocks[1]);
}

TEST_F(HeapLifetime, passes_slabs_from_hand_to_hand_without_losing_a_block) {
  Random random{13};
  std::vector<Domain*> domains;
  for (int i = 0; i < 3; ++i) domains.push_back(&attach());
  std::vector<void*> blocks;
  for (int step = 0; step < 20'000; ++step) {
    Domain*& domain = domains[random.below(domains.size())];
    if (random.one_in(50)) {
      heap.detach(*domain);
      domain = &attach();
    } else if (blocks.size() < 500 && random.one_in(2)) {
      blocks.push_back(allocate(*domain, std::size_t{16} << random.below(4)));
    } else if (!blocks.empty()) {
      std::swap(blocks[random.below(blocks.size())], blocks.back());
      release(*domain, blocks.back());
      blocks.pop_back();
    }
    if (step % 1000 == 0) heap.check_invariants();
  }
  for (void* const block : blocks) release(*domains[0], block);
  for (Domain* const domain : domains) heap.detach(*domain);
  heap.trim(attach());
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(count_orphans(), 0U);
}

// --- fork
// ---------------------------------------------------------------------------------------------

class HeapFork : public HeapLifetime {
 protected:
  // What the process does around a fork that the calling domain's thread makes; the test goes on as
  // the child.
  void fork_as_child(Domain* own) {
    heap.before_fork(own);
    heap.after_fork_in_child(own);
  }
};

TEST_F(HeapFork, changes_nothing_in_the_parent) {
  Domain& own = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = allocate_many(other, 100, 64);
  heap.before_fork(&own);
  heap.after_fork_in_parent();
  release_all(other, blocks);
  EXPECT_NE(allocate(own, 64), nullptr);
  heap.before_fork(&own);
  heap.after_fork_in_parent();
}

TEST_F(HeapFork, lets_the_child_use_what_its_thread_had) {
  Domain& own = attach();
  const std::vector<void*> blocks = allocate_many(own, 2000, 64);
  release(own, blocks[100]);
  fork_as_child(&own);
  EXPECT_EQ(allocate(own, 64), blocks[100]);
  release_all(own, blocks);
  heap.trim(own);
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapFork, lets_the_child_adopt_what_other_threads_had) {
  Domain& own = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = allocate_many(other, 1000, 64);
  fork_as_child(&own);
  EXPECT_EQ(other.state, heap::DomainState::pooled);
  EXPECT_EQ(count_orphans(), 1U);
  release_all(own, blocks);
  heap.trim(own);
  heap.check_invariants();
  void* const block = allocate(own, 64);
  EXPECT_NE(block, nullptr);
  Domain& next = attach();
  EXPECT_EQ(&next, &other) << "its domain is there for a new thread";
  EXPECT_NE(allocate(next, 100), nullptr);
}

TEST_F(HeapFork, distrusts_the_magazines_of_the_others) {
  Domain& own = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = allocate_many(other, 1000, 64);
  for (std::size_t i = 0; i < 100; ++i) release(other, blocks[i]);
  // A fast path was under way while the pages were copied: the magazine lies.
  other.magazines[Sizes::of(64)].bottom[0] = reinterpret_cast<void*>(0xdead0);
  fork_as_child(&own);
  heap.check_invariants();
  EXPECT_NE(allocate(own, 64), nullptr);
  Domain& next = attach();
  ASSERT_EQ(&next, &other);
  EXPECT_NE(allocate(next, 64), reinterpret_cast<void*>(0xdead0));
}

TEST_F(HeapFork, collects_in_the_child_what_was_on_its_way) {
  Domain& own = attach();
  Domain& other = attach();
  const std::vector<void*> mine = allocate_many(own, 1024, 64);
  const std::vector<void*> theirs = allocate_many(other, 1024, 64);
  release(other, mine[5]);
  release(own, theirs[5]);
  fork_as_child(&own);
  heap.trim(own);
  EXPECT_EQ(program.slab_of(mine[5]).remote_count(), 0U);
  EXPECT_EQ(allocate(own, 64), mine[5]);
  EXPECT_EQ(allocate(own, 64), theirs[5]);
}

TEST_F(HeapFork, waits_until_no_other_thread_is_inside_a_slow_path) {
  Domain& own = attach();
  Domain& other = attach();
  system.set_thread(own.thread);
  other.in_slow_path.store(true);
  int yields = 0;
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::yield && ++yields == 3) other.in_slow_path.store(false);
  });
  heap.before_fork(&own);
  EXPECT_EQ(yields, 3);
  system.set_observer({});
  heap.after_fork_in_parent();
}

TEST_F(HeapFork, keeps_other_threads_out_of_their_slow_paths_meanwhile) {
  Domain& own = attach();
  Domain& other = attach();
  system.set_thread(own.thread);
  heap.before_fork(&own);
  system.set_thread(other.thread);
  // The locks that a fork holds are those of the thread that runs.
  const auto allocate = [&] { static_cast<void>(heap.allocate(other, 64, nullptr)); };
  EXPECT_DEATH(std::thread{allocate}.join(), "would wait for ever");
  system.set_thread(own.thread);
  heap.after_fork_in_parent();
  system.set_thread(other.thread);
  EXPECT_NE(heap.allocate(other, 64, nullptr), nullptr);
}

// A signal handler may have interrupted its own thread there.
TEST_F(HeapFork, who_holds_a_lock_of_the_space_does_not_wait_for_it) {
  Domain& own = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = allocate_many(other, 4, 64);
  void* const huge = allocate(own, 20 * kMiB);
  {
    LockGuard guard{heap.space().lock()};
    EXPECT_EQ(heap.allocate(own, 100, nullptr), nullptr);
    EXPECT_EQ(heap.allocate(own, 20 * kMiB, nullptr), nullptr);
    EXPECT_EQ(heap.resize_in_place(&own, huge, 10 * kMiB), nullptr);
    heap.release(own, blocks[1]);
    heap.release(own, huge);
  }
  EXPECT_EQ(program.slab_of(blocks[1]).remote_count(), 1U);
  EXPECT_EQ(heap.usable_size(huge), 20 * kMiB);
  EXPECT_NE(heap.allocate(own, 100, nullptr), nullptr);
}

TEST_F(HeapFork, lets_the_forking_thread_allocate_in_other_handlers) {
  Domain& own = attach();
  Domain& other = attach();
  system.set_thread(own.thread);
  const std::vector<void*> blocks = allocate_many(other, 100, 64);
  heap.before_fork(&own);
  std::vector<void*> mine = allocate_many(own, 3000, 100);
  mine.push_back(allocate(own, 20 * kMiB));
  release_all(own, blocks);
  heap.after_fork_in_parent();
  release_all(own, mine);
  heap.before_fork(&own);
  mine = allocate_many(own, 3000, 100);
  heap.after_fork_in_child(&own);
  release_all(own, mine);
}

TEST_F(HeapFork, of_a_thread_without_domain_leaves_only_orphans) {
  Domain& other = attach();
  const std::vector<void*> blocks = allocate_many(other, 100, 64);
  system.set_thread(9);
  fork_as_child(nullptr);
  Domain& own = attach();
  EXPECT_EQ(&own, &other);
  release_all(own, blocks);
}

TEST_F(HeapFork, of_a_child_works_like_that_of_its_parent) {
  Domain& own = attach();
  for (int generation = 0; generation < 5; ++generation) {
    Domain& other = attach();
    const std::vector<void*> blocks = allocate_many(other, 500, 64);
    system.set_thread(own.thread);
    fork_as_child(&own);
    release_all(own, blocks);
    heap.check_invariants();
  }
  heap.trim(own);
  EXPECT_EQ(count_domains(), 2U);
}

}  // namespace
}  // namespace allod::test

// Domains that threads use in turn.
#include <optional>

#include "heap_world.hpp"

namespace allod::test {
namespace {

class HeapShared : public HeapWorld {
 protected:
  using Heap = FakeProgram::Heap;
  using Locked = heap::LockedDomain<Heap>;
  using Turn = Heap::Turn;

  Domain& attach_shared() {
    Domain* const domain = heap.attach_shared();
    always_check(domain != nullptr, "no domain");
    return *domain;
  }
  static bool is_at_rest(const Domain& domain) {
    return !domain.in_slow_path.load() && domain.holder.load() == nullptr;
  }
};

TEST_F(HeapShared, serves_all_sizes) {
  Domain& domain = attach_shared();
  Locked locked{heap, domain};
  std::vector<void*> blocks;
  for (std::size_t size = 1; size < 4 * kMiB; size = 2 * size + 1) {
    blocks.push_back(locked.allocate(size, nullptr));
    ASSERT_NE(blocks.back(), nullptr);
    EXPECT_GE(heap.usable_size(blocks.back()), size);
  }
  blocks.push_back(locked.allocate_aligned(100, 4096));
  EXPECT_EQ(address_of(blocks.back()) % 4096, 0U);
  EXPECT_TRUE(is_at_rest(domain));
  for (void* const block : blocks) locked.release(block);
  locked.trim();
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapShared, hands_a_freed_block_to_the_next_thread) {
  Locked locked{heap, attach_shared()};
  system.set_thread(1);
  void* const block = locked.allocate(64, nullptr);
  locked.release(block);
  system.set_thread(2);
  EXPECT_EQ(locked.allocate(64, nullptr), block);
}

TEST_F(HeapShared, knows_zeros_only_where_nobody_has_been) {
  Locked locked{heap, attach_shared()};
  bool zero = false;
  void* const block = locked.allocate(5000, &zero);
  EXPECT_TRUE(zero);
  locked.release(block);
  EXPECT_EQ(locked.allocate(5000, &zero), block);
  EXPECT_FALSE(zero);
}

TEST_F(HeapShared, has_one_turn_at_a_time) {
  Domain& domain = attach_shared();
  system.set_thread(1);
  Turn turn{domain, heap.gate()};
  EXPECT_TRUE(Turn::is_callers(domain));
  EXPECT_TRUE(domain.in_slow_path.load());
  system.set_thread(2);
  EXPECT_FALSE(Turn::is_callers(domain));
  EXPECT_FALSE((Turn{domain, heap.gate(), Turn::Wait::no}));
  EXPECT_TRUE(domain.in_slow_path.load()) << "a turn that was not had leaves no trace";
}

TEST_F(HeapShared, is_at_rest_only_after_the_whole_turn) {
  Domain& domain = attach_shared();
  Turn turn{domain, heap.gate()};
  static_cast<void>(heap.allocate(domain, 64, nullptr));
  EXPECT_TRUE(domain.in_slow_path.load());
}

TEST_F(HeapShared, gets_its_blocks_back_from_other_domains) {
  Domain& shared = attach_shared();
  Domain& other = attach();
  Locked locked{heap, shared};
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(locked.allocate(64, nullptr));
  release_all(other, blocks);
  heap.detach(other);
  locked.trim();
  EXPECT_EQ(shared.counters.collected.value(), 100U);
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapShared, leaves_orphans_when_it_goes) {
  Domain& shared = attach_shared();
  void* const block = Locked{heap, shared}.allocate(64, nullptr);
  heap.detach(shared);
  EXPECT_TRUE(is_at_rest(shared));
  Domain& other = attach();
  EXPECT_EQ(&other, &shared) << "its domain serves others";
  EXPECT_EQ(other.state, heap::DomainState::active);
  release(other, block);
  heap.trim(other);
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapShared, stays_as_it_is_in_the_child_of_a_fork) {
  Domain& shared = attach_shared();
  Locked locked{heap, shared};
  system.set_thread(1);
  void* const block = locked.allocate(64, nullptr);
  locked.release(block);
  // A thread that has come for its turn, and has not noticed the fork yet.
  shared.lock.lock();
  heap.before_fork(nullptr);
  heap.after_fork_in_child(nullptr);
  EXPECT_EQ(shared.state, heap::DomainState::shared);
  EXPECT_EQ(locked.allocate(64, nullptr), block);
}

TEST_F(HeapShared, belongs_to_the_forking_thread_alone) {
  Domain& shared = attach_shared();
  Locked locked{heap, shared};
  system.set_thread(1);
  shared.lock.lock();
  heap.before_fork(nullptr);
  void* const block = locked.allocate(64, nullptr);
  EXPECT_NE(block, nullptr);
  locked.release(block);
  shared.lock.unlock();
  system.set_thread(2);
  EXPECT_DEATH(
      {
        HeldRanks<true>::mask = 0;  // those were of the other thread
        static_cast<void>(locked.allocate(64, nullptr));
      },
      "would wait for ever");
  system.set_thread(1);
  heap.after_fork_in_parent();
  system.set_thread(2);
  EXPECT_EQ(locked.allocate(64, nullptr), block);
}

TEST_F(HeapShared, is_waited_for_by_a_fork) {
  Domain& shared = attach_shared();
  std::optional<Turn> turn;
  system.set_thread(2);
  turn.emplace(shared, heap.gate());
  system.set_thread(1);
  int yields = 0;
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::yield && ++yields == 3) turn.reset();
  });
  heap.before_fork(nullptr);
  EXPECT_EQ(yields, 3);
  system.set_observer({});
  heap.after_fork_in_parent();
}

}  // namespace
}  // namespace allod::test

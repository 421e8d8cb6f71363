// Layer 5: blocks that one thread allocates and another frees.
#include <gtest/gtest.h>

#include "heap_world.hpp"

namespace allod::test {
namespace {

using HeapRemote = HeapWorld;

TEST_F(HeapRemote, makes_a_block_that_another_thread_freed_available_to_its_owner) {
  Domain& owner = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = allocate_many(owner, 10, 64);
  release(other, blocks[4]);
  heap.trim(other);  // sends what waits to be sent
  EXPECT_EQ(other.counters.remote_frees.value(), 1U);
  EXPECT_EQ(program.slab_of(blocks[4]).remote_count(), 1U);
  heap.trim(owner);
  EXPECT_EQ(owner.counters.collected.value(), 1U);
  EXPECT_EQ(allocate(owner, 64), blocks[4]);
}

TEST_F(HeapRemote, uses_blocks_that_came_home_before_it_makes_new_slabs) {
  Domain& producer = attach();
  Domain& consumer = attach();
  std::size_t most = 0;
  for (int round = 0; round < 200; ++round) {
    const std::vector<void*> blocks = allocate_many(producer, 2000, 64);
    most = std::max(most, used());
    release_all(consumer, blocks);
  }
  EXPECT_LE(most, 8 * kSliceBytes) << "what two rounds take";
}

TEST_F(HeapRemote, frees_neighbours_with_few_atomic_operations) {
  Domain& owner = attach();
  Domain& other = attach();
  release_all(other, allocate_many(owner, 1024, 64));
  heap.trim(other);
  EXPECT_EQ(other.counters.remote_frees.value(), 1024U);
  EXPECT_LE(other.counters.remote_batches.value(), 64U);
}

TEST_F(HeapRemote, sends_large_blocks_home_at_once) {
  Domain& owner = attach();
  Domain& other = attach();
  for (const std::size_t size : {16 * kKiB, 100 * kKiB, Sizes::kMaxSize}) {
    void* const block = allocate(owner, size);
    Slab& slab = program.slab_of(block);
    release(other, block);
    EXPECT_EQ(slab.remote_count(), 1U) << size;
    EXPECT_TRUE(slab.is_announced());
    EXPECT_EQ(allocate(owner, size), block) << "the owner finds it at its next slow path";
  }
}

TEST_F(HeapRemote, does_not_hold_blocks_back_for_ever) {
  Domain& owner = attach();
  Domain& other = attach();
  void* const block = allocate(owner, 64);
  Slab& slab = program.slab_of(block);
  release(other, block);
  EXPECT_EQ(slab.remote_count(), 0U) << "waits for more of its kind";
  pass_time(other, 256);
  EXPECT_EQ(slab.remote_count(), 1U);
}

TEST_F(HeapRemote, bounds_what_waits_to_be_sent) {
  Domain& owner = attach();
  Domain& other = attach();
  std::vector<void*> blocks;
  for (std::size_t size = 16; size <= 30 * kKiB; size *= 2) {
    for (void* const block : allocate_many(owner, 200, size)) blocks.push_back(block);
  }
  Random random{12};
  for (std::size_t i = blocks.size(); i > 1; --i) std::swap(blocks[i - 1], blocks[random.below(i)]);
  std::size_t most = 0;
  for (void* const block : blocks) {
    release(other, block);
    std::size_t waiting = 0;
    for (const heap::RemoteBatch& batch : other.remote()) {
      if (batch.slab != nullptr) waiting += count_bits(batch.bits) * batch.slab->block_bytes();
    }
    most = std::max(most, waiting);
  }
  EXPECT_GT(most, 0U);
  EXPECT_LT(most, heap::kRemoteBatches * heap::kBatchBytes);
}

TEST_F(HeapRemote, lets_threads_without_domain_free) {
  Domain& owner = attach();
  const std::vector<void*> blocks = allocate_many(owner, 100, 64);
  for (void* const block : blocks) heap.release_detached(block);
  EXPECT_EQ(program.slab_of(blocks[0]).remote_count(), 100U);
  heap.trim(owner);
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapRemote, makes_full_slabs_useful_again) {
  Domain& owner = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = allocate_many(owner, 4 * 1024, 64);
  ASSERT_TRUE(program.slab_of(blocks[0]).is_full());
  const std::uint64_t slabs = owner.counters.slabs_created.value();
  for (std::size_t i = 0; i < 1024; ++i) release(other, blocks[i]);
  heap.trim(other);
  for (int i = 0; i < 1024; ++i) EXPECT_NE(allocate(owner, 64), nullptr);
  EXPECT_EQ(owner.counters.slabs_created.value(), slabs);
}

TEST_F(HeapRemote, retires_slabs_that_others_have_emptied) {
  Domain& owner = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = allocate_many(owner, 16 * 1024, 64);
  release_all(other, blocks);
  heap.trim(other);
  EXPECT_EQ(used(), 16 * kSliceBytes);
  static_cast<void>(allocate(owner, 200));
  EXPECT_LE(used(), 2 * kSliceBytes) << "one of each class may stay";
}

// --- slabs that change hands while they are announced
// ----------------------------------------------

class HeapLateAnnouncement : public HeapWorld {
 protected:
  // A thread that read the slab's owner long ago pushes it into that one's inbox now.
  static void announce_to(Slab& slab, Domain& former) {
    slab::Owner* const owner = slab.owner();
    slab.set_owner(&former);
    slab.announce();
    slab.set_owner(owner);
  }
};

TEST_F(HeapLateAnnouncement, costs_the_former_owner_a_look_and_reaches_the_present_one) {
  Domain& former = attach();
  Domain& present = attach();
  const std::vector<void*> blocks = allocate_many(present, 3, 64);
  Slab& slab = program.slab_of(blocks[0]);
  announce_to(slab, former);
  heap.release_detached(blocks[1]);
  EXPECT_TRUE(present.inbox.empty());
  pass_time(former, 1);
  EXPECT_FALSE(present.inbox.empty());
  heap.trim(present);
  EXPECT_EQ(slab.remote_count(), 0U);
}

TEST_F(HeapLateAnnouncement, is_not_lost_when_it_reaches_a_domain_that_is_leaving) {
  Domain& leaving = attach();
  Domain& present = attach();
  const std::vector<void*> blocks = allocate_many(present, 3, 64);
  Slab& slab = program.slab_of(blocks[0]);
  // The leaving domain has looked into its inbox for the last time when it gives its memory back,
  // and closes it later.
  release(leaving, allocate(leaving, 500 * kKiB));
  heap.options().purge_delay_ms = 0;
  bool announced = false;
  system.set_observer([&](Fake::Call call) {
    if (call != Fake::Call::purge || announced) return;
    announced = true;
    announce_to(slab, leaving);
    heap.release_detached(blocks[1]);
  });
  heap.detach(leaving);
  system.set_observer({});
  ASSERT_TRUE(announced);
  heap.trim(present);
  EXPECT_EQ(slab.remote_count(), 0U) << "the block has not come home";
}

TEST_F(HeapLateAnnouncement, of_an_orphan_is_forgotten) {
  Domain& former = attach();
  Domain& leaving = attach();
  const std::vector<void*> blocks = allocate_many(leaving, 3, 64);
  Slab& slab = program.slab_of(blocks[0]);
  announce_to(slab, former);
  heap.detach(leaving);
  heap.release_detached(blocks[1]);
  pass_time(former, 1);
  EXPECT_FALSE(slab.is_announced());
  Domain& adopter = attach();
  EXPECT_EQ(allocate(adopter, 64), blocks[1]);
}

TEST_F(HeapLateAnnouncement, keeps_an_empty_slab_from_being_retired_while_it_is_on_its_way) {
  Domain& former = attach();
  Domain& present = attach();
  const std::vector<void*> blocks = allocate_many(present, 1024, 64);
  Slab& slab = program.slab_of(blocks[0]);
  const std::vector<void*> more = allocate_many(present, 300, 64);  // it is not the only slab
  announce_to(slab, former);
  release_all(present, blocks);
  release_all(present, more);
  EXPECT_EQ(program.space().map().span_of(address_of(blocks[0])), &slab);
  pass_time(former, 1);
  heap.trim(present);
}

}  // namespace
}  // namespace allod::test

// Layer 4: a slab's blocks as bits, and the way back for blocks that others free.
#include "allod/slab/slab.hpp"

#include <gtest/gtest.h>

#include <set>

#include "allod/base/random.hpp"
#include "allod/slab/guarded_shape.hpp"
#include "world.hpp"

namespace allod::test {
namespace {

using slab::Inbox;
using slab::Owner;
using slab::Slab;
using Sizes = sizes::Geometric<std::size_t{1} << 20>;

// A slab without a space: the blocks are addresses that nobody ever touches.
class LooseSlab {
 public:
  LooseSlab(ClassIndex size_class, Owner* owner) {
    const sizes::SlabShape& shape = Sizes::shape_of(size_class);
    bytes_ = align_up(Slab::descriptor_bytes(shape), kCacheLine);
    memory_ = ::operator new(bytes_, std::align_val_t{kCacheLine});
    std::memset(memory_, 0, bytes_);
    (*this)->base = kBase;
    (*this)->size = {shape.slices};
    (*this)->start(shape, size_class, owner);
  }
  ~LooseSlab() { ::operator delete(memory_, std::align_val_t{kCacheLine}); }
  LooseSlab(const LooseSlab&) = delete;
  LooseSlab& operator=(const LooseSlab&) = delete;

  Slab* operator->() const { return static_cast<Slab*>(memory_); }
  Slab& operator*() const { return *static_cast<Slab*>(memory_); }

  // As another slab that its owner has made of the same descriptor.
  void start_again(ClassIndex size_class, Owner* owner) {
    (*this)->start(Sizes::shape_of(size_class), size_class, owner);
  }
  bool give(std::uint32_t index) {
    void* const block = (*this)->block_at(index);
    return (*this)->give(&block, 1) == 1;
  }
  std::uint32_t take() {
    bool virgin;
    return (*this)->index_of(address_of((*this)->take_one(&virgin)));
  }
  std::uint32_t collect() {
    return (*this)->collect([&](std::uint32_t index) { doubles.push_back(index); });
  }
  void free_remotely(std::uint32_t index) {
    static_cast<void>((*this)->give_remotely(index / kWordBits, bit(index % kWordBits)));
    (*this)->announce();
  }

  std::vector<std::uint32_t> doubles;
  static constexpr Address kBase = Address{1} << (kAddressesAbound ? 40 : 30);

 private:
  std::size_t bytes_ = 0;
  void* memory_ = nullptr;
};

std::vector<Slab*> take_all(Inbox& inbox) {
  std::vector<Slab*> seen;
  inbox.take_all([&](Slab* slab) { seen.push_back(slab); });
  return seen;
}
using Slabs = std::vector<Slab*>;

class SlabOfEveryClass : public testing::Test {
 protected:
  // A few of each kind: with one block, with one word, with many words, with a ragged last word.
  static std::vector<ClassIndex> classes() {
    return {0, 1, 2, 3, 8, 9, 20, 33, 40, 47, 50, 60, 70, Sizes::kCount - 1};
  }
};

TEST_F(SlabOfEveryClass, starts_with_all_blocks_free) {
  for (const ClassIndex c : classes()) {
    LooseSlab slab{c, nullptr};
    EXPECT_EQ(slab->free_count(), slab->capacity());
    EXPECT_EQ(slab->count_free_bits(), slab->capacity());
    EXPECT_TRUE(slab->is_empty());
    EXPECT_FALSE(slab->is_full());
    EXPECT_EQ(slab->remote_count(), 0U);
    EXPECT_EQ(slab->size_class(), c);
    EXPECT_EQ(slab->block_bytes(), Sizes::size_of(c));
    for (std::uint32_t i = 0; i < slab->capacity(); ++i) EXPECT_TRUE(slab->is_marked_free(i));
  }
}

TEST_F(SlabOfEveryClass, knows_the_start_of_a_block_from_all_other_addresses) {
  for (const ClassIndex c : classes()) {
    LooseSlab slab{c, nullptr};
    const std::size_t block = slab->block_bytes();
    for (std::uint32_t i = 0; i < slab->capacity(); ++i) {
      const Address start = address_of(slab->block_at(i));
      ASSERT_EQ(slab->index_of(start), i);
      ASSERT_EQ(slab->index_of(start + 1), Slab::kNoBlock);
      ASSERT_EQ(slab->index_of(start + block - 1), Slab::kNoBlock);
      ASSERT_EQ(slab->index_around(start + block - 1), i);
    }
    for (Address at = slab->base + slab->capacity() * block; at < end_of(*slab); ++at) {
      ASSERT_EQ(slab->index_of(at), Slab::kNoBlock) << "in the tail";
    }
  }
}

TEST_F(SlabOfEveryClass, takes_the_lowest_free_addresses_first) {
  for (const ClassIndex c : classes()) {
    Random random{c};
    LooseSlab slab{c, nullptr};
    std::set<std::uint32_t> free;
    for (std::uint32_t i = 0; i < slab->capacity(); ++i) free.insert(i);
    std::vector<void*> out(slab->capacity());
    for (int step = 0; step < 200; ++step) {
      if (!free.empty() && random.one_in(2)) {
        const auto count = static_cast<std::uint32_t>(1 + random.below(free.size()));
        slab->take(count, out.data());
        for (std::uint32_t i = count; i-- > 0;) {
          ASSERT_EQ(slab->index_of(address_of(out[i])), *free.begin());
          free.erase(free.begin());
        }
      } else {
        for (std::uint32_t i = 0; i < slab->capacity(); ++i) {
          if (random.one_in(2)) {
            ASSERT_EQ(slab.give(i), free.insert(i).second);
          }
        }
      }
      ASSERT_EQ(slab->free_count(), free.size());
      ASSERT_EQ(slab->count_free_bits(), free.size());
      ASSERT_EQ(slab->is_full(), free.empty());
    }
  }
}

TEST_F(SlabOfEveryClass, takes_blocks_back_up_to_the_first_that_is_not_one_of_them) {
  for (const ClassIndex c : classes()) {
    LooseSlab slab{c, nullptr};
    const std::uint32_t capacity = slab->capacity();
    if (capacity < 8) continue;
    std::vector<void*> blocks(capacity);
    slab->take(capacity, blocks.data());
    Random random{c};
    for (std::size_t i = blocks.size(); i > 1; --i)
      std::swap(blocks[i - 1], blocks[random.below(i)]);

    std::vector<void*> batch{blocks[0], blocks[1], blocks[2], blocks[1], blocks[3]};
    EXPECT_EQ(slab->give(batch.data(), 5), 3U) << "a block twice";
    EXPECT_EQ(slab->free_count(), 3U);
    batch = {blocks[3], reinterpret_cast<void*>(address_of(blocks[4]) + 1), blocks[4]};
    EXPECT_EQ(slab->give(batch.data(), 3), 1U) << "inside a block";
    batch = {reinterpret_cast<void*>(slab->base - slab->block_bytes()), blocks[4]};
    EXPECT_EQ(slab->give(batch.data(), 2), 0U) << "before the slab";
    batch = {blocks[4], reinterpret_cast<void*>(end_of(*slab)), blocks[5]};
    EXPECT_EQ(slab->give(batch.data(), 3), 1U) << "behind the slab";
    EXPECT_EQ(slab->give(blocks.data() + 5, capacity - 5), capacity - 5);
    EXPECT_TRUE(slab->is_empty());
    EXPECT_EQ(slab->count_free_bits(), capacity);
    EXPECT_EQ(slab->give(blocks.data(), capacity), 0U) << "all are free";
    EXPECT_EQ(slab->free_count(), capacity);
  }
}

TEST_F(SlabOfEveryClass, takes_each_block_once_at_random) {
  random::Sequence random;
  for (ClassIndex c = 0; c < Sizes::kCount; ++c) {
    LooseSlab slab{c, nullptr};
    const std::uint32_t capacity = slab->capacity();
    std::set<std::uint32_t> taken;
    for (std::uint32_t i = 0; i < capacity; ++i) {
      taken.insert(slab->index_of(address_of(slab->take_at_random(random.word()))));
      ASSERT_EQ(slab->free_count(), capacity - i - 1);
    }
    ASSERT_EQ(taken.size(), capacity);
    ASSERT_EQ(slab->count_free_bits(), 0U);
    ASSERT_TRUE(slab.give(capacity / 2));
    ASSERT_EQ(slab->index_of(address_of(slab->take_at_random(random.word()))), capacity / 2);
  }
}

TEST(RemoteFrees, may_be_taken_without_coming_home) {
  LooseSlab slab{0, nullptr};
  for (int i = 0; i < 200; ++i) slab.take();
  for (const std::uint32_t index : {3U, 64U, 199U}) {
    static_cast<void>(slab->give_remotely(index / kWordBits, bit(index % kWordBits)));
  }
  std::set<std::uint32_t> seen;
  slab->take_marks([&](std::uint32_t index) { seen.insert(index); });
  EXPECT_EQ(seen, (std::set<std::uint32_t>{3, 64, 199}));
  EXPECT_EQ(slab->remote_count(), 0U);
  EXPECT_FALSE(slab->is_marked_free(64));
}

TEST(SlabOfFewBlocks, knows_which_blocks_nobody_has_had_yet) {
  const ClassIndex c = Sizes::of(8192);
  LooseSlab slab{c, nullptr};
  ASSERT_LE(slab->capacity(), kWordBits);
  bool virgin = false;
  void* const first = slab->take_one(&virgin);
  EXPECT_TRUE(virgin);
  std::uint32_t given = slab->give(&first, 1);
  EXPECT_EQ(given, 1U);
  EXPECT_EQ(slab->take_one(&virgin), first);
  EXPECT_FALSE(virgin);
  std::vector<void*> out(2);
  slab->take(2, out.data());
  given = slab->give(out.data(), 2);
  EXPECT_EQ(given, 2U);
  for (std::uint32_t i = 1; i < slab->capacity(); ++i) {
    static_cast<void>(slab->take_one(&virgin));
    EXPECT_EQ(virgin, i > 2) << i;
  }
}

TEST(SlabOfFewBlocks, gives_one_of_neighbours) {
  LooseSlab slab{Sizes::of(2048), nullptr};
  ASSERT_EQ(slab->capacity(), 32U);
  bool virgin = false;
  EXPECT_EQ(slab->take_one_of(16, 15, &virgin), slab->block_at(15));
  EXPECT_TRUE(virgin);
  EXPECT_EQ(slab->take_one_of(16, 7, &virgin), slab->block_at(7));
  EXPECT_EQ(slab->take_one_of(16, 7, &virgin), slab->block_at(8));
  EXPECT_EQ(slab->take_one_of(16, 15, &virgin), slab->block_at(0)) << "that is taken";
  EXPECT_EQ(slab->free_count(), 28U);
  EXPECT_TRUE(slab->give_one(slab->block_at(7)));
  EXPECT_EQ(slab->take_one_of(16, 7, &virgin), slab->block_at(7));
  EXPECT_FALSE(virgin);
  for (int i = 0; i < 12; ++i) static_cast<void>(slab->take_one_of(16, 3, &virgin));
  EXPECT_EQ(slab->take_one_of(16, 3, &virgin), slab->block_at(19)) << "of the next ones";
}

TEST(SlabOfManyBlocks, gives_one_of_neighbours) {
  LooseSlab slab{Sizes::of(64), nullptr};
  bool virgin = true;
  EXPECT_EQ(slab->take_one_of(16, 9, &virgin), slab->block_at(9));
  EXPECT_FALSE(virgin);
  std::vector<void*> out(kWordBits);
  slab->take(kWordBits, out.data());
  EXPECT_EQ(slab->take_one_of(16, 2, &virgin), slab->block_at(kWordBits + 2));
  EXPECT_EQ(slab->free_count(), slab->capacity() - kWordBits - 2);
}

TEST(SlabOfManyBlocks, never_vouches_for_a_block) {
  LooseSlab slab{Sizes::of(16), nullptr};
  bool virgin = true;
  static_cast<void>(slab->take_one(&virgin));
  EXPECT_FALSE(virgin);
}

TEST(RemoteFrees, come_home_when_the_owner_collects) {
  Owner owner;
  LooseSlab slab{Sizes::of(64), &owner};
  std::vector<void*> out(200);
  slab->take(200, out.data());
  slab.free_remotely(5);
  slab.free_remotely(6);
  slab.free_remotely(130);
  EXPECT_EQ(slab->remote_count(), 3U);
  EXPECT_TRUE(slab->is_marked_remote(130));
  EXPECT_FALSE(slab->is_marked_remote(131));
  EXPECT_FALSE(slab->is_marked_free(5)) << "not before the owner has looked";
  EXPECT_EQ(take_all(owner.inbox), Slabs{&*slab});
  EXPECT_EQ(slab.collect(), 3U);
  EXPECT_EQ(slab->remote_count(), 0U);
  EXPECT_EQ(slab->free_count(), slab->capacity() - 197);
  EXPECT_EQ(slab->count_free_bits(), slab->free_count());
  EXPECT_EQ(slab.take(), 5U);
  EXPECT_EQ(slab.take(), 6U);
  EXPECT_EQ(slab.take(), 130U);
  EXPECT_EQ(slab.take(), 200U);
  EXPECT_EQ(slab.collect(), 0U);
  EXPECT_TRUE(slab.doubles.empty());
}

TEST(RemoteFrees, tell_which_blocks_were_marked_before) {
  Owner owner;
  LooseSlab slab{Sizes::of(64), &owner};
  std::vector<void*> out(8);
  slab->take(8, out.data());
  EXPECT_EQ(slab->give_remotely(0, 0b0110), 0U);
  EXPECT_EQ(slab->give_remotely(0, 0b1100), Word{0b0100});
  EXPECT_EQ(slab.collect(), 3U);
}

TEST(RemoteFrees, of_blocks_that_are_free_are_told_and_change_nothing) {
  Owner owner;
  LooseSlab slab{Sizes::of(64), &owner};
  std::vector<void*> out(4);
  slab->take(4, out.data());
  slab.free_remotely(2);
  slab.free_remotely(70);
  slab.free_remotely(5);
  EXPECT_EQ(slab.collect(), 1U);
  EXPECT_EQ(slab.doubles, (std::vector<std::uint32_t>{5, 70}));
  EXPECT_EQ(slab->free_count(), slab->capacity() - 3);
  EXPECT_EQ(slab->count_free_bits(), slab->free_count());
}

TEST(Announcement, puts_a_slab_into_its_owners_inbox_once) {
  Owner owner;
  LooseSlab one{Sizes::of(64), &owner};
  LooseSlab two{Sizes::of(64), &owner};
  EXPECT_TRUE(owner.inbox.empty());
  one.free_remotely(1);
  two.free_remotely(1);
  one.free_remotely(2);
  EXPECT_FALSE(owner.inbox.empty());
  EXPECT_TRUE(one->is_announced());
  EXPECT_EQ(take_all(owner.inbox), (Slabs{&*two, &*one}));
  EXPECT_TRUE(owner.inbox.empty());
  EXPECT_FALSE(one->is_announced());
  one.free_remotely(3);
  EXPECT_EQ(take_all(owner.inbox), Slabs{&*one});
}

TEST(Announcement, may_come_again_while_the_owner_looks) {
  Owner owner;
  LooseSlab one{Sizes::of(64), &owner};
  LooseSlab two{Sizes::of(64), &owner};
  one.free_remotely(1);
  two.free_remotely(1);
  Slabs seen;
  owner.inbox.take_all([&](Slab* slab) {
    seen.push_back(slab);
    slab->announce();  // another thread, at the worst moment
  });
  EXPECT_EQ(seen, (Slabs{&*two, &*one}));
  EXPECT_EQ(take_all(owner.inbox), (Slabs{&*one, &*two}));
}

TEST(Announcement, of_an_orphan_leaves_it_to_the_adopter_to_look) {
  LooseSlab slab{Sizes::of(64), nullptr};
  std::vector<void*> out(4);
  slab->take(4, out.data());
  slab.free_remotely(1);
  EXPECT_FALSE(slab->is_announced());
  EXPECT_EQ(slab->remote_count(), 1U);
  Owner adopter;
  slab->set_owner(&adopter);
  EXPECT_EQ(slab.collect(), 1U);
  slab.free_remotely(2);
  EXPECT_EQ(take_all(adopter.inbox), Slabs{&*slab});
}

TEST(Announcement, survives_the_reuse_of_the_descriptor) {
  // A thread has marked the last block and is late with the announcement. Meanwhile the owner has
  // collected the block, given the slab up, and somebody else has made another one of it.
  Owner before;
  Owner after;
  LooseSlab slab{Sizes::of(64), &before};
  static_cast<void>(slab.take());
  slab->announce();
  slab->set_owner(nullptr);
  slab.start_again(Sizes::of(128), &after);
  EXPECT_TRUE(slab->is_announced()) << "it still is in an inbox";
  slab.free_remotely(3);
  EXPECT_TRUE(after.inbox.empty());
  // Who finds it in the inbox sees that it is somebody else's, and passes it on.
  for (Slab* const found : take_all(before.inbox)) {
    EXPECT_EQ(found->owner(), &after);
    found->announce();
  }
  EXPECT_EQ(take_all(after.inbox), Slabs{&*slab});
}

TEST(RemoteBits, survive_the_reuse_of_the_descriptor) {
  LooseSlab slab{Sizes::of(64), nullptr};
  static_cast<void>(slab->give_remotely(0, 1));
  slab.start_again(Sizes::of(64), nullptr);
  EXPECT_EQ(slab->remote_count(), 1U);
}

TEST(RemoteBits, lie_at_one_place_in_all_descriptors_of_one_size) {
  // Otherwise a mark could be set in what is now a free bit.
  for (ClassIndex a = 0; a < Sizes::kCount; ++a) {
    const std::size_t bytes = align_up(Slab::descriptor_bytes(Sizes::shape_of(a)), 64);
    for (ClassIndex b = 0; b < a; ++b) {
      if (align_up(Slab::descriptor_bytes(Sizes::shape_of(b)), 64) != bytes) continue;
      LooseSlab slab{a, nullptr};
      static_cast<void>(slab->give_remotely(0, 1));
      slab.start_again(b, nullptr);
      ASSERT_EQ(slab->remote_count(), 1U) << a << " and " << b;
      ASSERT_EQ(slab->count_free_bits(), slab->capacity());
    }
  }
}

TEST(ClosedInbox, takes_nothing) {
  Owner leaving;
  LooseSlab slab{Sizes::of(64), &leaving};
  slab.free_remotely(1);
  Slabs seen;
  leaving.inbox.close([&](Slab* found) { seen.push_back(found); });
  EXPECT_EQ(seen, Slabs{&*slab});
  EXPECT_FALSE(slab->is_announced());
  EXPECT_FALSE(leaving.inbox.push(&*slab));
  slab->forget_announcement();
  slab->set_owner(nullptr);
  slab.free_remotely(2);
  EXPECT_FALSE(slab->is_announced());
  leaving.inbox.open();
  EXPECT_TRUE(leaving.inbox.empty());
  EXPECT_TRUE(leaving.inbox.push(&*slab));
}

// --- pages without blocks in use ----------------------------------------------------------------

// Takes the free blocks that reach into no purged page, lowest first, and none else.
void expect_present(Slab& slab, std::size_t page, const std::vector<bool>& is_free,
                    const std::vector<bool>& purged) {
  std::vector<void*> expected;
  for (std::uint32_t i = slab.capacity(); i-- > 0;) {
    const std::size_t first = std::size_t{i} * slab.block_bytes();
    bool is_present = is_free[i];
    for (std::size_t at = first / page; at <= (first + slab.block_bytes() - 1) / page; ++at) {
      is_present = is_present && !purged[at];
    }
    if (is_present) expected.push_back(slab.block_at(i));
  }
  if (slab.is_full()) return;
  ASSERT_TRUE(slab.has_holes());
  const std::uint32_t free_before = slab.free_count();
  std::vector<void*> taken(slab.capacity());
  taken.resize(slab.take_present(slab.capacity(), page, taken.data()));
  ASSERT_EQ(taken, expected);
  ASSERT_EQ(slab.free_count(), free_before - taken.size());
  ASSERT_EQ(slab.count_free_bits(), slab.free_count());
  ASSERT_EQ(slab.take_present(1, page, taken.data()), 0U);
}

TEST(SlabRest, finds_every_page_without_a_block_in_use_and_no_other) {
  Random random{20};
  for (ClassIndex c = 0; c < Sizes::kCount; c += 3) {
    for (std::size_t page : {std::size_t{4096}, std::size_t{16384}}) {
      Owner owner;
      LooseSlab slab{c, &owner};
      const std::uint32_t capacity = slab->capacity();
      for (std::uint32_t i = 0; i < capacity; ++i) slab.take();
      std::vector<bool> is_free(capacity, false);
      for (std::uint32_t run = 0; run < 12; ++run) {
        const auto begin = static_cast<std::uint32_t>(random.below(capacity));
        const auto length =
            static_cast<std::uint32_t>(1 + random.below(std::max(1U, capacity / 6)));
        for (std::uint32_t i = begin; i < std::min(capacity, begin + length); ++i) {
          if (is_free[i]) continue;
          ASSERT_TRUE(slab.give(i));
          is_free[i] = true;
        }
      }
      const std::size_t blocks_end = std::size_t{capacity} * slab->block_bytes();
      std::vector<bool> purged(blocks_end / page + 1, false);
      ASSERT_TRUE(slab->purge_free_pages(page, [&](Address from, Address to) {
        EXPECT_EQ((from | to) % page, 0U);
        for (Address at = from; at < to; at += page) purged[(at - slab->base) / page] = true;
        return true;
      }));
      for (std::size_t at = 0; at < blocks_end; at += page) {
        bool expected = true;
        for (std::size_t byte = at; byte < std::min(at + page, blocks_end); ++byte) {
          expected = expected && is_free[byte / slab->block_bytes()];
        }
        ASSERT_EQ(purged[at / page], expected) << "class " << c << ", page at " << at;
      }
      expect_present(*slab, page, is_free, purged);
    }
  }
}

TEST(SlabRest, comes_when_the_number_of_free_blocks_stays_and_ends_when_it_changes) {
  using Rest = Slab::Rest;
  Owner owner;
  LooseSlab slab{Sizes::of(1024), &owner};
  const auto purge_all = [&] {
    return slab->purge_free_pages(4096, [](Address, Address) { return true; });
  };
  while (!slab->is_full()) slab.take();
  EXPECT_EQ(slab->look_for_rest(), Rest::settled) << "nothing is free";
  ASSERT_TRUE(slab.give(3));
  EXPECT_EQ(slab->look_for_rest(), Rest::moving);
  ASSERT_TRUE(slab.give(4));
  EXPECT_EQ(slab->look_for_rest(), Rest::moving);
  EXPECT_EQ(slab->look_for_rest(), Rest::resting);
  ASSERT_TRUE(purge_all());
  EXPECT_EQ(slab->look_for_rest(), Rest::settled);
  slab.take();
  EXPECT_EQ(slab->look_for_rest(), Rest::moving);
  EXPECT_EQ(slab->look_for_rest(), Rest::resting);
  // As many are free as before, but others, or the same again.
  const std::uint32_t index = slab.take();
  ASSERT_TRUE(slab.give(index));
  EXPECT_EQ(slab->look_for_rest(), Rest::moving);
  EXPECT_EQ(slab->look_for_rest(), Rest::resting);
  ASSERT_TRUE(purge_all());
  ASSERT_TRUE(slab.give(slab.take()));
  EXPECT_EQ(slab->look_for_rest(), Rest::moving);
  EXPECT_EQ(slab->look_for_rest(), Rest::resting);
  EXPECT_FALSE(slab->purge_free_pages(64, [](Address, Address) { return false; }));
  EXPECT_EQ(slab->look_for_rest(), Rest::resting) << "what was broken off is not done";
}

TEST(SlabWithGuard, has_room_for_it_and_loses_few_blocks) {
  for (const std::size_t guard : {4096UL, 16384UL, 65536UL}) {
    for (ClassIndex c = 0; c < Sizes::kCount; ++c) {
      const sizes::SlabShape& usual = Sizes::shape_of(c);
      const sizes::SlabShape shape = slab::with_guard(usual, guard);
      const std::size_t blocks = std::size_t{shape.capacity} * shape.block_bytes;
      EXPECT_LE(align_up(blocks, guard) + guard, Slices{shape.slices}.bytes()) << shape.block_bytes;
      EXPECT_GE(shape.capacity * 8, usual.capacity * 7) << shape.block_bytes;
      EXPECT_EQ(shape.capacity > kWordBits, usual.capacity > kWordBits) << shape.block_bytes;
      EXPECT_LE(shape.slices, usual.slices + 1);
      EXPECT_EQ(shape.divider, usual.divider);
    }
  }
}

}  // namespace
}  // namespace allod::test

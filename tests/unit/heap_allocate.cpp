// Layer 5: what malloc and its kin get from a heap.
#include <gtest/gtest.h>

#include <cstring>

#include "heap_world.hpp"

namespace allod::test {
namespace {

using HeapAllocation = HeapWorld;

TEST_F(HeapAllocation, gives_blocks_of_any_size_that_do_not_overlap) {
  Domain& domain = attach();
  std::vector<std::pair<unsigned char*, std::size_t>> blocks;
  std::vector<std::size_t> sizes{0, 1, 7, 8, 9, 15, 16, 17, 24, 3 * kMiB, 20 * kMiB};
  for (ClassIndex c = 0; c < Sizes::kCount; ++c) {
    for (const int off : {-1, 0, 1}) {
      sizes.push_back(Sizes::size_of(c) + static_cast<std::size_t>(off));
    }
  }
  for (const std::size_t size : sizes) {
    for (int i = 0; i < 3; ++i) {
      auto* const block = static_cast<unsigned char*>(allocate(domain, size));
      ASSERT_NE(block, nullptr) << size;
      ASSERT_EQ(address_of(block) % (size > 8 ? 16 : 8), 0U) << size;
      ASSERT_GE(heap.usable_size(block), size);
      std::memset(block, static_cast<int>(blocks.size() % 251), size);
      blocks.emplace_back(block, size);
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto& [block, size] = blocks[i];
    ASSERT_TRUE(is_all(block, size, static_cast<unsigned char>(i % 251))) << size;
  }
  heap.check_invariants();
  for (const auto& [block, size] : blocks) release(domain, block);
}

TEST_F(HeapAllocation, lets_every_byte_of_the_usable_size_be_used) {
  Domain& domain = attach();
  for (std::size_t size = 1; size < 40 * kMiB; size += 1 + size / 3) {
    void* const block = allocate(domain, size);
    void* const next = allocate(domain, size);
    std::memset(next, 2, heap.usable_size(next));
    std::memset(block, 1, heap.usable_size(block));
    EXPECT_TRUE(is_all(next, heap.usable_size(next), 2));
    release(domain, block);
    release(domain, next);
  }
}

TEST_F(HeapAllocation, asks_for_huge_pages_where_a_class_has_full_slabs) {
  const auto is_huge = [&](const void* block) { return system.is_huge_at(address_of(block)); };
  Domain& domain = attach();
  static_cast<void>(allocate(domain, heap.options().huge_pages_from));
  // Of so many blocks, of which each `every`th is touched as a whole, the others up to `touched`.
  constexpr int kBlocks = 600;
  const auto count_huge = [&](std::size_t size, std::size_t touched, int every) {
    int huge = 0;
    for (int i = 0; i < kBlocks; ++i) {
      void* const block = allocate(domain, size);
      std::memset(block, 1, i % every == 0 ? size : touched);
      huge += is_huge(block) ? 1 : 0;
    }
    return huge;
  };
  const int of_touched = count_huge(64 * kKiB, 64 * kKiB, 1);
  EXPECT_GT(of_touched, kBlocks / 2);
  EXPECT_LT(of_touched, kBlocks);
  // Huge pages would take twice the memory, and for the few that need them four times.
  EXPECT_EQ(count_huge(32 * kKiB, 16 * kKiB, kBlocks), 0);
  EXPECT_EQ(count_huge(128 * kKiB, 8 * kKiB, 3), 0);
  // What was so once is looked at again.
  const int of_untouched = count_huge(64 * kKiB, 8 * kKiB, kBlocks);
  EXPECT_GT(of_untouched, 0);
  EXPECT_LT(of_untouched, kBlocks / 4);
  // Of each other class one slab, perhaps to stay nearly empty.
  for (std::size_t size = 8; size < 16 * kKiB; size *= 2) {
    EXPECT_FALSE(is_huge(allocate(domain, size))) << size;
  }
}

TEST_F(HeapAllocation, gives_small_sizes_the_class_of_their_size) {
  Domain& domain = attach();
  for (std::size_t size = 0; size <= Sizes::kTableMaxSize; ++size) {
    void* const block = allocate(domain, size);
    release(domain, block);
    EXPECT_EQ(domain.pop_small(size), block) << size;
    EXPECT_EQ(heap.usable_size(block), Sizes::size_of(Sizes::of(size)));
    release(domain, block);
  }
}

TEST_F(HeapAllocation, fills_slabs_in_address_order) {
  Domain& domain = attach();
  const std::vector<void*> blocks = allocate_many(domain, 700, 64);
  EXPECT_TRUE(std::is_sorted(blocks.begin(), blocks.end()));
  EXPECT_EQ(address_of(blocks[699]) - address_of(blocks[0]), 699U * 64);
}

TEST_F(HeapAllocation, gives_the_block_that_was_freed_last) {
  Domain& domain = attach();
  const std::vector<void*> blocks = allocate_many(domain, 5, 100);
  release(domain, blocks[1]);
  release(domain, blocks[3]);
  EXPECT_EQ(allocate(domain, 100), blocks[3]);
  EXPECT_EQ(allocate(domain, 100), blocks[1]);
}

TEST_F(HeapAllocation, takes_the_page_maps_word_for_whose_a_block_is) {
  Domain& one = attach();
  Domain& two = attach();
  EXPECT_NE(one.id(), two.id());
  for (const std::size_t size : {std::size_t{8}, std::size_t{100}, 40 * kKiB, Sizes::kMaxSize}) {
    void* const block = allocate(one, size);
    const space::Tag tag = heap.space().map().tag_of(address_of(block));
    EXPECT_TRUE(one.owns(tag));
    EXPECT_FALSE(two.owns(tag));
    EXPECT_EQ(space::class_of(tag), Sizes::of(size));
    EXPECT_EQ(space::owner_of(tag), one.id());
  }
  for (const space::Tag tag :
       {space::kForeignTag, space::kFreeTag, space::kInteriorTag, space::kHugeTag}) {
    EXPECT_FALSE(one.owns(tag));
  }
}

TEST_F(HeapAllocation, refuses_what_no_address_space_holds) {
  Domain& domain = attach();
  for (const std::size_t size :
       {SIZE_MAX, SIZE_MAX - kSliceBytes, std::size_t{PTRDIFF_MAX}, std::size_t{PTRDIFF_MAX} - 1,
        kMaxBlock + 1, kMaxBlock, kMaxBlock - 1}) {
    EXPECT_EQ(heap.allocate(domain, size, nullptr), nullptr) << size;
  }
  EXPECT_EQ(used(), 0U);
}

// --- alignment ----------------------------------------------------------------------------------

TEST_F(HeapAllocation, aligns_to_any_power_of_two_that_there_is_room_for) {
  Domain& domain = attach();
  Random random{7};
  for (unsigned shift = 0; shift <= 24; ++shift) {
    const std::size_t alignment = std::size_t{1} << shift;
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, alignment - 1, alignment,
                                   alignment + 1, random.any_magnitude(2 * kMiB)}) {
      void* const block = heap.allocate_aligned(domain, size, alignment, nullptr);
      ASSERT_NE(block, nullptr) << size << " at " << alignment;
      ASSERT_EQ(address_of(block) % alignment, 0U);
      ASSERT_GE(heap.usable_size(block), size);
      std::memset(block, 1, size);
      release(domain, block);
    }
    heap.check_invariants();
  }
}

TEST_F(HeapAllocation, keeps_every_block_of_an_aligned_class_aligned) {
  Domain& domain = attach();
  for (std::size_t alignment = 32; alignment <= kSliceBytes; alignment *= 2) {
    std::vector<void*> blocks;
    for (int i = 0; i < 40; ++i) {
      blocks.push_back(heap.allocate_aligned(domain, alignment, alignment, nullptr));
      EXPECT_EQ(address_of(blocks.back()) % alignment, 0U);
    }
    release_all(domain, blocks);
  }
}

TEST_F(HeapAllocation, refuses_alignments_that_no_address_has) {
  Domain& domain = attach();
  for (unsigned shift = kAddressesAbound ? 38 : 31; shift < 8 * sizeof(Address); ++shift) {
    for (const std::size_t size : {std::size_t{1}, kMiB, 5 * kMiB, SIZE_MAX - 5}) {
      const std::size_t alignment = std::size_t{1} << shift;
      EXPECT_EQ(heap.allocate_aligned(domain, size, alignment, nullptr), nullptr) << shift;
    }
  }
  EXPECT_EQ(heap.allocate_aligned(domain, SIZE_MAX, 64, nullptr), nullptr);
  EXPECT_EQ(heap.allocate_aligned(domain, SIZE_MAX - 30, 32, nullptr), nullptr);
  EXPECT_EQ(used(), 0U);
}

// --- magazines ----------------------------------------------------------------------------------

TEST_F(HeapAllocation, takes_some_blocks_in_advance_and_keeps_many_that_come_back) {
  Domain& domain = attach();
  const ClassIndex c = Sizes::of(64);
  const std::vector<void*> blocks = allocate_many(domain, 5000, 64);
  EXPECT_LE(domain.magazines[c].capacity(), 256U);
  release_all(domain, blocks);
  EXPECT_GT(domain.cached(c), 3500U);
  // The next burst costs nothing.
  const std::uint64_t refills = domain.counters.refills.value();
  const std::vector<void*> again = allocate_many(domain, 3500, 64);
  EXPECT_EQ(domain.counters.refills.value(), refills);
  release_all(domain, again);
}

TEST_F(HeapAllocation, bounds_what_all_classes_keep_of_bursts) {
  Domain& domain = attach();
  const auto burst_in_all_classes = [&] {
    for (ClassIndex c = 0; c < 60; ++c) {
      release_all(domain, allocate_many(domain, 6000, Sizes::size_of(c)));
    }
    std::size_t beyond = 0;
    for (ClassIndex c = 0; c < 60; ++c) {
      const std::size_t usual = std::min<std::size_t>(256, 32 * kKiB / Sizes::size_of(c));
      if (domain.cached(c) > usual) beyond += (domain.cached(c) - usual) * Sizes::size_of(c);
    }
    return beyond;
  };
  EXPECT_LE(burst_in_all_classes(), heap.options().burst_bytes);
  EXPECT_GT(domain.burst_bytes, 128 * kKiB);
  // The room comes back with the blocks.
  heap.detach(domain);
  Domain& next = attach();
  ASSERT_EQ(&next, &domain);
  EXPECT_EQ(domain.burst_bytes, 0U);
}

TEST_F(HeapAllocation, gives_a_magazines_own_memory_back_when_bursts_are_over) {
  Domain& domain = attach();
  const ClassIndex c = Sizes::of(64);
  release_all(domain, allocate_many(domain, 5000, 64));
  ASSERT_EQ(domain.magazines[c].capacity(), 4096U);
  const std::size_t before = heap.space().metadata().used_bytes();
  pass_time(domain, 20 * 256);
  EXPECT_LE(domain.magazines[c].capacity(), 256U);
  EXPECT_LT(heap.space().metadata().used_bytes(), before - 3072 * sizeof(void*));
}

TEST_F(HeapAllocation, lets_a_magazine_grow_with_use_up_to_its_bytes) {
  Domain& domain = attach();
  for (const std::size_t size : {std::size_t{16}, std::size_t{512}, 4 * kKiB}) {
    const ClassIndex c = Sizes::of(size);
    EXPECT_EQ(domain.magazines[c].capacity(), 0U);
    std::uint32_t before = 0;
    for (int round = 0; round < 30; ++round) {
      release_all(domain, allocate_many(domain, 6000, size));
      EXPECT_GE(domain.magazines[c].capacity(), before) << "it does not shrink while in use";
      before = domain.magazines[c].capacity();
      EXPECT_LE(domain.cached(c), before);
    }
    EXPECT_GT(before, 1U);
    EXPECT_EQ(before, std::min<std::size_t>(4096, heap.options().magazine_bytes / size));
  }
}

TEST_F(HeapAllocation, gives_a_class_one_block_a_time_whose_blocks_fill_the_bytes_of_a_magazine) {
  Domain& domain = attach();
  heap.options().magazine_bytes = 32 * kKiB;
  const std::size_t size = heap.options().magazine_bytes - kKiB;
  release_all(domain, allocate_many(domain, 20, size));
  EXPECT_EQ(domain.magazines[Sizes::of(size)].capacity(), 1U);
  EXPECT_LE(domain.cached(Sizes::of(size)), 1U);
}

TEST_F(HeapAllocation, takes_what_lies_idle_in_a_magazine_back) {
  Domain& domain = attach();
  const ClassIndex c = Sizes::of(64);
  const std::vector<void*> kept = allocate_many(domain, 1, 64);
  for (int i = 0; i < 10; ++i) release_all(domain, allocate_many(domain, 500, 64));
  ASSERT_GT(domain.cached(c), 50U);
  // Half of what lies there goes at each look, but for the first, which still sees the use.
  std::uint32_t before = domain.cached(c);
  for (int look = 0; look < 12; ++look) {
    pass_time(domain, 256);
    EXPECT_LE(domain.cached(c), before);
    before = domain.cached(c);
  }
  EXPECT_EQ(before, 0U);
  EXPECT_GT(domain.counters.magazine_shrinks.value(), 0U);
  Slab& slab = program.slab_of(kept[0]);
  EXPECT_EQ(slab.free_count(), slab.capacity() - 1);
}

TEST_F(HeapAllocation, gives_the_last_slab_of_a_class_to_others_when_nobody_uses_it) {
  Domain& domain = attach();
  const ClassIndex idle = Sizes::of(64);
  const ClassIndex used = Sizes::of(512);
  for (int i = 0; i < 10; ++i) release_all(domain, allocate_many(domain, 500, 64));
  for (int look = 0; look < 12; ++look) {
    release_all(domain, allocate_many(domain, 3, 512));
    EXPECT_NE(domain.bins()[used].slab_count, 0U) << "after look " << look;
    pass_time(domain, 256);
  }
  EXPECT_EQ(domain.cached(idle), 0U);
  EXPECT_EQ(domain.bins()[idle].slab_count, 0U);
}

TEST_F(HeapAllocation, keeps_the_last_slab_of_an_idle_class_that_was_hardly_used) {
  Domain& domain = attach();
  constexpr std::size_t kBytes = 4 * kKiB;  // sixteen in a slab
  for (const std::size_t used : {std::size_t{1}, std::size_t{15}}) {
    release_all(domain, allocate_many(domain, used, kBytes));
    pass_time(domain, 12 * 256);
    EXPECT_EQ(domain.cached(Sizes::of(kBytes)), 0U);
    EXPECT_EQ(domain.bins()[Sizes::of(kBytes)].slab_count, used == 1 ? 1U : 0U);
  }
}

TEST_F(HeapAllocation, gives_up_after_many_bursts_what_nobody_has_touched) {
  Domain& domain = attach();
  const ClassIndex idle = Sizes::of(64);
  release_all(domain, allocate_many(domain, 500, 64));
  release_all(domain, allocate_many(domain, 40, 512));
  const std::uint32_t held = domain.cached(Sizes::of(512));
  ASSERT_GT(held, 10U);
  constexpr std::uint32_t kLooks = 4;
  const std::uint64_t refills = domain.counters.refills.value();
  for (std::uint32_t look = 0; look < kLooks; ++look) {
    static_cast<void>(allocate_many(domain, 1, 512));
    for (int burst = 0; burst < 256; ++burst) heap.note_burst(domain);
  }
  EXPECT_EQ(domain.cached(idle), 0U);
  EXPECT_EQ(domain.bins()[idle].slab_count, 0U);
  EXPECT_EQ(domain.counters.refills.value(), refills);
  EXPECT_EQ(domain.cached(Sizes::of(512)), held - kLooks) << "what is used stays, needed or not";
}

TEST_F(HeapAllocation, keeps_few_large_blocks_at_hand) {
  Domain& domain = attach();
  // In turn, more classes than may keep a block.
  for (int round = 0; round < 3; ++round) {
    for (std::size_t size = 32 * kKiB; size <= kMiB; size += size / 8) {
      release_all(domain, allocate_many(domain, 2, size));
      std::size_t held = 0;
      for (ClassIndex c = Sizes::of(32 * kKiB); c < Sizes::kCount; ++c) {
        EXPECT_LE(domain.cached(c), 1U);
        held += domain.cached(c) * Sizes::size_of(c);
      }
      EXPECT_LE(held, heap.options().large_cache_bytes);
    }
  }
}

TEST_F(HeapAllocation, reuses_a_large_block_without_a_slow_path) {
  Domain& domain = attach();
  for (int i = 0; i < 3; ++i) release(domain, allocate(domain, 200 * kKiB));
  const std::uint64_t before = system.count_all();
  const std::uint32_t slow = domain.slow_operations;
  for (int i = 0; i < 100; ++i) release(domain, allocate(domain, 200 * kKiB));
  EXPECT_EQ(system.count_all(), before);
  EXPECT_EQ(domain.slow_operations, slow);
}

TEST_F(HeapAllocation, does_not_ask_the_system_in_a_steady_state) {
  Domain& domain = attach();
  for (std::size_t size = 1; size <= 8 * kMiB; size += 1 + size / 2) {
    for (int i = 0; i < 5; ++i) release(domain, allocate(domain, size));
    const std::uint64_t before = system.count_all();
    for (int i = 0; i < 300; ++i) release(domain, allocate(domain, size));
    EXPECT_EQ(system.count_all(), before) << size;
  }
}

// --- known zeros
// ----------------------------------------------------------------------------------

TEST_F(HeapAllocation, vouches_for_zeros_in_fresh_memory_and_only_there) {
  Domain& domain = attach();
  for (const std::size_t size : {64 * kKiB, 300 * kKiB, 3 * kMiB}) {
    bool zero = false;
    void* const block = program.allocate_zeroable(domain, size, &zero);
    EXPECT_TRUE(zero) << size;
    EXPECT_TRUE(is_all(block, size, 0));
    std::memset(block, 1, size);
    release(domain, block);
    void* const again = program.allocate_zeroable(domain, size, &zero);
    EXPECT_EQ(again, block);
    EXPECT_FALSE(zero) << size;
    release(domain, again);
  }
}

TEST_F(HeapAllocation, never_vouches_for_zeros_wrongly) {
  for (const Fake::Purge mode :
       {Fake::Purge::zeroes, Fake::Purge::refuses, Fake::Purge::scrambles}) {
    system.set_purge(mode);
    Domain& domain = attach();
    Random random{8};
    std::vector<std::pair<void*, std::size_t>> blocks;
    int vouched = 0;
    for (int step = 0; step < 4000; ++step) {
      if (random.one_in(200)) heap.trim(domain);
      if (blocks.size() < 60 && random.one_in(2)) {
        const std::size_t size = random.any_magnitude(3 * kMiB);
        bool zero = false;
        void* const block = program.allocate_zeroable(domain, size, &zero);
        ASSERT_NE(block, nullptr);
        vouched += zero ? 1 : 0;
        if (zero) {
          ASSERT_TRUE(is_all(block, size, 0)) << size;
        }
        std::memset(block, 0xee, heap.usable_size(block));
        blocks.emplace_back(block, size);
      } else if (!blocks.empty()) {
        const std::size_t victim = random.below(blocks.size());
        if (random.one_in(3)) {
          const std::size_t size = random.any_magnitude(3 * kMiB);
          blocks[victim] = {program.resize(domain, blocks[victim].first, size), size};
          std::memset(blocks[victim].first, 0xee, heap.usable_size(blocks[victim].first));
          continue;
        }
        release(domain, blocks[victim].first);
        blocks[victim] = blocks.back();
        blocks.pop_back();
      }
    }
    if (mode == Fake::Purge::zeroes) {
      EXPECT_GT(vouched, 20);
    }
    for (const auto& [block, size] : blocks) release(domain, block);
    heap.detach(domain);
    heap.check_invariants();
  }
}

TEST_F(HeapAllocation, has_guards_behind_slabs_and_not_in_blocks) {
  system.set_guards(true);
  system.set_scattering(true);
  Domain& domain = attach();
  for (ClassIndex c = 0; c < Sizes::kCount; ++c) {
    const std::size_t size = Sizes::size_of(c);
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < 2 * kSliceBytes / size + 2; ++i) {
      blocks.push_back(allocate(domain, size));
      // To the last byte.
      std::memset(blocks.back(), 1, heap.usable_size(blocks.back()));
      const slab::Slab& slab = program.slab_of(blocks.back());
      ASSERT_EQ(slab.guarded_from, align_up(address_of(slab.block_at(slab.capacity())), 4096));
      ASSERT_LT(slab.guarded_from, end_of(slab)) << size;
    }
    // What changes its class goes on without.
    if (void* const same = heap.resize_in_place(&domain, blocks.back(), size + size / 2)) {
      std::memset(same, 2, heap.usable_size(same));
    }
    heap.check_invariants();
    release_all(domain, blocks);
  }
  heap.detach(domain);
}

}  // namespace
}  // namespace allod::test

// Layer 5: what free does, and what it says when it should not have been called.
#include <gtest/gtest.h>

#include "heap_world.hpp"

namespace allod::test {
namespace {

using HeapRelease = HeapWorld;

TEST_F(HeapRelease, gives_empty_slabs_back_to_the_space) {
  Domain& domain = attach();
  const std::vector<void*> blocks = allocate_many(domain, 100'000, 64);
  const std::size_t most = used();
  release_all(domain, blocks);
  EXPECT_LT(used(), most / 4);
  heap.trim(domain);
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapRelease, keeps_one_small_empty_slab_for_what_comes_next) {
  Domain& domain = attach();
  const std::uint64_t before = domain.counters.slabs_created.value();
  // Each round empties the only slab of the class.
  for (int i = 0; i < 50; ++i) release_all(domain, allocate_many(domain, 600, 64));
  EXPECT_EQ(domain.counters.slabs_created.value() - before, 1U);
}

TEST_F(HeapRelease, uses_slabs_up_that_are_mostly_used_and_lets_the_others_become_empty) {
  Domain& domain = attach();
  std::vector<void*> blocks = allocate_many(domain, 3 * 1024, 64);  // three slabs
  Slab* const mostly_free = &program.slab_of(blocks[0]);
  Slab* const mostly_used = &program.slab_of(blocks[1024]);
  for (std::size_t i = 0; i < 1000; ++i) release(domain, blocks[i]);
  for (std::size_t i = 1024; i < 1224; ++i) release(domain, blocks[i]);
  heap.trim(domain);
  ASSERT_EQ(mostly_free->free_count(), 1000U);
  ASSERT_EQ(mostly_used->free_count(), 200U);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(&program.slab_of(allocate(domain, 64)), mostly_used) << i;
  }
}

TEST_F(HeapRelease, of_null_does_nothing) {
  Domain& domain = attach();
  heap.release(domain, nullptr);
  heap.options().report_foreign = true;
  heap.release(domain, nullptr);
  heap.release_detached(nullptr);
}

TEST_F(HeapRelease, gives_huge_blocks_back_at_once) {
  Domain& domain = attach();
  void* const block = allocate(domain, 5 * kMiB);
  EXPECT_EQ(used(), 5 * kMiB);
  release(domain, block);
  EXPECT_EQ(used(), 0U);
  void* const other = allocate(domain, 5 * kMiB);
  heap.release_detached(other);
  EXPECT_EQ(used(), 0U);
}

// --- misuse
// ---------------------------------------------------------------------------------------

TEST_F(HeapRelease, reports_a_block_that_was_freed_twice_when_the_magazine_is_flushed) {
  Domain& domain = attach();
  const std::vector<void*> blocks = allocate_many(domain, 4, 64);
  release(domain, blocks[0]);
  release(domain, blocks[0]);
  heap.trim(domain);
  const std::vector<Misuse> seen = reports();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].kind, MisuseKind::double_free);
  EXPECT_EQ(seen[0].address, blocks[0]);
  EXPECT_EQ(seen[0].block, blocks[0]);
  EXPECT_EQ(seen[0].block_bytes, 64U);
  EXPECT_EQ(seen[0].owner, domain.id());
  heap.check_invariants();
  EXPECT_EQ(allocate(domain, 64), blocks[0]);
  EXPECT_NE(allocate(domain, 64), blocks[0]);
}

TEST_F(HeapRelease, reports_a_block_that_was_freed_twice_with_its_slab_gone_meanwhile) {
  Domain& domain = attach();
  // Blocks of two slabs with one block each of them in the magazine twice, in turn: the first slab
  // is empty, and gone, when its block comes up again.
  const std::size_t size = 20 * kKiB;
  const std::uint32_t capacity = Sizes::shape_of(Sizes::of(size)).capacity;
  const std::vector<void*> first = allocate_many(domain, capacity, size);
  const std::vector<void*> second = allocate_many(domain, capacity, size);
  const std::vector<void*> third = allocate_many(domain, 1, size);  // the others may go
  heap.options().magazine_bytes = 8 * kMiB;
  for (int i = 0; i < 20; ++i) release_all(domain, allocate_many(domain, 40, size));
  heap.trim(domain);
  ASSERT_EQ(&program.slab_of(first[0]), &program.slab_of(first[capacity - 1]));
  ASSERT_GE(domain.magazines[Sizes::of(size)].capacity(), 2 * capacity + 2U);
  release_all(domain, first);
  release(domain, second[0]);
  release(domain, first[0]);
  heap.trim(domain);
  expect_one(MisuseKind::double_free, first[0]);
  heap.check_invariants();
}

TEST_F(HeapRelease, reports_a_block_in_memory_that_is_free) {
  Domain& domain = attach();
  void* const huge = allocate(domain, 5 * kMiB);
  release(domain, huge);
  release(domain, huge);
  expect_one(MisuseKind::double_free, huge);

  void* const large = allocate(domain, 100 * kKiB);
  release(domain, large);
  heap.trim(domain);
  release(domain, large);
  expect_one(MisuseKind::double_free, large);
  heap.release_detached(large);
  expect_one(MisuseKind::double_free, large);
}

TEST_F(HeapRelease, reports_an_address_inside_of_a_block) {
  Domain& domain = attach();
  auto* const small = static_cast<char*>(allocate(domain, 64));
  release(domain, small + 16);
  heap.trim(domain);
  const std::vector<Misuse> seen = reports();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].kind, MisuseKind::invalid_free);
  EXPECT_EQ(seen[0].address, small + 16);
  EXPECT_EQ(seen[0].block, small);

  auto* const huge = static_cast<char*>(allocate(domain, 5 * kMiB));
  for (const std::size_t offset : {std::size_t{16}, kSliceBytes, 3 * kMiB}) {
    release(domain, huge + offset);
    const std::vector<Misuse> told = reports();
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0].kind, MisuseKind::invalid_free);
    EXPECT_EQ(told[0].block, huge);
    heap.release_detached(huge + offset);
    expect_one(MisuseKind::invalid_free, huge + offset);
  }
  auto* const single = static_cast<char*>(allocate(domain, Sizes::kMaxSize));
  release(domain, single + kSliceBytes);
  expect_one(MisuseKind::invalid_free, single + kSliceBytes);
  release(domain, single);
  release(domain, huge);
  release(domain, small);
}

TEST_F(HeapRelease, reports_an_address_in_the_tail_of_a_slab) {
  Domain& domain = attach();
  const std::size_t size = 1280;  // does not divide a slice
  void* const block = allocate(domain, size);
  Slab& slab = program.slab_of(block);
  const Address tail = slab.base + std::size_t{slab.capacity()} * slab.block_bytes();
  ASSERT_LT(tail, end_of(slab));
  release(domain, reinterpret_cast<void*>(tail));
  heap.trim(domain);
  const std::vector<Misuse> seen = reports();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].kind, MisuseKind::invalid_free);
  EXPECT_EQ(seen[0].block, nullptr);
  release(domain, block);
}

TEST_F(HeapRelease, reports_what_other_threads_free_wrongly) {
  Domain& owner = attach();
  Domain& other = attach();
  auto* const block = static_cast<char*>(allocate(owner, 64));
  release(other, block + 8);
  expect_one(MisuseKind::invalid_free, block + 8);
  heap.release_detached(block + 8);
  expect_one(MisuseKind::invalid_free, block + 8);

  release(other, block);
  release(other, block);
  expect_one(MisuseKind::double_free, block);
  heap.trim(other);  // the first free is on its way now
  heap.release_detached(block);
  expect_one(MisuseKind::double_free, block);
  heap.trim(owner);
  EXPECT_TRUE(reports().empty());
}

TEST_F(HeapRelease, reports_a_block_that_its_owner_and_another_have_freed) {
  Domain& owner = attach();
  Domain& other = attach();
  const std::vector<void*> blocks = allocate_many(owner, 10, 64);
  release(owner, blocks[3]);
  heap.trim(owner);
  release(other, blocks[3]);
  heap.trim(other);
  heap.trim(owner);
  expect_one(MisuseKind::double_free, blocks[3]);
}

TEST_F(HeapRelease, leaves_foreign_addresses_alone_unless_told_to_report_them) {
  Domain& domain = attach();
  int on_stack = 0;
  static int in_data = 0;
  const std::vector<void*> foreign{&on_stack,
                                   &in_data,
                                   reinterpret_cast<void*>(8),
                                   reinterpret_cast<void*>(SIZE_MAX / 2 + 1),
                                   reinterpret_cast<void*>(SIZE_MAX / 4 + 1),
                                   reinterpret_cast<void*>(~Address{7}),
                                   system.map(kSliceBytes)};
  release_all(domain, foreign);
  for (void* const address : foreign) heap.release_detached(address);
  EXPECT_TRUE(reports().empty());
  heap.options().report_foreign = true;
  for (void* const address : foreign) {
    release(domain, address);
    expect_one(MisuseKind::foreign_free, address);
    EXPECT_EQ(heap.usable_size(address), 0U);
  }
}

TEST_F(HeapRelease, does_nothing_with_an_address_that_it_has_reported) {
  Domain& domain = attach();
  Random random{10};
  std::vector<void*> blocks = allocate_many(domain, 500, 96);
  for (int step = 0; step < 5000; ++step) {
    const std::size_t i = random.below(blocks.size());
    if (random.one_in(20)) release(domain, static_cast<char*>(blocks[i]) + 1 + random.below(95));
    release(domain, blocks[i]);
    blocks[i] = allocate(domain, 96);
    // An address that is no block may come out of the magazine again, as it went in.
    while (program.slab_of(blocks[i]).index_of(address_of(blocks[i])) == Slab::kNoBlock) {
      blocks[i] = allocate(domain, 96);
    }
  }
  heap.trim(domain);
  for (const Misuse& misuse : reports()) EXPECT_EQ(misuse.kind, MisuseKind::invalid_free);
  release_all(domain, blocks);
  heap.trim(domain);
  EXPECT_EQ(used(), 0U);
}

// --- questions
// ------------------------------------------------------------------------------------

TEST_F(HeapRelease, answers_questions_about_any_address) {
  Domain& domain = attach();
  for (std::size_t size = 1; size < 4 * kMiB; size = 2 * size + 1) {
    auto* const block = static_cast<char*>(allocate(domain, size));
    EXPECT_GE(heap.usable_size(block), size);
    EXPECT_EQ(heap.usable_size(block + 1), 0U) << "no block starts there";
    const Misuse inside = heap.describe(MisuseKind::invalid_free, block + size / 2);
    EXPECT_EQ(inside.block, block);
    EXPECT_EQ(inside.block_bytes, heap.usable_size(block));
    release(domain, block);
  }
  Random random{11};
  for (int i = 0; i < 10'000; ++i) {
    // Any address at all, and any in the arena: nothing may fault.
    const Address anywhere = random.next() >> random.below(64);
    static_cast<void>(heap.describe(MisuseKind::invalid_free, reinterpret_cast<void*>(anywhere)));
    const Address near = system.arena() + Fake::arena_bytes() - random.below(64 * kMiB);
    static_cast<void>(heap.describe(MisuseKind::invalid_free, reinterpret_cast<void*>(near)));
  }
}

}  // namespace
}  // namespace allod::test

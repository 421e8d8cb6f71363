// Huge blocks that domains of a heap on a fake system keep.
#pragma once

#include <algorithm>
#include <cstring>

#include "heap_world.hpp"

namespace allod::test {

constexpr std::size_t kHuge = 5 * kMiB;

class HeapKept : public HeapWorld {
 protected:
  void SetUp() override {
    HeapWorld::SetUp();
    heap.options().purge_delay_ms = 500;
    heap.options().purge_budget = 16 * kMiB;
    start_helper();
  }
  // Dirty memory makes it start.
  void start_helper() {
    Domain& domain = attach();
    void* const block = allocate(domain, kHuge);
    release(domain, block);
    EXPECT_FALSE(is_kept(block));
    ASSERT_TRUE(system.helper_waits());
    heap.trim(domain);
    heap.detach(domain);
  }
  // Of which little is in memory.
  void* allocate_sparse(Domain& domain, std::size_t size = kHuge,
                        std::size_t touched = kSliceBytes) {
    void* const block = allocate(domain, size);
    std::memset(block, 1, touched);
    return block;
  }
  std::vector<void*> keep_sparse(Domain& domain, std::size_t count, std::size_t size = kHuge,
                                 std::size_t touched = kSliceBytes) {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < count; ++i) {
      blocks.push_back(allocate_sparse(domain, size, touched));
    }
    release_all(domain, blocks);
    return blocks;
  }
  std::size_t count_kept(const std::vector<void*>& blocks) {
    return static_cast<std::size_t>(
        std::ranges::count_if(blocks, [&](const void* block) { return is_kept(block); }));
  }
  // A block that was just freed and is kept.
  void* keep(Domain& domain, std::size_t size = kHuge) {
    void* const block = allocate(domain, size);
    std::memset(block, 1, size);
    release(domain, block);
    EXPECT_TRUE(is_kept(block));
    return block;
  }
  bool is_kept(const void* block) {
    const space::Span* const span = heap.space().map().span_of(address_of(block));
    return span != nullptr && heap.is_kept(*span);
  }
  std::uint64_t span_calls() {
    const auto counters = heap.space().counters();
    return counters.span_allocations + counters.span_frees;
  }
  static std::size_t resident(const void* block) { return Fake::resident_bytes(block, kHuge); }
};

}  // namespace allod::test

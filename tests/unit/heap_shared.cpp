// Domains that threads use in turn.
#include <optional>
#include <set>

#include "allod/thread/shared_domains.hpp"
#include "heap_shared.hpp"

namespace allod::test {
namespace {

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

TEST_F(HeapShared, lets_a_handler_fork_that_has_interrupted_a_turn) {
  Domain& domain = attach_shared();
  system.set_thread(1);
  {
    Turn turn{domain, heap.gate()};
    heap.before_fork(nullptr);
    heap.after_fork_in_parent();
    heap.before_fork(nullptr);
    heap.after_fork_in_child(nullptr);
    EXPECT_TRUE(Turn::is_callers(domain)) << "the turn goes on in the child";
    system.set_thread(2);
    EXPECT_FALSE((Turn{domain, heap.gate(), Turn::Wait::no}));
    system.set_thread(1);
  }
  EXPECT_TRUE((Turn{domain, heap.gate(), Turn::Wait::no}));
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

TEST_F(HeapShared, sends_frees_of_other_domains_home_at_once) {
  Domain& shared = attach_shared();
  Domain& owner = attach();
  const std::vector<void*> blocks = allocate_many(owner, 10, 64);
  Locked{heap, shared}.release(blocks[3]);
  EXPECT_EQ(program.slab_of(blocks[3]).remote_count(), 1U);
  release(owner, blocks[0]);
}

TEST_F(HeapShared, passes_on_what_it_holds) {
  Domain& shared = attach_shared();
  Locked locked{heap, shared};
  void* const block = locked.allocate(64, nullptr);
  void* const unused = locked.allocate(200, nullptr);
  locked.release(unused);
  {
    Turn turn{shared, heap.gate()};
    heap.pass_on(shared);
    EXPECT_EQ(shared.state.load(), heap::DomainState::shared);
  }
  heap.check_invariants();
  EXPECT_EQ(program.slab_of(block).owner(), nullptr);
  EXPECT_EQ(used(), program.slab_of(block).size.bytes());
  Domain& domain = attach();
  EXPECT_EQ(&program.slab_of(allocate(domain, 64)), &program.slab_of(block));
  EXPECT_EQ(domain.counters.slabs_adopted.value(), 1U);
  // It goes on, and what it has handed out comes home.
  void* const next = locked.allocate(64, nullptr);
  EXPECT_NE(program.slab_of(next).owner(), program.slab_of(block).owner());
  locked.release(block);
  release(domain, next);
  heap.detach(domain);
  EXPECT_FALSE(shared.inbox.empty());
  locked.trim();
  EXPECT_EQ(shared.counters.collected.value(), 1U);
  heap.check_invariants();
  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(HeapShared, passes_on_nothing_if_it_holds_much) {
  Domain& shared = attach_shared();
  Locked locked{heap, shared};
  std::vector<void*> blocks;
  while (shared.counters.slabs_created.value() <= 2 * Sizes::kCount) {
    blocks.push_back(locked.allocate(16 * kKiB, nullptr));
  }
  Turn turn{shared, heap.gate()};
  heap.pass_on(shared);
  EXPECT_EQ(program.slab_of(blocks.front()).owner(), &shared);
}

// --- caches -----------------------------------------------------------------------------------

class HeapCache : public HeapShared {
 protected:
  using Cache = Heap::Cache;

  Cache& attach_cache() {
    Cache* const cache = heap.attach_cache(home());
    always_check(cache != nullptr, "no cache");
    return *cache;
  }
  void* allocate(Cache& cache, std::size_t size) {
    const ClassIndex c = Sizes::of(size);
    void* const block = cache.pop(c);
    return block != nullptr ? block : heap.allocate_cached(cache, c, nullptr);
  }
  void release(Cache& cache, void* block) {
    const space::Tag tag = heap.space().map().tag_of(address_of(block));
    ASSERT_TRUE(cache.owns(tag));
    if (!cache.push(tag, block)) heap.release_cached(cache, space::class_of(tag), block);
  }
  // Room that the cache's magazines have, in bytes.
  static std::size_t room(const Cache& cache) {
    std::size_t bytes = 0;
    for (ClassIndex c = 0; c < Sizes::kCount; ++c) {
      bytes += cache.magazines[c].capacity() * Sizes::size_of(c);
    }
    return bytes;
  }

  void SetUp() override {
    HeapShared::SetUp();
    shared_ = &attach_shared();
  }
  Domain& home() { return *shared_; }

 private:
  Domain* shared_ = nullptr;
};

TEST_F(HeapCache, shares_no_cache_line_with_another) {
  Cache& one = attach_cache();
  Cache& other = attach_cache();
  std::set<Address> lines[2];
  for (int i = 0; i < 1000; ++i) {
    lines[0].insert(address_of(allocate(one, 8)) / kCacheLine);
    lines[1].insert(address_of(allocate(other, 8)) / kCacheLine);
  }
  for (const Address line : lines[0]) EXPECT_EQ(lines[1].count(line), 0U);
}

TEST_F(HeapCache, passes_blocks_between_threads_in_both_directions) {
  Cache& one = attach_cache();
  Cache& other = attach_cache();
  std::vector<void*> blocks;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 200; ++i) blocks.push_back(allocate(one, 64));
    for (void* const block : blocks) release(other, block);
    blocks.clear();
  }
  EXPECT_EQ(home().counters.slabs_created.value(), 1U) << "what one frees the other gets";
  heap.check_invariants();
  heap.detach_cache(one);
  heap.detach_cache(other);
  Locked{heap, home()}.trim();
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapCache, has_different_blocks_in_all_magazines) {
  Random random{3};
  Cache* caches[3] = {&attach_cache(), &attach_cache(), &attach_cache()};
  std::vector<void*> live;
  for (int step = 0; step < 30'000; ++step) {
    Cache& cache = *caches[random.below(3)];
    if (live.size() < 400 && random.one_in(2)) {
      live.push_back(allocate(cache, random.any_magnitude(3000)));
    } else if (!live.empty()) {
      std::swap(live[random.below(live.size())], live.back());
      release(cache, live.back());
      live.pop_back();
    }
    if (step % 1000 == 0) heap.check_invariants();
  }
  std::sort(live.begin(), live.end());
  EXPECT_EQ(std::adjacent_find(live.begin(), live.end()), live.end());
  for (void* const block : live) release(*caches[0], block);
  for (Cache* const cache : caches) heap.detach_cache(*cache);
  Locked{heap, home()}.trim();
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapCache, gives_blocks_to_whom_its_domain_has_passed_them_on) {
  Cache& cache = attach_cache();
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(allocate(cache, 64));
  for (void* const block : blocks) release(cache, block);
  ASSERT_GE(cache.magazines[Sizes::of(64)].count(), 3U);
  void* const live = allocate(cache, 64);
  {
    Turn turn{home(), heap.gate()};
    heap.pass_on(home());
  }
  Domain& domain = attach();
  void* const own = HeapWorld::allocate(domain, 64);
  EXPECT_EQ(program.slab_of(own).owner(), &domain);
  EXPECT_EQ(&program.slab_of(own), &program.slab_of(live));
  // Of two that it hands out, one is freed there, and one stays in the cache with the rest.
  HeapWorld::release(domain, allocate(cache, 64));
  const std::uint32_t kept = cache.magazines[Sizes::of(64)].count();
  EXPECT_GT(kept, 0U);
  heap.detach_cache(cache);
  heap.check_invariants();
  HeapWorld::release(domain, own);
  HeapWorld::release(domain, live);
  Locked{heap, home()}.trim();
  heap.trim(domain);
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(reports().size(), 0U) << "nothing was freed twice";
}

TEST_F(HeapCache, has_little_room_at_first_and_more_for_who_does_more) {
  Cache& cache = attach_cache();
  Random random{1};
  const auto work = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      std::vector<void*> blocks;
      for (int n = 0; n < 30; ++n) blocks.push_back(allocate(cache, 1 + random.below(2000)));
      for (void* const block : blocks) release(cache, block);
    }
  };
  work(4);
  EXPECT_LE(room(cache), 16 * kKiB);
  work(2000);
  EXPECT_GT(room(cache), 32 * kKiB);
  EXPECT_LE(room(cache), heap::kMostCacheBytes);
}

TEST_F(HeapCache, has_the_less_room_the_more_there_are) {
  for (int i = 0; i < 200; ++i) attach_cache();
  Cache& cache = attach_cache();
  Random random{1};
  std::vector<void*> blocks;
  for (int i = 0; i < 20'000; ++i) blocks.push_back(allocate(cache, 1 + random.below(2000)));
  for (void* const block : blocks) release(cache, block);
  EXPECT_LE(room(cache), heap::kLeastCacheBytes);
}

TEST_F(HeapCache, goes_to_the_next_thread_empty) {
  Cache& cache = attach_cache();
  release(cache, allocate(cache, 64));
  heap.detach_cache(cache);
  EXPECT_EQ(cache.magazines[Sizes::of(64)].count(), 0U);
  EXPECT_EQ(&attach_cache(), &cache);
  EXPECT_NE(&attach_cache(), &cache);
}

TEST_F(HeapCache, is_not_had_without_memory) {
  attach_cache();
  system.fail_from_call(1);
  Cache* cache;
  int had = 0;
  while ((cache = heap.attach_cache(home())) != nullptr) ++had;
  EXPECT_GT(had, 0) << "there was no metadata at all";
  system.fail_from_call(0);
  EXPECT_NE(heap.attach_cache(home()), nullptr);
}

TEST_F(HeapCache, of_others_is_not_trusted_in_the_child_of_a_fork) {
  Cache& own = attach_cache();
  Cache& other = attach_cache();
  void* const mine = allocate(own, 64);
  release(own, mine);
  release(other, allocate(other, 64));
  Magazine& magazine = other.magazines[Sizes::of(64)];
  ASSERT_GT(magazine.count(), 0U);
  magazine.bottom[0] = reinterpret_cast<void*>(0xdead0);
  heap.before_fork(nullptr);
  heap.after_fork_in_child(nullptr, &own);
  heap.check_invariants();
  EXPECT_EQ(allocate(own, 64), mine);
  EXPECT_FALSE(other.is_used);
  EXPECT_EQ(&attach_cache(), &other);
  EXPECT_NE(allocate(other, 64), reinterpret_cast<void*>(0xdead0));
}

TEST_F(HeapShared, there_are_no_more_than_processors_of_the_quota) {
  const auto quota_of = [&](std::uint32_t processors, std::uint32_t quota) {
    heap.space().platform().set_processors(processors, quota);
    thread::SharedDomains<Heap> shared;
    shared.start(heap);
    return shared.respect_quota(heap);
  };
  EXPECT_EQ(quota_of(64, 4), 4U);
  EXPECT_EQ(quota_of(64, 1), 1U);
  EXPECT_EQ(quota_of(64, 0), 0U) << "no quota";
  EXPECT_EQ(quota_of(4, 4), 0U) << "nothing to respect";
  EXPECT_EQ(quota_of(2, 1), 0U) << "there are never less than two";
  heap.options().processors = 64;
  EXPECT_EQ(quota_of(2, 0), 0U);
  EXPECT_EQ(quota_of(2, 1), 0U) << "what the options say stands";
}

}  // namespace
}  // namespace allod::test

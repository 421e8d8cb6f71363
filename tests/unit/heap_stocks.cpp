// Layer 5: what shared domains keep that nobody uses.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "allod/thread/places.hpp"
#include "allod/thread/shared_domains.hpp"
#include "heap_shared.hpp"

namespace allod::test {
namespace {

class HeapStocks : public HeapShared {
 protected:
  static constexpr int kProcessors = 64;

  void SetUp() override {
    HeapShared::SetUp();
    heap.options().purge_delay_ms = 500;
  }
  // A block of every class, taken and freed.
  void use(Domain& domain) {
    Locked locked{heap, domain};
    for (ClassIndex c = 0; c < Sizes::kCount; ++c) {
      locked.release(locked.allocate(Sizes::size_of(c), nullptr));
    }
  }
  // One domain after another, and whatever `meanwhile` does each time the helper waits.
  void use_domains(int count) {
    for (int i = 0; i < count; ++i) use(attach_shared());
  }
  void run_helper(const std::function<void()>& meanwhile) {
    ASSERT_TRUE(system.helper_waits());
    system.set_observer([&](Fake::Call call) {
      if (call == Fake::Call::wait) meanwhile();
    });
    system.run_helper();
    system.set_observer({});
  }
};

TEST_F(HeapStocks, of_many_domains_at_rest_go_back) {
  use_domains(kProcessors);
  EXPECT_GT(used(), kProcessors * kMiB);
  const std::uint64_t before = system.now_ms();
  run_helper([] {});
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(heap.space().dirty_bytes(), 0U);
  EXPECT_LE(system.now_ms(), before + 2500);
  EXPECT_FALSE(system.helper_waits());
}

TEST_F(HeapStocks, of_few_domains_need_no_helper) {
  for (int i = 0; i < 2; ++i) {
    Locked locked{heap, attach_shared()};
    locked.release(locked.allocate(64, nullptr));
  }
  EXPECT_FALSE(system.helper_waits());
  Locked locked{heap, attach_shared()};
  locked.release(locked.allocate(64, nullptr));
  EXPECT_TRUE(system.helper_waits());
  system.run_helper();
}

TEST_F(HeapStocks, stay_where_they_are_used) {
  use_domains(8);
  Domain& busy = attach_shared();
  use(busy);
  Locked locked{heap, busy};
  void* const block = locked.allocate(64, nullptr);
  locked.release(block);
  int rounds = 0;
  run_helper([&] {
    if (++rounds > 12) return;
    void* const again = locked.allocate(64, nullptr);
    EXPECT_EQ(again, block);
    locked.release(again);
  });
  EXPECT_GT(rounds, 12) << "the helper goes on as long as a domain is in use";
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapStocks, leave_what_is_live) {
  std::vector<void*> live;
  std::vector<Domain*> domains;
  for (std::size_t i = 0; i < 8; ++i) {
    domains.push_back(&attach_shared());
    use(*domains.back());
    live.push_back(Locked{heap, *domains.back()}.allocate(1000, nullptr));
    std::memset(live.back(), static_cast<int>(i), 1000);
  }
  system.run_helper();
  EXPECT_EQ(used(), 8 * kSliceBytes);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(is_all(live[i], 1000, static_cast<unsigned char>(i)));
    Locked{heap, *domains[i]}.release(live[i]);
    Locked{heap, *domains[i]}.trim();
  }
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapStocks, are_looked_at_again_when_the_domain_has_been_used_again) {
  std::vector<Domain*> domains;
  for (int i = 0; i < 4; ++i) domains.push_back(&attach_shared());
  for (int round = 0; round < 3; ++round) {
    for (Domain* const domain : domains) use(*domain);
    ASSERT_TRUE(system.helper_waits()) << "in round " << round;
    system.run_helper();
    EXPECT_EQ(used(), 0U);
  }
}

TEST_F(HeapStocks, of_a_domain_that_a_thread_has_its_turn_on_wait) {
  use_domains(8);
  Domain& busy = attach_shared();
  use(busy);
  std::optional<Turn> turn;
  turn.emplace(busy, heap.gate());
  HeldRanks<true>::mask = 0;  // another thread has it
  int rounds = 0;
  std::size_t left = 0;
  run_helper([&] {
    if (++rounds != 8) return;
    left = used();
    turn.reset();
  });
  EXPECT_GT(left, kMiB) << "the helper did not wait for the turn, and did not take it";
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapStocks, are_emptied_by_threads_where_there_is_no_helper) {
  heap.options().purge_thread = false;
  use_domains(kProcessors);
  EXPECT_FALSE(system.helper_waits());
  Domain& own = attach();
  for (int i = 0; i < 6; ++i) {
    system.advance_clock(250);
    pass_time(own, 256);
  }
  heap.trim(own);
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapStocks, keep_a_block_that_was_freed_twice_for_who_can_report_it) {
  use_domains(4);
  Domain& domain = attach_shared();
  Locked locked{heap, domain};
  void* const block = locked.allocate(64, nullptr);
  locked.release(block);
  locked.release(block);
  system.run_helper();
  EXPECT_EQ(reports().size(), 0U) << "by a thread that cannot";
  locked.trim();
  expect_one(MisuseKind::double_free, block);
}

TEST_F(HeapStocks, of_a_processor_go_back_and_those_of_threads_stay) {
  use_domains(4);
  Domain& home = attach_shared();
  Heap::Cache& processors = *heap.attach_cache(home);
  Heap::Cache& threads = *heap.attach_cache(home);
  heap.equip_cache(processors, 4096);
  const ClassIndex c = Sizes::of(64);
  void* const block = heap.allocate_cached(processors, c, nullptr);
  void* const other = heap.allocate_cached(threads, c, nullptr);
  ASSERT_TRUE(processors.magazines[c].push(block));
  ASSERT_TRUE(threads.magazines[c].push(other));
  int rounds = 0;
  run_helper([&] {
    // In use for a while, without a slow path: two blocks change places.
    if (++rounds > 8) return;
    void* const newest = processors.magazines[c].pop();
    void* const next = processors.magazines[c].pop();
    ASSERT_NE(next, nullptr) << "in round " << rounds;
    ASSERT_TRUE(processors.magazines[c].push(newest));
    ASSERT_TRUE(processors.magazines[c].push(next));
  });
  EXPECT_EQ(processors.magazines[c].count(), 0U);
  EXPECT_GT(threads.magazines[c].count(), 0U) << "only the thread itself knows when it is at rest";
  EXPECT_EQ(Fake::Restartable::closed, 0);
  heap.detach_cache(threads);
  Locked{heap, home}.trim();
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapStocks, of_a_processor_go_to_the_owner_that_a_slab_has_by_now) {
  use_domains(4);
  Domain& home = attach_shared();
  Heap::Cache& cache = *heap.attach_cache(home);
  heap.equip_cache(cache, 4096);
  const ClassIndex c = Sizes::of(64);
  void* const live = heap.allocate_cached(cache, c, nullptr);
  ASSERT_GT(cache.magazines[c].count(), 0U);
  {
    Turn turn{home, heap.gate()};
    heap.pass_on(home);
  }
  Domain& domain = attach();
  void* const own = allocate(domain, 64);
  ASSERT_EQ(program.slab_of(live).owner(), &domain);
  Locked locked{heap, home};
  locked.release(locked.allocate(200, nullptr));
  system.run_helper();
  EXPECT_EQ(cache.magazines[c].count(), 0U);
  release(domain, own);
  release(domain, live);
  heap.trim(domain);
  Locked{heap, home}.trim();
  EXPECT_EQ(used(), 0U);
}

// --- how many domains there are
// -------------------------------------------------------------------

TEST_F(HeapStocks, are_those_of_few_domains_until_threads_wait_often) {
  heap.space().platform().set_processors(kProcessors, 0);
  thread::SharedDomains<Heap> shared;
  shared.start(heap);
  EXPECT_TRUE(shared.are_few());
  const auto domains = [&] {
    int count = 0;
    shared.for_each([&](Domain&) noexcept { ++count; });
    return count;
  };
  for (std::uint32_t i = 0; i < kProcessors; ++i) EXPECT_NE(shared.of_processor(heap, i), nullptr);
  EXPECT_EQ(domains(), 4);
  shared.for_each([&](Domain& domain) noexcept { heap.detach(domain); });
}

TEST(Places, are_for_who_does_more_where_there_are_more) {
  thread::Places places;
  places.set(64);
  int taken = 0;
  const auto take_all = [&](std::uint32_t rounds) {
    while (places.take(rounds)) ++taken;
    return taken;
  };
  EXPECT_EQ(take_all(1), 8);
  EXPECT_EQ(take_all(15), 8);
  EXPECT_EQ(take_all(16), 16);
  EXPECT_EQ(take_all(63), 16);
  EXPECT_EQ(take_all(64), 24);
  EXPECT_EQ(take_all(~0U), 256);
}

TEST(Places, are_as_many_as_threads_of_two_processors_need_at_once) {
  thread::Places places;
  places.set(2);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(places.take(1));
  EXPECT_FALSE(places.take(~0U));
}

}  // namespace
}  // namespace allod::test

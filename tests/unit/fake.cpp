// The fake system itself: tests that trust it must be able to.
#include "fake_platform.hpp"

#include <gtest/gtest.h>

#include "world.hpp"

namespace allod::test {
namespace {

using os::Fake;
constexpr std::size_t kMiB = std::size_t{1} << 20;

class FakeSystem : public testing::Test {
 protected:
  void SetUp() override { system.start(); }
  static bool is_zero(const void* memory, std::size_t bytes) {
    const auto* const byte = static_cast<const unsigned char*>(memory);
    for (std::size_t i = 0; i < bytes; ++i) {
      if (byte[i] != 0) return false;
    }
    return true;
  }
  Fake system;
};

TEST_F(FakeSystem, maps_zeroed_memory_that_can_be_written) {
  void* const memory = system.map(kMiB);
  ASSERT_NE(memory, nullptr);
  EXPECT_TRUE(is_zero(memory, kMiB));
  std::memset(memory, 1, kMiB);
  EXPECT_EQ(system.usable_bytes(), kMiB);
  EXPECT_EQ(system.mapped_bytes(), kMiB);
}

TEST_F(FakeSystem, hands_out_the_same_addresses_for_the_same_calls) {
  Fake other;
  other.start();
  for (std::size_t i = 1; i < 20; ++i) {
    auto* const here = system.reserve(i * 65536, 65536);
    auto* const there = other.reserve(i * 65536, 65536);
    EXPECT_EQ(address_of(here) - system.arena(), address_of(there) - other.arena());
    if (i % 3 == 0) {
      system.unmap(here, i * 65536);
      other.unmap(there, i * 65536);
    }
  }
}

TEST_F(FakeSystem, places_mappings_downwards_upwards_scattered_or_where_it_is_told) {
  const Address first = address_of(system.map(4096));
  const Address second = address_of(system.map(4096));
  EXPECT_EQ(second + 4096, first);
  system.set_gap(8192);
  EXPECT_EQ(address_of(system.map(4096)) + 4096 + 8192, second);
  system.set_gap(0);
  EXPECT_EQ(address_of(system.map(4096)) + 4096, second) << "a gap is not lost";
  system.set_placement(Fake::Placement::ascending);
  EXPECT_EQ(address_of(system.map(4096)), system.arena());
  EXPECT_EQ(address_of(system.map(4096)), system.arena() + 4096);
  system.place_next_at(Fake::arena_bytes() / 128);
  EXPECT_EQ(address_of(system.map(4096)), system.arena() + Fake::arena_bytes() / 128);
  system.set_placement(Fake::Placement::scattered);
  const Address scattered = address_of(system.reserve(65536, 65536));
  EXPECT_EQ(scattered % 65536, 0U);
}

TEST_F(FakeSystem, reuses_the_highest_gap) {
  void* const high = system.map(2 * kMiB);
  void* const low = system.map(kMiB);
  system.unmap(high, 2 * kMiB);
  EXPECT_EQ(address_of(system.map(kMiB)), address_of(high) + kMiB);
  EXPECT_EQ(address_of(system.map(kMiB)), address_of(high));
  EXPECT_EQ(address_of(system.map(kMiB)), address_of(low) - kMiB);
}

TEST_F(FakeSystem, commits_reserved_pages_and_counts_each_once) {
  auto* const memory = static_cast<char*>(system.reserve(kMiB, kMiB));
  EXPECT_EQ(address_of(memory) % kMiB, 0U);
  EXPECT_EQ(system.pages_at(memory), Fake::Pages::reserved);
  EXPECT_TRUE(system.commit(memory + 4096, 8192));
  EXPECT_TRUE(system.commit(memory + 8192, 8192));
  EXPECT_EQ(system.usable_bytes(), 12288U);
  EXPECT_EQ(system.pages_at(memory + 16383), Fake::Pages::usable);
  EXPECT_EQ(system.pages_at(memory + 16384), Fake::Pages::reserved);
  memory[4096] = 1;
  EXPECT_TRUE(system.commit(memory, kMiB));
  EXPECT_EQ(memory[4096], 1) << "what was usable keeps its contents";
}

TEST_F(FakeSystem, purges_for_real) {
  void* const memory = system.map(kMiB);
  std::memset(memory, 1, kMiB);
  EXPECT_EQ(Fake::resident_bytes(memory, kMiB), kMiB);
  EXPECT_TRUE(system.purge(memory, kMiB / 2));
  EXPECT_LT(Fake::resident_bytes(memory, kMiB), kMiB);
  EXPECT_TRUE(is_zero(memory, kMiB / 2));
  EXPECT_FALSE(is_zero(memory, kMiB));
}

TEST_F(FakeSystem, can_refuse_to_purge_or_purge_without_zeros) {
  void* const memory = system.map(kMiB);
  std::memset(memory, 1, kMiB);
  system.set_purge(Fake::Purge::refuses);
  EXPECT_FALSE(system.purge(memory, kMiB));
  EXPECT_EQ(*static_cast<char*>(memory), 1);
  system.set_purge(Fake::Purge::scrambles);
  EXPECT_FALSE(system.purge(memory, kMiB));
  EXPECT_NE(*static_cast<char*>(memory), 0);
  EXPECT_NE(*static_cast<char*>(memory), 1);
}

TEST_F(FakeSystem, grows_only_into_free_addresses) {
  system.place_next_at(kMiB);
  void* const memory = system.map(kMiB);
  EXPECT_EQ(system.grow(memory, kMiB, 2 * kMiB), 0);
  system.place_next_at(3 * kMiB);
  void* const wall = system.map(kMiB);
  EXPECT_NE(wall, nullptr);
  EXPECT_EQ(system.grow(memory, 2 * kMiB, 3 * kMiB), ENOMEM);
  system.set_remaps(false);
  EXPECT_EQ(system.grow(memory, 2 * kMiB, 3 * kMiB), EFAULT);
  EXPECT_TRUE(is_zero(memory, 2 * kMiB));
}

TEST_F(FakeSystem, moves_contents_and_frees_the_old_place) {
  auto* const memory = static_cast<char*>(system.map(kMiB));
  std::memset(memory, 7, kMiB);
  auto* const moved = static_cast<char*>(system.reserve(2 * kMiB, 65536));
  ASSERT_TRUE(system.move(memory, kMiB, moved, 2 * kMiB));
  EXPECT_EQ(system.pages_at(memory), Fake::Pages::none);
  EXPECT_EQ(moved[kMiB - 1], 7);
  EXPECT_TRUE(is_zero(moved + kMiB, kMiB));
  EXPECT_EQ(system.mapped_bytes(), 2 * kMiB);
}

TEST_F(FakeSystem, enforces_limits_of_addresses_and_of_memory) {
  system.set_address_space_limit(kMiB);
  EXPECT_EQ(system.reserve(2 * kMiB, 65536), nullptr);
  void* const half = system.reserve(kMiB / 2, 65536);
  EXPECT_NE(half, nullptr);
  EXPECT_EQ(system.map(kMiB), nullptr);
  system.set_memory_limit(65536);
  EXPECT_FALSE(system.commit(half, 2 * 65536));
  EXPECT_TRUE(system.commit(half, 65536));
  EXPECT_EQ(system.map(4096), nullptr);
  system.unmap(half, kMiB / 2);
  EXPECT_NE(system.map(4096), nullptr);
}

TEST_F(FakeSystem, fails_the_call_it_was_told_to_fail) {
  system.fail_call(Fake::Call::map, 2);
  void* const first = system.map(4096);
  EXPECT_NE(first, nullptr);
  EXPECT_NE(system.reserve(4096, 4096), nullptr);
  EXPECT_EQ(system.map(4096), nullptr);
  EXPECT_NE(system.map(4096), nullptr);
  system.fail_nth_call(2);
  EXPECT_TRUE(system.purge(first, 4096));
  EXPECT_EQ(system.map(4096), nullptr);
  EXPECT_NE(system.map(4096), nullptr);
  system.fail_from_call(2);
  EXPECT_NE(system.map(4096), nullptr);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(system.map(4096), nullptr);
  system.succeed();
  EXPECT_NE(system.map(4096), nullptr);
  EXPECT_EQ(system.injected_failures(), 7U);
  EXPECT_EQ(system.count(Fake::Call::map), 12U);
}

TEST_F(FakeSystem, fails_at_random_but_repeatably) {
  const auto failures = [](std::uint64_t seed) {
    Fake one;
    one.start();
    one.fail_randomly(seed, 300);
    for (int i = 0; i < 1000; ++i) static_cast<void>(one.reserve(65536, 65536));
    return one.injected_failures();
  };
  EXPECT_EQ(failures(1), failures(1));
  EXPECT_GT(failures(1), 200U);
  EXPECT_LT(failures(1), 400U);
}

TEST_F(FakeSystem, fails_after_a_number_of_bytes) {
  system.fail_after_bytes(kMiB);
  EXPECT_NE(system.map(kMiB / 2), nullptr);
  EXPECT_NE(system.map(kMiB / 2), nullptr);
  EXPECT_EQ(system.map(4096), nullptr);
}

TEST_F(FakeSystem, keeps_a_helper_until_the_test_runs_it) {
  struct Job {
    std::atomic<std::uint32_t> word{0};
    int runs = 0;
  } job;
  const auto work = [](void* argument) {
    auto& mine = *static_cast<Job*>(argument);
    ++mine.runs;
    Fake::futex_wait_ms(&mine.word, 0, 250);
  };
  EXPECT_TRUE(system.start_helper(work, &job));
  EXPECT_FALSE(system.start_helper(work, &job)) << "there is one helper";
  EXPECT_EQ(job.runs, 0);
  const std::uint64_t before = system.now_ms();
  system.run_helper();
  EXPECT_EQ(job.runs, 1);
  EXPECT_EQ(system.now_ms(), before + 250);
  EXPECT_FALSE(system.helper_waits());
}

using FakeSystemDeathTest = FakeSystem;

TEST_F(FakeSystemDeathTest, stops_at_calls_that_the_concept_forbids) {
  void* const memory = system.reserve(kMiB, 65536);
  EXPECT_DEATH(static_cast<void>(system.purge(memory, kMiB)), "not usable");
  EXPECT_DEATH(static_cast<void>(system.commit(memory, 2 * kMiB)), "commit");
  EXPECT_DEATH(static_cast<void>(system.commit(memory, 100)), "commit");
  EXPECT_DEATH(static_cast<void>(system.grow(memory, kMiB, 2 * kMiB)), "grow");
  EXPECT_DEATH(static_cast<void>(system.move(memory, kMiB, memory, 2 * kMiB)), "move");
  EXPECT_DEATH(system.start(), "twice");
  system.unmap(memory, kMiB);
  EXPECT_DEATH(system.unmap(memory, kMiB), "not mapped");
  Fake late;
  EXPECT_DEATH(static_cast<void>(late.map(4096)), "before its start");
}

TEST_F(FakeSystemDeathTest, faults_on_access_to_what_is_not_usable) {
  volatile auto* const memory = static_cast<char*>(system.reserve(kMiB, 65536));
  EXPECT_DEATH(memory[0] = 1, "");
  volatile auto* const zeros = static_cast<char*>(system.reserve_zeros(kMiB));
  EXPECT_EQ(zeros[5], 0);
  EXPECT_DEATH(zeros[5] = 1, "");
}

TEST(FakePageSizes, are_what_the_test_says) {
  for (const std::size_t page : {4096U, 16384U, 65536U}) {
    Fake system;
    system.set_page_size(page);
    system.start();
    EXPECT_EQ(system.page_size(), page);
    EXPECT_EQ(address_of(system.map(page)) % page, 0U);
  }
}

}  // namespace
}  // namespace allod::test

// Blocks that wait, and the order in which they leave.
#include "allod/heaps/quarantine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "world.hpp"

namespace allod {
namespace {

using heaps::Quarantine;

class QuarantineTest : public testing::Test {
 protected:
  struct Freed {
    std::size_t number;  // of frees until then
    std::size_t bytes;   // of them
  };

  void take(std::uintptr_t block, std::size_t bytes) {
    ++frees;
    all_bytes += bytes;
    waiting.emplace(block, Freed{frees, all_bytes});
    auto* const pointer = reinterpret_cast<void*>(block);
    const std::size_t left_before = left.size();
    const bool has_room = quarantine.keep_place(bytes);
    if (has_room) {
      if (frees % 2 == 0) {
        if (quarantine.take_place(pointer)) quarantine.settle(order, look, leave);
        return;
      }
      quarantine.leave_place(bytes);
    }
    EXPECT_TRUE(quarantine.take(pointer, bytes, order, leave, look));
    // Either is there room for its bytes, or all that wait leave.
    EXPECT_TRUE(has_room || left.size() > left_before || waiting.size() <= Quarantine::kBlocks);
  }
  [[nodiscard]] std::set<std::uintptr_t> held() {
    std::set<std::uintptr_t> found;
    quarantine.for_each([&](void* block) noexcept {
      EXPECT_TRUE(found.insert(reinterpret_cast<std::uintptr_t>(block)).second);
    });
    return found;
  }
  [[nodiscard]] std::set<std::uintptr_t> expected() const {
    std::set<std::uintptr_t> blocks;
    for (const auto& [block, freed] : waiting) blocks.insert(block);
    return blocks;
  }

  Quarantine quarantine;
  random::Sequence order;
  std::map<std::uintptr_t, Freed> waiting;
  std::vector<std::uintptr_t> left;
  std::size_t frees = 0;
  std::size_t all_bytes = 0;
  bool is_early = false;
  // Told of each block that leaves.
  std::function<void(void*)> leave = [this](void* word) {
    const auto block = reinterpret_cast<std::uintptr_t>(word);
    const auto found = waiting.find(block);
    ASSERT_NE(found, waiting.end()) << "left twice, or never came";
    const Freed freed = found->second;
    is_early |=
        frees - freed.number < Quarantine::kBlocks && all_bytes - freed.bytes < Quarantine::kBytes;
    EXPECT_TRUE(looked_at.contains(block)) << "it left before anybody looked at it";
    looked_at.erase(block);
    waiting.erase(found);
    left.push_back(block);
  };
  std::set<std::uintptr_t> looked_at;
  // Told of each block once, before it leaves.
  std::function<void(void* const*, std::uint32_t)> look = [this](void* const* words,
                                                                 std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto block = reinterpret_cast<std::uintptr_t>(words[i]);
      EXPECT_TRUE(waiting.contains(block));
      EXPECT_TRUE(looked_at.insert(block).second) << "looked at twice";
    }
  };
};

TEST_F(QuarantineTest, holds_each_block_for_as_many_frees_or_bytes_and_lets_it_go_once) {
  test::Random random{1};
  for (std::uintptr_t block = 1; block <= 20'000; ++block) {
    const bool is_large = random.one_in(random.one_in(2) ? 4 : 1000);
    take(block, is_large ? 1 + random.below(Quarantine::kBytes) : 16);
    if (block % 97 == 0) {
      EXPECT_EQ(held(), expected());
    }
    if (random.one_in(3000)) {
      const bool had_some = !waiting.empty();
      const bool was_early = is_early;
      EXPECT_EQ(quarantine.clear(order, leave, look), had_some);
      is_early = was_early;
      EXPECT_TRUE(waiting.empty());
      EXPECT_FALSE(quarantine.clear(order, leave));
    }
  }
  EXPECT_FALSE(is_early);
  EXPECT_EQ(left.size() + waiting.size(), 20'000U);
  EXPECT_LE(waiting.size(), 2U * Quarantine::kBlocks);
}

TEST_F(QuarantineTest, lets_blocks_go_in_another_order) {
  for (std::uintptr_t block = 1; block <= 2 * std::uintptr_t{Quarantine::kBlocks}; ++block) {
    take(block, 16);
  }
  ASSERT_EQ(left.size(), std::size_t{Quarantine::kBlocks});
  EXPECT_FALSE(std::is_sorted(left.begin(), left.end()));
}

TEST_F(QuarantineTest, shows_waiting_blocks_in_the_order_of_frees) {
  std::vector<std::uintptr_t> shown;
  look = [&](void* const* words, std::uint32_t count) {
    EXPECT_LE(count, Quarantine::kVisited);
    for (std::uint32_t i = 0; i < count; ++i) {
      shown.push_back(reinterpret_cast<std::uintptr_t>(words[i]));
      EXPECT_TRUE(waiting.contains(shown.back()));
      EXPECT_GE(frees - shown.back(), Quarantine::kBlocks - 1U);
      EXPECT_LE(frees - shown.back(), Quarantine::kBlocks + Quarantine::kVisited);
      looked_at.insert(shown.back());
    }
    EXPECT_FALSE(quarantine.take(this, 16, order, leave)) << "it is at work";
  };
  for (std::uintptr_t block = 1; block <= 10 * std::uintptr_t{Quarantine::kBlocks}; ++block) {
    take(block, 16);
  }
  ASSERT_GT(shown.size(), 8U * Quarantine::kBlocks);
  for (std::size_t i = 0; i < shown.size(); ++i) EXPECT_EQ(shown[i], i + 1);
}

TEST_F(QuarantineTest, takes_nothing_while_a_block_leaves) {
  bool was_refused = false;
  const auto take_another = [&](void*) {
    int other = 0;
    was_refused = !quarantine.take(&other, 16, order, [](void*) {}) && held().empty() &&
                  !quarantine.keep_place(16);
  };
  take(1, Quarantine::kBytes);
  EXPECT_TRUE(quarantine.take(&was_refused, Quarantine::kBytes, order, take_another));
  EXPECT_TRUE(was_refused);
}

TEST_F(QuarantineTest, tells_who_takes_an_array_of_all_at_once) {
  std::size_t calls = 0;
  const auto leave_together = [&](void* const* blocks, std::uint32_t count) {
    ++calls;
    for (std::uint32_t i = 0; i < count; ++i) leave(blocks[i]);
  };
  for (std::uintptr_t block = 1; block <= Quarantine::kBlocks; ++block) take(block, 16);
  ASSERT_TRUE(left.empty());
  EXPECT_TRUE(quarantine.clear(order, leave_together, look));
  EXPECT_EQ(calls, 2U) << "once for each set";
  EXPECT_EQ(left.size(), std::size_t{Quarantine::kBlocks});
  EXPECT_TRUE(waiting.empty());
}

// As a signal handler would, between a look for a place and the block that is put there, or until
// the blocks of a full set have left.
TEST_F(QuarantineTest, takes_nothing_while_a_place_is_kept) {
  for (std::uintptr_t block = 1; block < Quarantine::kBlocks; ++block) take(block, 16);
  ASSERT_TRUE(quarantine.keep_place(16));
  EXPECT_FALSE(quarantine.keep_place(16));
  EXPECT_FALSE(quarantine.take(this, 16, order, leave));
  EXPECT_FALSE(quarantine.clear(order, leave));
  constexpr std::uintptr_t kLast = Quarantine::kBlocks;
  waiting.emplace(kLast, Freed{});
  ASSERT_TRUE(quarantine.take_place(reinterpret_cast<void*>(kLast)));
  EXPECT_FALSE(quarantine.keep_place(16));
  quarantine.settle(order, look, leave);
  EXPECT_TRUE(quarantine.keep_place(16));
  quarantine.leave_place(16);
  EXPECT_EQ(held().size(), std::size_t{Quarantine::kBlocks});
}

TEST_F(QuarantineTest, that_is_closed_takes_nothing) {
  Quarantine closed{true};
  EXPECT_FALSE(closed.keep_place(16));
  EXPECT_FALSE(closed.take(this, 16, order, leave));
  EXPECT_FALSE(closed.clear(order, leave));
}

TEST(Shuffle, can_bring_any_order) {
  random::Sequence order;
  std::size_t orders = 1;
  for (std::uint32_t count = 2; count <= 5; ++count) {
    orders *= count;
    std::map<std::vector<std::uintptr_t>, int> seen;
    for (std::size_t i = 0; i < 200 * orders; ++i) {
      std::array<void*, 5> items{};
      for (std::uintptr_t k = 0; k < count; ++k) items[k] = reinterpret_cast<void*>(k + 1);
      order.shuffle(items.data(), count);
      std::vector<std::uintptr_t> got;
      for (std::uint32_t k = 0; k < count; ++k) {
        got.push_back(reinterpret_cast<std::uintptr_t>(items[k]));
      }
      ++seen[got];
    }
    EXPECT_EQ(seen.size(), orders);
    // 200 each on the average, with a deviation of 14.
    for (const auto& [got, times] : seen) EXPECT_NEAR(times, 200, 120);
  }
}

TEST(QuarantineShare, is_whole_for_few_and_small_for_many) {
  constexpr std::size_t kAll = 12 * Quarantine::kBytes;
  for (std::size_t count = 1; count <= 6; ++count) {
    EXPECT_EQ(Quarantine::share(kAll, count), Quarantine::kBytes);
  }
  EXPECT_EQ(Quarantine::share(kAll, 24), Quarantine::kBytes / 4);
  EXPECT_EQ(Quarantine::share(kAll, 100'000), Quarantine::kLeastBytes);
}

TEST_F(QuarantineTest, holds_less_once_it_is_limited) {
  const auto held_bytes = [&] {
    for (std::uintptr_t block = 1; block <= 1000; ++block) take(block << 12, 512);
    return held().size() * 512;
  };
  EXPECT_GT(held_bytes(), Quarantine::kLeastBytes * 4);
  quarantine.limit(Quarantine::kLeastBytes);
  const std::size_t limited = held_bytes();
  EXPECT_LE(limited, 2 * Quarantine::kLeastBytes);
  EXPECT_GE(limited, Quarantine::kLeastBytes) << "each block waits for a whole set";
}

}  // namespace
}  // namespace allod

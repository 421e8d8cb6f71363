// Random sequences of calls on each composition, against a map of what must be in use.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>

#include "compositions.hpp"

namespace allod::test {
namespace {

template <class C>
class Player {
 public:
  using Heap = Tailored<C>;
  static constexpr std::size_t kMost =
      Heap::kServesAnySize ? std::size_t{100'000} : Heap::kLargestClass;

  Player(std::uint64_t seed, Heap& heap) : random_{seed}, heap_{heap} {}

  void step() {
    switch (below(40)) {
      case 0:
        heap_.recycle();
        return;
      case 1:
        return check();
      case 2:
        if (below(20) == 0) reset();
        return;
      case 3:
      case 4:
        return keep(heap_.allocate_zeroed(1, size_ = some_size()), 8, true);
      case 5:
      case 6: {
        const std::size_t alignment = std::size_t{1} << below(9);
        return keep(heap_.allocate_aligned(size_ = some_size(), alignment), alignment);
      }
      case 7:
      case 8:
        return reallocate();
      case 9:
        size_ = 16;
        return keep(heap_.template allocate<16>(), 8);
      default:
        // It grows and shrinks in turn.
        if (below(100) < (growing_ ? 70 : 30)) {
          return keep(heap_.allocate(size_ = some_size()), 8);
        }
        return release(below(2) == 0);
    }
  }
  void turn() { growing_ = !growing_; }

  void check() {
    std::map<const void*, std::size_t> found;
    heap_.for_each_block([&](const void* block, std::size_t bytes) {
      EXPECT_TRUE(found.emplace(block, bytes).second) << "a block is seen twice";
    });
    ASSERT_EQ(found.size(), live_.size());
    for (const auto& [block, size] : live_) {
      const auto here = found.find(block);
      ASSERT_NE(here, found.end());
      EXPECT_EQ(heap_.usable_size(block), here->second);
      EXPECT_GE(here->second, size);
      EXPECT_TRUE(heap_.contains(block));
      EXPECT_TRUE(holds(block, size));
    }
    EXPECT_EQ(heap_.figures().live_blocks, live_.size());
  }
  void finish() {
    while (!live_.empty()) release(true);
    heap_.recycle();
    const auto figures = heap_.figures();
    EXPECT_EQ(figures.live_blocks, 0U);
  }
  [[nodiscard]] std::size_t refused() const { return refused_; }

 private:
  using Live = std::map<unsigned char*, std::size_t>;

  std::size_t below(std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>{0, bound - 1}(random_);
  }
  std::size_t some_size() {
    const std::size_t most = below(8) == 0 ? kMost : kMost < 300 ? kMost : 300;
    return below(most + 1);
  }
  [[nodiscard]] static bool holds(const unsigned char* block, std::size_t size) {
    const auto stamp = static_cast<unsigned char>(address_of(block) >> 4);
    for (std::size_t i = 0; i < size; ++i) {
      if (block[i] != stamp) return false;
    }
    return true;
  }
  void keep(void* memory, std::size_t alignment, bool zero = false) {
    auto* const block = static_cast<unsigned char*>(memory);
    if (block == nullptr) {
      ++refused_;
      return;
    }
    EXPECT_EQ(address_of(block) % alignment, 0U);
    for (std::size_t i = 0; zero && i < size_; ++i) ASSERT_EQ(block[i], 0);
    const auto next = live_.lower_bound(block);
    if (next != live_.end()) {
      EXPECT_LE(block + size_, next->first) << "blocks overlap";
    }
    if (next != live_.begin()) {
      const auto& [before, bytes] = *std::prev(next);
      EXPECT_LE(before + bytes, block) << "blocks overlap";
    }
    std::memset(block, static_cast<unsigned char>(address_of(block) >> 4), size_);
    live_.emplace(block, size_);
    aligned_[block] = alignment > 8;
  }
  typename Live::iterator any() {
    auto it = live_.lower_bound(reinterpret_cast<unsigned char*>(
        address_of(live_.begin()->first) +
        below(address_of(live_.rbegin()->first) - address_of(live_.begin()->first) + 1)));
    return it;
  }
  void release(bool plain) {
    if (live_.empty()) return;
    const auto it = any();
    const auto [block, size] = *it;
    ASSERT_TRUE(holds(block, size)) << "a block was overwritten";
    live_.erase(it);
    plain || aligned_[block] ? heap_.deallocate(block) : heap_.deallocate(block, size);
  }
  void reallocate() {
    size_ = some_size();
    if (live_.empty()) return;
    const auto it = any();
    const auto [block, size] = *it;
    auto* const moved = static_cast<unsigned char*>(heap_.reallocate(block, size_));
    if (moved == nullptr) {
      ++refused_;
      EXPECT_TRUE(holds(block, size));
      return;
    }
    const auto stamp = static_cast<unsigned char>(address_of(block) >> 4);
    for (std::size_t i = 0; i < std::min(size, size_); ++i) ASSERT_EQ(moved[i], stamp);
    live_.erase(it);
    keep(moved, 8);
    aligned_[moved] = true;  // it may have a larger class than its size
  }
  void reset() {
    heap_.reset();
    live_.clear();
  }

  std::mt19937_64 random_;
  Heap& heap_;
  Live live_;
  std::map<const void*, bool> aligned_;
  std::size_t size_ = 0;
  std::size_t refused_ = 0;
  bool growing_ = true;
};

template <class C>
void play(std::uint64_t seed, Tailored<C>& heap, int steps) {
  Player<C> player{seed, heap};
  for (int step = 0; step < steps; ++step) {
    player.step();
    if (step % 700 == 699) player.turn();
    if (testing::Test::HasFatalFailure()) return;
  }
  player.check();
  player.finish();
}

template <class C>
class Model : public testing::Test {};
using Compositions = testing::Types<Plain, OddSizes, Powers, OneClass, Delayed, Merged, Unmerged,
                                    Everything, Locking, Spinning, Watched, Guarded, GuardedClasses,
                                    Transparent, SmallChunks, Huge>;
TYPED_TEST_SUITE(Model, Compositions);

TYPED_TEST(Model, keeps_blocks_apart_whole_and_accounted_for) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const auto heap = std::make_unique<Tailored<TypeParam>>("model");
    play<TypeParam>(seed, *heap, 2500);
    if (this->HasFailure()) return;
  }
}

TYPED_TEST(Model, gives_all_memory_back_when_it_ends_and_when_it_is_reset) {
  Tailored<TypeParam> heap{"model"};
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5000; ++i) ASSERT_NE(heap.allocate(16), nullptr);
    heap.reset();
    EXPECT_EQ(heap.figures().live_blocks, 0U);
    EXPECT_EQ(heap.figures().mapped, 0U);
  }
}

TEST(ModelOfABuffer, holds_in_memory_of_any_alignment_and_size) {
  std::vector<unsigned char> memory(600'000);
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const std::size_t offset = seed * 7;
    const std::size_t bytes = seed % 3 == 0 ? 30'000 : 64'000 * seed % 500'000;
    std::memset(memory.data(), 0xa5, memory.size());
    {
      Tailored<InBuffer> heap{"buffer", memory.data() + offset, bytes};
      play<InBuffer>(seed, heap, 1500);
    }
    for (std::size_t i = 0; i < offset; ++i) ASSERT_EQ(memory[i], 0xa5);
    for (std::size_t i = offset + bytes; i < memory.size(); ++i) ASSERT_EQ(memory[i], 0xa5);
    if (HasFailure()) return;
  }
}

TEST(ModelOfASystemThatFails, loses_nothing_and_refuses_cleanly) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Tailored<Unmerged> heap{"failing"};
    Player<Unmerged> player{seed, heap};
    auto& system = heap.pages().platform();
    for (int step = 0; step < 2000; ++step) {
      if (step % 100 == 0) system.fail_randomly(seed * 1000 + static_cast<unsigned>(step), 300);
      if (step % 100 == 60) system.succeed();
      player.step();
    }
    system.succeed();
    player.check();
    player.finish();
    if (HasFailure()) return;
    heap.reset();
    EXPECT_EQ(system.mapped_bytes(), 0U);
  }
}

TEST(ModelOfAHeapThatIsTooSmall, refuses_and_goes_on) {
  Tailored<Spinning> heap{"small"};
  std::vector<void*> blocks;
  while (void* const block = heap.allocate(48)) blocks.push_back(block);
  EXPECT_GT(blocks.size(), 100'000U);
  EXPECT_EQ(heap.allocate(16), nullptr);
  for (void* const block : blocks) heap.deallocate(block);
  EXPECT_NE(heap.allocate(16), nullptr);
}

// A million blocks that are allocated together touch hardly more cache lines than they need.
TEST(ModelOfLocality, blocks_allocated_together_lie_together) {
  Tailored<OneClass> heap{"local"};
  constexpr std::size_t kBlocks = 1'000'000;
  std::vector<Address> lines;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    const Address block = address_of(heap.allocate<48>());
    for (Address line = block / 64; line <= (block + 47) / 64; ++line) lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  const auto distinct = std::unique(lines.begin(), lines.end()) - lines.begin();
  EXPECT_LE(static_cast<double>(distinct), 1.01 * kBlocks * 48 / 64);
}

TEST(ModelOfRecycling, purges_after_the_delay_and_not_before) {
  Tailored<Delayed> heap{"delayed"};
  auto& system = heap.pages().platform();
  std::vector<void*> blocks;
  const auto fill = [&] {
    while (blocks.size() < 2000) blocks.push_back(heap.allocate(256));
  };
  const auto drain = [&] {
    for (void* const block : blocks) heap.deallocate(block);
    blocks.clear();
  };
  fill();
  drain();
  EXPECT_EQ(system.purged_bytes(), 0U);
  system.advance_clock(49);
  static_cast<void>(heap.allocate(1000));
  EXPECT_EQ(system.purged_bytes(), 0U);
  system.advance_clock(2);
  for (int i = 0; i < 1000; ++i) static_cast<void>(heap.allocate(1000));
  EXPECT_GT(system.purged_bytes(), 0U);
}

TEST(ModelOfRecycling, waits_until_it_is_told) {
  Tailored<OneClass> heap{"told"};
  std::vector<void*> blocks;
  for (int i = 0; i < 100'000; ++i) blocks.push_back(heap.allocate<48>());
  for (void* const block : blocks) heap.deallocate(block);
  const auto before = heap.figures();
  EXPECT_GT(before.free_present, 4'000'000U);
  EXPECT_GE(heap.recycle(), before.free_present);
  EXPECT_EQ(heap.figures().free_present, 0U);
}

}  // namespace
}  // namespace allod::test

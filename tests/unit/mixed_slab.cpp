// Layer 4: a slab with blocks of all sizes.
#include "allod/slab/mixed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "world.hpp"

namespace allod::test {
namespace {

using slab::MixedSlab;
using slab::Slab;

class LooseMixedSlab {
 public:
  LooseMixedSlab(Address from, Address to) {
    bytes_ = align_up(MixedSlab::descriptor_bytes(), kCacheLine);
    memory_ = ::operator new(bytes_, std::align_val_t{kCacheLine});
    std::memset(memory_, 0xff, bytes_);
    std::memset(memory_, 0, sizeof(Slab));
    slab().base = kBase;
    slab().size = {1};
    slab().start(nullptr, from, to);
  }
  ~LooseMixedSlab() { ::operator delete(memory_, std::align_val_t{kCacheLine}); }
  LooseMixedSlab(const LooseMixedSlab&) = delete;
  LooseMixedSlab& operator=(const LooseMixedSlab&) = delete;

  MixedSlab& slab() const { return *static_cast<MixedSlab*>(memory_); }
  std::uint32_t give(void* block) { return slab().give_run(slab().index_of(address_of(block))); }

  static constexpr Address kBase = Address{1} << (kAddressesAbound ? 40 : 30);

 private:
  void* memory_;
  std::size_t bytes_;
};

constexpr Address kBase = LooseMixedSlab::kBase;

// What a slab should say, by a map from start to end.
struct Model {
  Address from, to;
  std::map<Address, Address> blocks;

  [[nodiscard]] Address first_fit(std::size_t bytes, std::size_t alignment) const {
    Address at = align_up(from, alignment);
    for (const auto& [start, end] : blocks) {
      if (at + bytes <= start) break;
      if (end > at) at = align_up(end, alignment);
    }
    return at + bytes <= to ? at : 0;
  }
};

TEST(MixedSlab, agrees_with_a_model_of_first_fit) {
  Random random{5};
  for (int round = 0; round < 60; ++round) {
    const Address from = kBase + (round % 3 == 0 ? 0 : random.below(kSliceBytes));
    const Address to =
        round % 3 == 1 ? kBase + kSliceBytes : from + random.below(kBase + kSliceBytes - from + 1);
    LooseMixedSlab loose{from, to};
    MixedSlab& slab = loose.slab();
    Model model{align_up(from, MixedSlab::kGrain), align_down(to, MixedSlab::kGrain), {}};
    const std::size_t usable = model.from < model.to ? model.to - model.from : 0;
    ASSERT_EQ(slab.usable_bytes(), usable);
    ASSERT_EQ(slab.is_whole(), usable == kSliceBytes);
    for (std::uint32_t grain = 0; grain < MixedSlab::kGrains; ++grain) {
      const Address at = kBase + grain * MixedSlab::kGrain;
      ASSERT_EQ(slab.is_usable(grain), at >= model.from && at < model.to) << "grain " << grain;
    }
    for (int step = 0; step < 2000; ++step) {
      if (!random.one_in(3)) {
        const std::size_t alignment = std::size_t{16} << random.below(random.one_in(9) ? 13 : 2);
        const std::uint32_t grains = MixedSlab::grains_for(random.any_magnitude(20'000));
        const std::size_t bytes = grains * MixedSlab::kGrain;
        void* const block = slab.take_run(grains, alignment);
        const Address expected = model.first_fit(bytes, alignment);
        ASSERT_EQ(address_of(block), expected) << "step " << step << ", " << bytes << " bytes";
        if (block != nullptr) model.blocks[expected] = expected + bytes;
      } else if (!model.blocks.empty()) {
        auto at = model.blocks.lower_bound(kBase + random.below(kSliceBytes));
        if (at == model.blocks.end()) at = model.blocks.begin();
        const std::uint32_t index = slab.index_of(at->first);
        const std::size_t bytes = at->second - at->first;
        ASSERT_EQ(slab.run_at(index) * MixedSlab::kGrain, bytes);
        const auto inside =
            static_cast<std::uint32_t>(index + random.below(bytes / MixedSlab::kGrain));
        ASSERT_EQ(slab.start_around(inside), index);
        if (inside != index) {
          ASSERT_EQ(slab.give_run(inside), 0U) << "not the start";
        }
        if (random.one_in(3)) {
          static_cast<void>(slab.give_remotely(index / kWordBits, bit(index % kWordBits)));
          ASSERT_EQ(slab.live_in_word(index / kWordBits) & bit(index % kWordBits), 0U);
          std::size_t freed = 0;
          slab.collect_runs([&](std::uint32_t grains) { freed += grains * MixedSlab::kGrain; },
                            [](std::uint32_t) { FAIL() << "not freed before"; });
          ASSERT_EQ(freed, bytes);
        } else {
          ASSERT_EQ(slab.give_run(index) * MixedSlab::kGrain, bytes);
        }
        ASSERT_EQ(slab.give_run(index), 0U) << "freed twice";
        ASSERT_EQ(slab.start_around(index), Slab::kNoBlock);
        model.blocks.erase(at);
      }
      ASSERT_EQ(slab.count_starts(), model.blocks.size());
    }
    std::size_t used = 0;
    for (const auto& [start, end] : model.blocks) used += end - start;
    ASSERT_EQ(slab.usable_bytes() - slab.free_count() * MixedSlab::kGrain, used);
    ASSERT_EQ(slab.free_count(), slab.count_free_bits());
  }
}

// The descriptor of a slab of 8,192 blocks may be of the same size, and has its bits elsewhere.
TEST(MixedSlab, leaves_no_marks_to_what_comes_next) {
  LooseMixedSlab loose{kBase, kBase + kSliceBytes};
  MixedSlab& slab = loose.slab();
  std::vector<std::uint32_t> freed;
  slab.collect_runs([&](std::uint32_t grains) { freed.push_back(grains); },
                    [](std::uint32_t) { FAIL() << "a mark of a former life"; });
  EXPECT_TRUE(freed.empty());
  for (int i = 0; i < 100; ++i) static_cast<void>(slab.take_run(31, 1));
  static_cast<void>(slab.give_remotely(0, 1));
  slab.forget();
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&slab);
  const std::size_t bits = sizeof(Slab) + MixedSlab::kGrains / 8;
  const std::size_t end = MixedSlab::descriptor_bytes();
  EXPECT_EQ(std::count(bytes + bits, bytes + end, 0), static_cast<std::ptrdiff_t>(end - bits));
}

// As realloc asks, without the heap's lock.
TEST(MixedSlab, tells_a_blocks_size_while_its_neighbour_comes_and_goes) {
  LooseMixedSlab loose{kBase, kBase + kSliceBytes};
  MixedSlab& slab = loose.slab();
  void* const block = slab.take_run(3, 1);
  const std::uint32_t index = slab.index_of(address_of(block));
  std::atomic<bool> done{false};
  std::thread neighbour{[&] {
    for (int i = 0; i < 300'000; ++i) loose.give(slab.take_run(7, 1));
    done = true;
  }};
  std::uint32_t wrong = 0;
  while (!done) wrong += slab.run_at(index) != 3;
  neighbour.join();
  EXPECT_EQ(wrong, 0U);
}

TEST(MixedSlab, tells_a_block_that_others_have_freed_twice) {
  LooseMixedSlab loose{kBase, kBase + kSliceBytes};
  MixedSlab& slab = loose.slab();
  void* const block = slab.take_run(5, 1);
  ASSERT_EQ(loose.give(block), 5U);
  static_cast<void>(slab.give_remotely(0, 1));
  std::vector<std::uint32_t> doubled;
  slab.collect_runs([](std::uint32_t) { FAIL() << "it was free"; },
                    [&](std::uint32_t at) { doubled.push_back(at); });
  EXPECT_EQ(doubled, std::vector<std::uint32_t>{0});
}

}  // namespace
}  // namespace allod::test

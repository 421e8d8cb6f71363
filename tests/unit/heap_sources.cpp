// Layer 5: first-class heaps with memory of their own: buffers of the program, and page sources.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "heap_world.hpp"

namespace allod::test {
namespace {

using space::Pages;
using space::PageWishes;
using space::Purging;

class HeapMemory : public HeapWorld {
 protected:
  using HeapDomain = FakeProgram::Heap::HeapDomain;

  void SetUp() override {
    HeapWorld::SetUp();
    caller = &attach();
  }
  HeapDomain* try_create(const PageWishes& wishes) {
    error = 0;
    return heap.create_heap("own", wishes, &error);
  }
  HeapDomain& create(const PageWishes& wishes) {
    HeapDomain* const made = try_create(wishes);
    always_check(made != nullptr, "no heap");
    return *made;
  }
  void* allocate_in(HeapDomain& in, std::size_t size, std::size_t alignment = 1) {
    heaps::HeapRequest request{.size = size, .alignment = alignment};
    return heap.allocate_in(caller, in, request);
  }
  std::map<Address, std::size_t> walk(HeapDomain& through) {
    std::map<Address, std::size_t> seen;
    EXPECT_TRUE(heap.walk_heap(through, [&](void* block, std::size_t bytes) {
      EXPECT_EQ(bytes, heap.usable_size(block));
      EXPECT_TRUE(seen.emplace(address_of(block), bytes).second) << "a block is told twice";
      return true;
    }));
    return seen;
  }

  Domain* caller = nullptr;
  int error = 0;
};

// Memory of the program, and a margin around it that nobody may touch.
class Buffer {
 public:
  Buffer(std::size_t bytes, std::size_t offset)
      : raw_(bytes + offset + 2 * kSliceBytes + kMargin, kUntouched),
        start_{align_up(address_of(raw_.data()) + kMargin, kSliceBytes) + offset},
        bytes_{bytes} {}
  [[nodiscard]] PageWishes wishes() const {
    PageWishes wishes;
    wishes.buffer = start_;
    wishes.buffer_bytes = bytes_;
    return wishes;
  }
  [[nodiscard]] bool holds(const void* block, std::size_t bytes) const {
    return address_of(block) >= start_ && address_of(block) + bytes <= start_ + bytes_;
  }
  [[nodiscard]] std::size_t touched() const {
    return static_cast<std::size_t>(std::count_if(
        raw_.begin(), raw_.end(), [](unsigned char byte) { return byte != kUntouched; }));
  }
  [[nodiscard]] Address start() const { return start_; }
  [[nodiscard]] Address end() const { return start_ + bytes_; }

 private:
  static constexpr unsigned char kUntouched = 0x77;
  static constexpr std::size_t kMargin = 4096;
  std::vector<unsigned char> raw_;
  Address start_;
  std::size_t bytes_;
};

TEST_F(HeapMemory, in_a_buffer_agrees_with_a_model) {
  Random random{17};
  for (const std::size_t bytes : {64 * kKiB, 64 * kKiB + 4000, 300 * kKiB, 1000 * kKiB, 9 * kMiB}) {
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, 5000 * std::size_t{8}}) {
      const Buffer buffer{bytes, offset};
      HeapDomain& own = create(buffer.wishes());
      std::map<Address, std::size_t> blocks;
      std::size_t refused = 0;
      for (int step = 0; step < 4000; ++step) {
        if (random.below(9) < 5) {
          const std::size_t size = random.any_magnitude(bytes / 3);
          const std::size_t alignment = random.one_in(8) ? std::size_t{1} << random.below(17) : 1;
          void* const block = allocate_in(own, size, alignment);
          if (block == nullptr) ++refused;
          if (block == nullptr) continue;
          const std::size_t usable = heap.usable_size(block);
          ASSERT_TRUE(usable >= size && buffer.holds(block, usable));
          ASSERT_EQ(address_of(block) % alignment, 0U);
          const auto next = blocks.lower_bound(address_of(block));
          ASSERT_TRUE(next == blocks.end() || next->first >= address_of(block) + usable);
          ASSERT_TRUE(next == blocks.begin() ||
                      std::prev(next)->first + std::prev(next)->second <= address_of(block));
          blocks.emplace(address_of(block), usable);
          ASSERT_TRUE(heap.contains(own, block));
        } else if (!blocks.empty()) {
          auto at = blocks.lower_bound(buffer.start() + random.below(bytes));
          if (at == blocks.end()) at = blocks.begin();
          void* const block = reinterpret_cast<void*>(at->first);
          blocks.erase(at);
          switch (random.below(3)) {
            case 0:
              heap.release_in(caller, own, block);
              break;
            case 1:
              release(*caller, block);
              break;
            default:
              heap.release_detached(block);
              break;
          }
        }
        if (step % 500 == 0) {
          heap.check_invariants();
          ASSERT_EQ(walk(own), blocks);
          ASSERT_EQ(heap.figures_of(own).live_blocks, blocks.size());
        }
      }
      EXPECT_GT(refused, 0U) << "the buffer was never full";
      EXPECT_EQ(buffer.touched(), 0U) << "free memory, or somebody else's, was written to";
      heap.destroy_heap(own);
      for (Address at = align_down(buffer.start(), kSliceBytes); at < buffer.end();
           at += kSliceBytes) {
        ASSERT_EQ(heap.space().map().tag_of(at), space::kForeignTag);
        ASSERT_EQ(heap.space().map().span_of(at), nullptr);
      }
      heap.check_invariants();
    }
  }
  EXPECT_EQ(used(), 0U);
}

TEST_F(HeapMemory, in_a_buffer_asks_the_system_for_no_block) {
  const Buffer buffer{2 * kMiB, 0};
  HeapDomain& own = create(buffer.wishes());
  const std::size_t reserved = heap.space().counters().reserved;
  std::size_t got = 0;
  while (void* const block = allocate_in(own, 1000)) {
    got += heap.usable_size(block);
  }
  EXPECT_GE(got, 2 * kMiB * 95 / 100) << "a buffer is used to the end";
  EXPECT_EQ(heap.space().counters().reserved, reserved);
  EXPECT_EQ(system.count(Fake::Call::reserve), 0U);
  EXPECT_GT(heap.figures_of(own).refused, 0U);
  heap.destroy_heap(own);
}

TEST_F(HeapMemory, what_is_free_in_a_buffer_serves_any_size_again) {
  const Buffer buffer{kMiB, 0};
  HeapDomain& own = create(buffer.wishes());
  for (const std::size_t size : {16U, 900U, 40'000U, 500'000U, 1'048'576U, 24U}) {
    std::vector<void*> blocks;
    while (void* const block = allocate_in(own, size)) blocks.push_back(block);
    ASSERT_FALSE(blocks.empty()) << size;
    for (void* const block : blocks) heap.release_in(caller, own, block);
  }
  EXPECT_TRUE(heap.delete_heap(own));
}

TEST_F(HeapMemory, is_not_deleted_while_blocks_are_in_it) {
  const Buffer buffer{kMiB, 0};
  HeapDomain& own = create(buffer.wishes());
  void* const block = allocate_in(own, 100);
  EXPECT_FALSE(heap.delete_heap(own));
  EXPECT_TRUE(heap.contains(own, block));
  heap.release_detached(block);
  EXPECT_TRUE(heap.delete_heap(own)) << "what others have freed counts as free";
}

TEST_F(HeapMemory, belongs_to_one_heap_at_a_time) {
  const Buffer buffer{kMiB, 100};
  HeapDomain& own = create(buffer.wishes());
  EXPECT_EQ(try_create(buffer.wishes()), nullptr);
  EXPECT_EQ(error, EBUSY);
  heap.destroy_heap(own);
  HeapDomain& again = create(buffer.wishes());
  heap.destroy_heap(again);
  // Nor is it memory of the allocator's.
  PageWishes wishes;
  wishes.buffer = address_of(allocate(*caller, 200 * kKiB));
  wishes.buffer_bytes = 200 * kKiB;
  EXPECT_EQ(try_create(wishes), nullptr);
  EXPECT_EQ(error, EBUSY);
}

TEST_F(HeapMemory, of_two_buffers_in_a_row_does_not_mix) {
  const Buffer both{600 * kKiB, 0};
  PageWishes first;
  first.buffer = both.start();
  first.buffer_bytes = 300 * kKiB + 16;
  PageWishes second;
  second.buffer = first.buffer + first.buffer_bytes;
  second.buffer_bytes = 300 * kKiB - 16;
  HeapDomain& one = create(first);
  HeapDomain& two = create(second);
  std::size_t blocks = 0;
  for (HeapDomain* const own : {&one, &two}) {
    while (void* const block = allocate_in(*own, 500)) {
      ++blocks;
      ASSERT_EQ(address_of(block) + heap.usable_size(block) <= second.buffer, own == &one);
    }
  }
  // The slice that both share went to the first, and the second lost its part.
  EXPECT_GE(blocks * 512, 600 * kKiB - kSliceBytes - 2 * 512);
  heap.destroy_heap(one);
  heap.destroy_heap(two);
}

TEST_F(HeapMemory, that_cannot_be_had_fails_cleanly) {
  // Whatever metadata the system refuses on the way.
  const Buffer buffer{200 * kKiB, 40'000};
  PageWishes nodes;
  nodes.nodes = 1;
  nodes.locked = true;
  for (const PageWishes& wishes : {buffer.wishes(), nodes}) {
    bool made = false;
    for (std::uint64_t nth = 1; !made && nth < 100; ++nth) {
      system.fail_nth_call(nth);
      HeapDomain* const own = try_create(wishes);
      system.succeed();
      if (own == nullptr) {
        EXPECT_NE(error, 0);
      } else {
        made = true;
        heap.destroy_heap(*own);
      }
      heap.check_invariants();
      EXPECT_EQ(used(), 0U);
    }
    EXPECT_TRUE(made);
  }
}

TEST_F(HeapMemory, with_pages_of_its_own_lies_apart_and_goes_with_the_heap) {
  if (!kAddressesAbound) GTEST_SKIP() << "takes more addresses than the fake has";
  for (const Pages pages : {Pages::usual, Pages::large, Pages::huge_2m, Pages::huge_1g}) {
    for (const bool locked : {false, true}) {
      PageWishes wishes;
      wishes.pages = pages;
      wishes.locked = locked;
      wishes.nodes = 2;
      const std::size_t reserved = heap.space().counters().reserved;
      HeapDomain& own = create(wishes);
      std::vector<void*> blocks;
      for (std::size_t size = 8; size < 3 * kMiB; size += size / 2) {
        blocks.push_back(allocate_in(own, size));
        ASSERT_NE(blocks.back(), nullptr);
        std::memset(blocks.back(), 1, size < kMiB ? size : 1);
        EXPECT_EQ(system.is_huge_at(align_down(address_of(blocks.back()), kSliceBytes)),
                  pages == Pages::large);
      }
      heap.check_invariants();
      EXPECT_FALSE(heap.delete_heap(own));
      for (void* const block : blocks) release(*caller, block);
      EXPECT_EQ(heap.figures_of(own).live, 0U);
      heap.check_invariants();
      heap.destroy_heap(own);
      EXPECT_EQ(heap.space().counters().reserved, reserved) << "a region is left";
    }
  }
}

TEST_F(HeapMemory, that_the_system_does_not_have_is_said) {
  PageWishes wishes;
  wishes.pages = Pages::huge_1g;
  system.fail_call(Fake::Call::map_huge, 1);
  EXPECT_EQ(try_create(wishes), nullptr);
  EXPECT_EQ(error, ENOMEM);
  wishes = {};
  wishes.locked = true;
  system.fail_call(Fake::Call::lock, 1);
  EXPECT_EQ(try_create(wishes), nullptr);
  EXPECT_EQ(error, ENOMEM);
  wishes = {};
  wishes.nodes = 4;
  EXPECT_EQ(try_create(wishes), nullptr);
  EXPECT_EQ(error, EINVAL);
  EXPECT_EQ(heap.space().counters().reserved, 0U);
}

TEST_F(HeapMemory, is_given_back_as_its_heap_wants) {
  const auto use_and_free = [&](HeapDomain& own) {
    std::vector<void*> blocks;
    for (int i = 0; i < 40; ++i) blocks.push_back(allocate_in(own, 100 * kKiB));
    for (void* const block : blocks) {
      std::memset(block, 1, 100 * kKiB);
      heap.release_in(caller, own, block);
    }
    heap.collect_heap(own);
  };
  PageWishes wishes;
  wishes.purging = Purging::at_once;
  HeapDomain& at_once = create(wishes);
  use_and_free(at_once);
  EXPECT_GE(system.purged_bytes(), 4'000 * kKiB);
  heaps::HeapRequest request{.size = 100 * kKiB};
  void* const block = heap.allocate_in(caller, at_once, request);
  EXPECT_TRUE(is_all(block, 100 * kKiB, 0));
  heap.release_in(caller, at_once, block);

  wishes.purging = Purging::never;
  HeapDomain& never = create(wishes);
  const std::size_t before = system.purged_bytes();
  use_and_free(never);
  heap.trim(*caller);
  EXPECT_EQ(system.purged_bytes(), before);

  wishes = {};
  wishes.nodes = 1;
  HeapDomain& delayed = create(wishes);
  use_and_free(delayed);
  EXPECT_EQ(system.purged_bytes(), before);
  heap.trim(*caller);
  EXPECT_GE(system.purged_bytes() - before, 4'000 * kKiB);
  use_and_free(delayed);
  for (HeapDomain* const own : {&at_once, &never, &delayed}) heap.destroy_heap(*own);
  EXPECT_EQ(heap.space().counters().reserved, 0U);
}

TEST_F(HeapMemory, goes_back_after_the_delay_of_its_heap) {
  const auto use_and_free = [&](HeapDomain& own) {
    void* const block = allocate_in(own, 600 * kKiB);
    std::memset(block, 1, 600 * kKiB);
    heap.release_in(caller, own, block);
    heap.collect_heap(own);
  };
  // Of which the process knows nothing.
  heap.options().purge_delay_ms = -1;
  PageWishes wishes;
  wishes.purging = Purging::after_delay;
  wishes.delay_ms = 200;
  HeapDomain& slow = create(wishes);
  wishes.delay_ms = 50;
  HeapDomain& quick = create(wishes);
  use_and_free(slow);
  use_and_free(quick);
  const std::size_t before = system.purged_bytes();
  const auto step = [&](std::uint64_t milliseconds) {
    system.advance_clock(milliseconds);
    heap.collect(*caller);
    heap.check_invariants();
    return system.purged_bytes() - before;
  };
  EXPECT_EQ(heap.space().next_delayed_in(), 50U);
  EXPECT_EQ(step(49), 0U);
  EXPECT_EQ(step(1), 640 * kKiB);
  EXPECT_EQ(heap.space().next_delayed_in(), 150U);
  EXPECT_EQ(step(149), 640 * kKiB);
  EXPECT_EQ(step(1), 1280 * kKiB);
  EXPECT_EQ(heap.space().delayed_bytes(), 0U);
  // Whoever asks for everything gets it.
  use_and_free(slow);
  EXPECT_EQ(heap.trim(*caller), 640 * kKiB);
  // Memory that waits goes with its heap.
  use_and_free(slow);
  heap.destroy_heap(slow);
  heap.destroy_heap(quick);
  heap.check_invariants();
  EXPECT_EQ(heap.space().counters().reserved, 0U);
}

TEST_F(HeapMemory, that_is_being_given_back_is_waited_for_at_the_end) {
  PageWishes wishes;
  wishes.nodes = 1;
  HeapDomain& own = create(wishes);
  heap.release_in(caller, own, allocate_in(own, 600 * kKiB));
  heap.collect_heap(own);
  // The heap goes while another thread is purging.
  std::uint32_t purging = 0;
  int yields = 0;
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::purge) purging = own.source->purging;
    if (call == Fake::Call::yield) ++yields;
  });
  heap.space().purge(0, 0, ~std::size_t{0});
  EXPECT_EQ(purging, 1U);
  own.source->purging = 1;
  system.set_observer([&](Fake::Call call) {
    if (call == Fake::Call::yield && ++yields == 3) own.source->purging = 0;
  });
  heap.destroy_heap(own);
  EXPECT_EQ(yields, 3);
  system.set_observer({});
}

}  // namespace
}  // namespace allod::test

// Heaps that threads share: caches of threads, blocks that other threads free, heaps and threads
// that come and go.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <barrier>
#include <memory>
#include <thread>

#include "compositions.hpp"

namespace allod::test {
namespace {

template <class C>
class Threads : public testing::Test {};
using Shared = testing::Types<Everything, Locking, Spinning>;
TYPED_TEST_SUITE(Threads, Shared);

// Each thread frees what its neighbour has allocated.
TYPED_TEST(Threads, free_what_others_have_allocated) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kBlocks = 2000;
  constexpr int kRounds = 15;
  const auto heap = std::make_unique<Tailored<TypeParam>>("shared");
  std::vector<std::vector<unsigned char*>> blocks(kThreads);
  std::barrier all{kThreads};
  std::atomic<int> wrong{0};
  const auto work = [&](std::size_t self) {
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < kBlocks; ++i) {
        auto* const block = static_cast<unsigned char*>(heap->allocate(1 + i % 48));
        if (block == nullptr) abort();
        block[0] = static_cast<unsigned char>(self);
        block[i % 48] = static_cast<unsigned char>(self);
        blocks[self].push_back(block);
      }
      all.arrive_and_wait();
      const std::size_t other = (self + 1) % kThreads;
      for (std::size_t i = 0; i < kBlocks; ++i) {
        if (blocks[other][i][0] != other || blocks[other][i][i % 48] != other) ++wrong;
        heap->deallocate(blocks[other][i]);
      }
      all.arrive_and_wait();
      blocks[self].clear();
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  threads.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(heap->figures().live_blocks, 0U);
}

TYPED_TEST(Threads, that_end_leave_their_blocks_to_others) {
  Tailored<TypeParam> heap{"ending"};
  for (int i = 0; i < 200; ++i) {
    std::jthread{[&] {
      void* blocks[20];
      for (void*& block : blocks) block = heap.allocate(48);
      for (void* const block : blocks) heap.deallocate(block);
    }};
  }
  EXPECT_EQ(heap.figures().live_blocks, 0U);
  EXPECT_LE(heap.figures().mapped, 1_MiB);
}

TEST(Caches, of_many_heaps_are_told_apart) {
  const auto work = [] {
    std::vector<std::unique_ptr<Tailored<Everything>>> heaps;
    for (int i = 0; i < 20; ++i) heaps.push_back(std::make_unique<Tailored<Everything>>("many"));
    for (int round = 0; round < 50; ++round) {
      for (auto& heap : heaps) {
        void* const block = heap->allocate(32);
        ASSERT_NE(block, nullptr);
        EXPECT_TRUE(heap->contains(block));
        if (round % 2 == 0) heap->deallocate(block);
      }
    }
    for (auto& heap : heaps) EXPECT_EQ(heap->figures().live_blocks, 25U);
  };
  std::jthread one{work};
  std::jthread two{work};
}

// The place of a heap that is gone serves another one, of which the thread has no cache.
TEST(Caches, of_a_heap_that_is_gone_serve_nobody) {
  alignas(Tailored<Everything>) static unsigned char place[sizeof(Tailored<Everything>)];
  std::barrier turn{2};
  Tailored<Everything>* heap = nullptr;
  std::jthread other{[&] {
    for (int i = 0; i < 50; ++i) {
      turn.arrive_and_wait();
      void* const block = heap->allocate(32);
      EXPECT_TRUE(heap->contains(block));
      heap->deallocate(block);
      turn.arrive_and_wait();
    }
  }};
  for (int i = 0; i < 50; ++i) {
    heap = new (place) Tailored<Everything>{"again"};
    turn.arrive_and_wait();
    turn.arrive_and_wait();
    heap->~ComposedHeap();
  }
}

TEST(Caches, of_a_thread_outlive_a_heap_and_the_thread_goes_on) {
  std::barrier turn{2};
  auto heap = std::make_unique<Tailored<Everything>>("first");
  Tailored<Everything> second{"second"};
  std::jthread other{[&] {
    static_cast<void>(heap->allocate(32));
    turn.arrive_and_wait();
    turn.arrive_and_wait();
    second.deallocate(second.allocate(32));
  }};
  turn.arrive_and_wait();
  heap.reset();
  turn.arrive_and_wait();
  other.join();
  EXPECT_EQ(second.figures().live_blocks, 0U);
}

}  // namespace
}  // namespace allod::test

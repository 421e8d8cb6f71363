// Windows as a platform: what the layers above rely on.
#include "allod/os/windows/windows.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "allod/space/page_map.hpp"

namespace allod::test {
namespace {

using os::Windows;

constexpr std::size_t kMiB = std::size_t{1} << 20;

class WindowsPlatform : public testing::Test {
 protected:
  void SetUp() override { system.start(); }
  static bool is_all(const void* memory, std::size_t bytes, unsigned char value) {
    const auto* const byte = static_cast<const unsigned char*>(memory);
    for (std::size_t i = 0; i < bytes; ++i) {
      if (byte[i] != value) return false;
    }
    return true;
  }
  Windows system;
};

TEST_F(WindowsPlatform, reserves_at_any_alignment) {
  for (std::size_t alignment = kSliceBytes; alignment <= 64 * kMiB; alignment *= 4) {
    void* const memory = Windows::reserve(3 * kSliceBytes, alignment);
    ASSERT_NE(memory, nullptr) << alignment;
    EXPECT_EQ(address_of(memory) % alignment, 0U);
    ASSERT_TRUE(Windows::commit(memory, kSliceBytes));
    std::memset(memory, 1, kSliceBytes);
    Windows::unmap(memory, 3 * kSliceBytes);
  }
}

TEST_F(WindowsPlatform, reserves_where_nothing_is_and_nowhere_else) {
  void* const memory = Windows::reserve(kMiB, kSliceBytes);
  ASSERT_NE(memory, nullptr);
  EXPECT_FALSE(Windows::reserve_at(memory, kMiB));
  Windows::unmap(memory, kMiB);
  EXPECT_TRUE(Windows::reserve_at(memory, kMiB));
  Windows::unmap(memory, kMiB);
}

TEST_F(WindowsPlatform, purges_to_zeros_and_takes_the_pages_out_of_memory) {
  auto* const memory = static_cast<unsigned char*>(Windows::map(kMiB));
  ASSERT_NE(memory, nullptr);
  std::memset(memory, 0xab, kMiB);
  EXPECT_EQ(system.present_bytes(memory, kMiB), kMiB);
  ASSERT_TRUE(Windows::purge(memory, kMiB / 2));
  EXPECT_EQ(system.present_bytes(memory, kMiB), kMiB / 2);
  EXPECT_TRUE(is_all(memory, kMiB / 2, 0));
  EXPECT_TRUE(is_all(memory + kMiB / 2, kMiB / 2, 0xab));
  std::memset(memory, 1, kMiB);
  const os::Piece pieces[] = {{memory, kSliceBytes}, {memory + 2 * kSliceBytes, kSliceBytes}};
  ASSERT_TRUE(Windows::purge_each(pieces, 2));
  EXPECT_TRUE(is_all(memory, kSliceBytes, 0));
  EXPECT_TRUE(is_all(memory + kSliceBytes, kSliceBytes, 1));
  EXPECT_TRUE(is_all(memory + 2 * kSliceBytes, kSliceBytes, 0));
  Windows::unmap(memory, kMiB);
}

TEST_F(WindowsPlatform, reads_zeros_anywhere_in_memory_that_is_only_reserved) {
  constexpr std::size_t kBytes = std::size_t{24} << 30;
  auto* const zeros = static_cast<unsigned char*>(Windows::reserve_zeros(kBytes));
  ASSERT_NE(zeros, nullptr);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([=] {
      for (std::size_t at = i * 1000; at < kBytes; at += kBytes / 64 + 4096) {
        EXPECT_EQ(static_cast<volatile unsigned char*>(zeros)[at], 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(Windows::commit(zeros, kSliceBytes));
  std::memset(zeros, 7, kSliceBytes);
  EXPECT_TRUE(is_all(zeros, kSliceBytes, 7));
  Windows::unmap(zeros, kBytes);
}

TEST_F(WindowsPlatform, serves_a_page_map_of_all_addresses) {
  space::PageMap map;
  ASSERT_TRUE(map.start(system));
  int local = 0;
  EXPECT_EQ(map.tag_of(address_of(&local)), space::kForeignTag);
  EXPECT_EQ(map.span_of(address_of(&map)), nullptr);
  void* const memory = Windows::reserve(kMiB, kSliceBytes);
  ASSERT_TRUE(map.cover(system, address_of(memory), kMiB));
  map.set_tags(address_of(memory), {16}, space::kHugeTag);
  EXPECT_EQ(map.tag_of(address_of(memory) + kMiB - 1), space::kHugeTag);
  EXPECT_EQ(map.tag_of(address_of(memory) + kMiB), space::kForeignTag);
  Windows::unmap(memory, kMiB);
}

TEST_F(WindowsPlatform, copies_from_any_address_or_says_that_it_cannot) {
  const int source = 42;
  int target = 0;
  EXPECT_EQ(Windows::peek(&target, address_of(&source), sizeof source), 0);
  EXPECT_EQ(target, 42);
  EXPECT_EQ(Windows::peek(&target, 16, sizeof source), EFAULT);
}

TEST_F(WindowsPlatform, wakes_whoever_waits_for_a_word) {
  std::atomic<std::uint32_t> word{0};
  std::thread waiter{[&] {
    while (word.load() == 0) Windows::futex_wait(&word, 0);
  }};
  word.store(1);
  Windows::futex_wake(&word, 1);
  waiter.join();
  Windows::futex_wait(&word, 0);  // does not wait for another value
  Windows::futex_wait_us(&word, 1, 1);
}

TEST_F(WindowsPlatform, has_the_calls_of_newer_systems_here) {
  EXPECT_NE(os::NewerCalls::alloc.load(), nullptr);
  EXPECT_NE(os::NewerCalls::wait.load(), nullptr);
  EXPECT_NE(os::NewerCalls::ends.load(), nullptr);
}

TEST_F(WindowsPlatform, runs_its_helper_once_at_a_time) {
  static std::atomic<std::uint32_t> phase;
  phase.store(0);
  const auto work = [](void*) {
    phase.store(1);
    while (phase.load() != 2) Windows::yield();
  };
  ASSERT_TRUE(Windows::start_helper(work, nullptr));
  EXPECT_FALSE(Windows::start_helper(work, nullptr));
  while (phase.load() != 1) Windows::yield();
  phase.store(2);
  EXPECT_TRUE(Windows::wait_for_helper());
}

// Its thread has not said so yet. Where others keep it from the processor for long, a start may be
// refused.
TEST_F(WindowsPlatform, starts_its_helper_again_when_its_function_has_returned) {
  constexpr std::uint32_t kStarts = 2000;
  static std::atomic<std::uint32_t> done;
  done.store(0);
  std::uint32_t refused = 0;
  for (std::uint32_t i = 0; i < kStarts; ++i) {
    while (!Windows::start_helper([](void*) { done.fetch_add(1); }, nullptr)) ++refused;
    while (done.load() == i) Windows::yield();
  }
  EXPECT_LT(refused, kStarts / 100);
  EXPECT_TRUE(Windows::wait_for_helper());
}

struct Cells {
  ALLOD_THREAD_LOCAL(int, number, -7);
  ALLOD_THREAD_LOCAL(const char*, text, nullptr);
  ALLOD_THREAD_LOCAL_ZEROS(std::uint64_t, zeros);
};

TEST_F(WindowsPlatform, gives_each_thread_cells_of_its_own_with_their_first_values) {
  for (int round = 0; round < 3; ++round) {
    std::thread{[] {
      EXPECT_EQ(static_cast<int>(Cells::number), -7);
      EXPECT_EQ(Cells::text, nullptr);
      EXPECT_EQ(static_cast<std::uint64_t>(Cells::zeros), 0U);
      Cells::number = 5;
      ++Cells::number;
      Cells::text = "x";
    }}.join();
  }
  EXPECT_EQ(static_cast<int>(Cells::number), -7);
}

std::atomic<int> ends{0};
os::ThreadEnd end;

TEST_F(WindowsPlatform, notices_the_ends_of_those_threads_that_expect_it) {
  if (!end.watch([](void* value) { ends.fetch_add(*static_cast<int*>(value)); })) {
    GTEST_SKIP() << "a heap of this program watches already";
  }
  static int one = 1;
  const int before = ends.load();
  std::thread{[] { end.expect(&one); }}.join();
  std::thread{[] {}}.join();
  EXPECT_EQ(ends.load(), before + 1);
}

}  // namespace
}  // namespace allod::test

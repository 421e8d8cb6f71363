// Layer 0: bits, units, lists, random numbers and locks.
#include "allod/base/base.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <list>
#include <map>
#include <thread>

#include "allod/base/random.hpp"
#include "allod/os/native.hpp"
#include "world.hpp"

namespace allod::test {
namespace {

TEST(Bits, are_counted_and_found_like_the_standard_library_does) {
  Random random{1};
  for (int i = 0; i < 100'000; ++i) {
    const Word word = random.next() & random.next() >> random.below(64);
    EXPECT_EQ(count_bits(word), static_cast<unsigned>(std::popcount(word)));
    if (word == 0) continue;
    EXPECT_EQ(lowest_bit(word), static_cast<unsigned>(std::countr_zero(word)));
    EXPECT_EQ(highest_bit(word), 63U - static_cast<unsigned>(std::countl_zero(word)));
  }
  EXPECT_EQ(count_bits(0), 0U);
  EXPECT_EQ(count_bits(~Word{0}), 64U);
}

TEST(Bits, at_the_low_end_are_as_many_as_asked_for) {
  EXPECT_EQ(low_bits(0), 0U);
  EXPECT_EQ(low_bits(64), ~Word{0});
  for (unsigned count = 1; count <= 64; ++count) {
    EXPECT_EQ(count_bits(low_bits(count)), count);
    EXPECT_EQ(highest_bit(low_bits(count)), count - 1);
  }
}

TEST(Bits, take_the_words_that_hold_them) {
  EXPECT_EQ(words_for(0), 0U);
  EXPECT_EQ(words_for(1), 1U);
  EXPECT_EQ(words_for(64), 1U);
  EXPECT_EQ(words_for(65), 2U);
  EXPECT_EQ(words_for(8192), 128U);
}

TEST(Units, round_to_multiples_of_powers_of_two) {
  Random random{2};
  for (int i = 0; i < 10'000; ++i) {
    const std::size_t alignment = std::size_t{1} << random.below(20);
    const std::size_t value = random.below(kMaxBlock / 64);
    const std::size_t up = align_up(value, alignment);
    const std::size_t down = align_down(value, alignment);
    EXPECT_EQ(up % alignment, 0U);
    EXPECT_EQ(down % alignment, 0U);
    EXPECT_LE(down, value);
    EXPECT_LT(value - down, alignment);
    EXPECT_LT(up - value, alignment);
    EXPECT_EQ(Slices::covering(value), Slices::covering(align_up(value, kSliceBytes)));
    EXPECT_LT(Slices::covering(value).bytes() - value, kSliceBytes);
  }
  EXPECT_TRUE(is_power_of_two(1));
  EXPECT_TRUE(is_power_of_two(SIZE_MAX / 2 + 1));
  EXPECT_FALSE(is_power_of_two(0));
  EXPECT_FALSE(is_power_of_two(12));
}

TEST(Units, count_the_largest_block_and_the_largest_alignment_together) {
  // Either is a multiple of slices, of which together one fewer is needed.
  constexpr std::size_t kMost = 2 * kMaxBlock - kSliceBytes;
  EXPECT_GT(kMost, kMaxBlock) << "has wrapped";
  EXPECT_EQ(Slices::covering(kMost).bytes(), kMost);
  EXPECT_EQ(Slices::covering(kMost - 1).bytes(), kMost);
  EXPECT_EQ(Slices::covering(kMost - kSliceBytes).bytes(), kMost - kSliceBytes);
  EXPECT_EQ(Slices::covering(kMaxBlock) + Slices::covering(kMaxBlock - kSliceBytes),
            Slices::covering(kMost));
  EXPECT_LE(kMaxBlock, std::size_t{PTRDIFF_MAX}) << "C allows no larger block";
  EXPECT_TRUE(Slices::covering(kMost).just_covers(kMost));
  for (const std::size_t wanted : {SIZE_MAX, SIZE_MAX - 1, kMost + 1, kMost - kSliceBytes}) {
    EXPECT_FALSE(Slices::covering(kMost).just_covers(wanted)) << wanted;
  }
}

TEST(Words, have_the_product_that_halves_of_them_make) {
  Random random{23};
  const auto expect_product = [](std::uint64_t a, std::uint64_t b) {
    // In pieces of 16 bits, as at school.
    std::array<std::uint64_t, 8> sums{};
    for (unsigned i = 0; i < 4; ++i) {
      for (unsigned j = 0; j < 4; ++j) {
        const std::uint64_t part = (a >> 16 * i & 0xffff) * (b >> 16 * j & 0xffff);
        sums[i + j] += part & 0xffff;
        sums[i + j + 1] += part >> 16;
      }
    }
    for (unsigned i = 0; i + 1 < 8; ++i) sums[i + 1] += sums[i] >> 16;
    WideProduct expected{};
    for (unsigned i = 0; i < 4; ++i) {
      expected.low |= (sums[i] & 0xffff) << 16 * i;
      expected.high |= (sums[i + 4] & 0xffff) << 16 * i;
    }
    const WideProduct product = wide_product(a, b);
    EXPECT_EQ(product.low, expected.low) << a << " * " << b;
    EXPECT_EQ(product.high, expected.high) << a << " * " << b;
  };
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  for (const std::uint64_t a : {std::uint64_t{0}, std::uint64_t{1}, kAll, kAll >> 32, kAll << 32}) {
    for (const std::uint64_t b : {std::uint64_t{1}, kAll, kAll >> 32, kAll << 32}) {
      expect_product(a, b);
    }
  }
  for (int i = 0; i < 10'000; ++i) {
    expect_product(random.next() >> random.below(64), random.next() >> random.below(64));
  }
}

TEST(Words, in_little_endian_order_begin_with_their_lowest_byte) {
  const std::uint64_t word = little_endian(0x0102030405060708);
  unsigned char bytes[sizeof word];
  std::memcpy(bytes, &word, sizeof word);
  for (unsigned char i = 0; i < 8; ++i) EXPECT_EQ(bytes[i], 8 - i);
}

struct Element {
  int value = 0;
  ListLinks<Element> links;
  ListLinks<Element> other_links;
};
using Elements = List<Element, &Element::links>;

TEST(IntrusiveList, behaves_like_the_standard_list) {
  Random random{3};
  std::vector<Element> elements(50);
  for (int i = 0; i < 50; ++i) elements[static_cast<std::size_t>(i)].value = i;
  Elements list;
  std::list<Element*> model;
  for (int step = 0; step < 20'000; ++step) {
    Element* const element = &elements[random.below(elements.size())];
    const auto found = std::find(model.begin(), model.end(), element);
    if (found != model.end()) {
      list.remove(element);
      model.erase(found);
      EXPECT_EQ(element->links.next, nullptr);
      EXPECT_EQ(element->links.previous, nullptr);
    } else if (random.one_in(2)) {
      list.push_front(element);
      model.push_front(element);
    } else {
      list.push_back(element);
      model.push_back(element);
    }
    if (random.one_in(10)) {
      Element* const popped = list.pop_front();
      EXPECT_EQ(popped, model.empty() ? nullptr : model.front());
      if (!model.empty()) model.pop_front();
    }
    ASSERT_EQ(list.empty(), model.empty());
    ASSERT_EQ(list.last(), model.empty() ? nullptr : model.back());
    const Element* at = list.first();
    for (const Element* expected : model) {
      ASSERT_EQ(at, expected);
      at = Elements::next(at);
    }
    ASSERT_EQ(at, nullptr);
  }
}

TEST(IntrusiveList, lets_an_element_be_on_two_lists) {
  Element element;
  Elements one;
  List<Element, &Element::other_links> two;
  one.push_back(&element);
  two.push_back(&element);
  one.remove(&element);
  EXPECT_EQ(two.first(), &element);
}

TEST(Divider, divides_as_the_processor_does) {
  Random random{4};
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 32;
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t divisor =
        2 + random.next() % (kEnd - 1) % (std::uint64_t{2} << random.below(32));
    const std::uint64_t whole = random.next() % kEnd / divisor * divisor;
    for (const std::uint64_t number :
         {whole, whole + 1, whole + divisor - 1, random.next() % kEnd}) {
      if (number >= kEnd) continue;
      const auto [quotient, is_whole] = Divider{divisor}.divide(number);
      ASSERT_EQ(quotient, number / divisor) << number << " / " << divisor;
      ASSERT_EQ(is_whole, number % divisor == 0) << number << " / " << divisor;
    }
    const std::uint64_t far = kEnd + random.next() % kEnd * kEnd;
    ASSERT_GE(Divider{divisor}.divide(far).quotient, kEnd / divisor) << far << " / " << divisor;
  }
}

TEST(Divider, knows_of_one_part_where_it_begins) {
  EXPECT_TRUE(Divider{}.divide(0).is_whole);
  for (const std::uint64_t number : {std::uint64_t{1}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    EXPECT_EQ(Divider{}.divide(number).quotient, 0U);
    EXPECT_FALSE(Divider{}.divide(number).is_whole);
  }
}

using Lock = RankedLock<os::Native, true>;

// The first vector for 8 rounds and a key of 256 bits of J. Strombergson's "Test Vectors for the
// Stream Cipher ChaCha".
TEST(Random, comes_from_chacha_with_8_rounds) {
  const std::uint64_t key[4] = {};
  const random::StreamBlock block = random::stream_block(key, 0);
  const unsigned char expected[] = {0x3e, 0x00, 0xef, 0x2f, 0x89, 0x5f, 0x40, 0xd6,
                                    0x7f, 0x5b, 0xb8, 0xe8, 0x1f, 0x09, 0xa5, 0xa1};
  std::uint32_t words[sizeof expected / 4];
  std::memcpy(words, &block, sizeof words);
  for (std::size_t i = 0; i < sizeof expected; ++i) {
    EXPECT_EQ(words[i / 4] >> 8 * (i % 4) & 0xff, expected[i]) << i;
  }
  const random::StreamBlock next = random::stream_block(key, 1);
  EXPECT_NE(std::memcmp(&block, &next, sizeof block), 0);
}

// The upper half of a product with a secret hardly changes between places in a row, and the lowest
// bits of its lower half not at all: so those of both, one upon the other, moved by one of two
// steps, and the secret could be solved from them.
TEST(Random, has_no_steps_in_words_of_places_in_a_row) {
  const random::PlaceKey key = random::secret_key();
  for (std::uint64_t of_lower_half = 0; of_lower_half < 16; ++of_lower_half) {
    std::array<bool, 16> steps{};
    std::uint64_t before = 0;
    for (std::uint64_t at = 0; at < std::uint64_t{16} * 1000; at += 16) {
      const std::uint64_t now = key.word_of(at) ^ of_lower_half;
      steps[(now - before) & 15] = true;
      before = now;
    }
    EXPECT_EQ(std::ranges::count(steps, true), 16) << of_lower_half;
  }
}

TEST(Random, shuffles_into_every_order_alike) {
  random::Sequence sequence;
  constexpr int kRounds = 60000;
  std::map<std::array<void*, 4>, int> seen;
  for (int round = 0; round < kRounds; ++round) {
    std::array<void*, 4> items{};
    for (std::size_t i = 0; i < items.size(); ++i) items[i] = &seen + i;
    sequence.shuffle(items.data(), items.size());
    ++seen[items];
  }
  ASSERT_EQ(seen.size(), 24U);
  // Six standard deviations.
  for (const auto& [order, count] : seen) EXPECT_NEAR(count, kRounds / 24, 6 * 49);
}

TEST(Random, shuffles_each_item_to_every_place) {
  random::Sequence sequence;
  constexpr std::size_t kItems = 64;
  constexpr int kRounds = 64000;
  std::array<std::array<int, kItems>, kItems> counts{};
  for (int round = 0; round < kRounds; ++round) {
    std::array<void*, kItems> items{};
    for (std::size_t i = 0; i < kItems; ++i) items[i] = &counts[i];
    sequence.shuffle(items.data(), kItems);
    for (std::size_t i = 0; i < kItems; ++i) {
      ++(*static_cast<std::array<int, kItems>*>(items[i]))[i];
    }
  }
  for (const auto& places : counts) {
    for (const int count : places) EXPECT_NEAR(count, kRounds / kItems, 7 * 32);
  }
}

TEST(RankedLockOfThreads, admits_one_at_a_time) {
  Lock lock{LockRank::space};
  std::uint64_t counter = 0;
  const auto count = [&] {
    for (int i = 0; i < 50'000; ++i) {
      LockGuard guard{lock};
      ++counter;
    }
  };
  std::thread one{count};
  std::thread two{count};
  std::thread three{count};
  one.join();
  two.join();
  three.join();
  EXPECT_EQ(counter, 150'000U);
}

TEST(RankedLockOfThreads, counts_how_often_it_was_found_taken) {
  Lock lock{LockRank::space};
  EXPECT_EQ(lock.contended(), 0U);
  lock.lock();
  std::thread other{[&] {
    lock.lock();
    lock.unlock();
  }};
  // The other thread says so itself before it sleeps.
  while (lock.contended() == 0) std::this_thread::yield();
  lock.unlock();
  other.join();
  EXPECT_EQ(lock.contended(), 1U);
}

TEST(RankedLockAtFork, lets_the_forking_thread_pass_and_nobody_else) {
  os::Fake system;
  system.start();
  RankedLock<os::Fake, true> lock{LockRank::space};
  lock.lock_for_fork();
  {
    LockGuard again{lock};
    LockGuard and_again{lock};
  }
  system.set_thread(2);
  EXPECT_DEATH(lock.lock(), "would wait for ever");
  system.set_thread(1);
  lock.unlock_in_parent();
  system.set_thread(2);
  LockGuard guard{lock};
}

TEST(RankedLockAtFork, is_free_in_the_child) {
  RankedLock<os::Fake, true> lock{LockRank::space};
  lock.lock_for_fork();
  lock.reset_in_child();
  lock.lock();
  EXPECT_DEATH(lock.lock(), "would wait for ever");
  lock.unlock();
  lock.lock();
  lock.unlock();
}

TEST(RankedLockDeathTest, cannot_be_taken_against_its_rank) {
  Lock registry{LockRank::registry};
  Lock space{LockRank::space};
  {
    LockGuard first{registry};
    LockGuard second{space};
  }
  LockGuard guard{space};
  EXPECT_DEATH(registry.lock(), "against its rank");
}

}  // namespace
}  // namespace allod::test

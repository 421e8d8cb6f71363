// Pieces of metadata at the hand of one owner.
#include "allod/space/piece_stock.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "world.hpp"

namespace allod::test {
namespace {

using os::Fake;
using Metadata = space::Metadata<Fake, true>;
using space::PieceStock;

class Pieces : public testing::Test {
 protected:
  void SetUp() override { system_.start(); }
  void* take(std::size_t bytes) { return stock_.take(metadata_, system_, bytes); }
  void put(void* piece, std::size_t bytes) { stock_.put(metadata_, piece, bytes); }

  Fake system_;
  Metadata metadata_;
  PieceStock stock_;
};

TEST_F(Pieces, are_apart_and_writable) {
  Random random{1};
  std::vector<std::pair<unsigned char*, std::size_t>> taken;
  for (int i = 0; i < 2'000; ++i) {
    const std::size_t bytes = 1 + random.below(5'000);
    auto* const piece = static_cast<unsigned char*>(take(bytes));
    ASSERT_NE(piece, nullptr);
    ASSERT_EQ(address_of(piece) % kCacheLine, 0U);
    std::memset(piece, i & 0xff, bytes);
    taken.emplace_back(piece, bytes);
    if (random.one_in(3)) {
      std::swap(taken[random.below(taken.size())], taken.back());
      put(taken.back().first, taken.back().second);
      taken.pop_back();
    }
  }
  for (const auto& [piece, bytes] : taken) ASSERT_EQ(piece[0], piece[bytes - 1]);
  for (const auto& [piece, bytes] : taken) put(piece, bytes);
  stock_.clear(metadata_);
  EXPECT_EQ(metadata_.used_bytes(), 0U);
}

TEST_F(Pieces, come_several_at_a_time) {
  static_cast<void>(take(64));
  const std::size_t used = metadata_.used_bytes();
  EXPECT_GT(used, 4 * 64U);
  for (std::size_t left = used / 64 - 1; left > 0; --left) static_cast<void>(take(64));
  EXPECT_EQ(metadata_.used_bytes(), used) << "the lock was needed again";
  EXPECT_EQ(stock_.held_bytes(), 0U);
}

TEST_F(Pieces, wait_for_their_owner_up_to_a_bound) {
  std::vector<void*> taken;
  for (int i = 0; i < 500; ++i) taken.push_back(take(512));
  for (void* const piece : taken) {
    put(piece, 512);
    ASSERT_LE(stock_.held_bytes(), 8U << 10);
  }
  EXPECT_EQ(metadata_.used_bytes(), stock_.held_bytes());
  stock_.clear(metadata_);
  EXPECT_EQ(stock_.held_bytes(), 0U);
  EXPECT_EQ(metadata_.used_bytes(), 0U);
}

TEST_F(Pieces, may_come_from_elsewhere) {
  put(metadata_.allocate(system_, 100), 100);
  void* const piece = take(100);
  metadata_.free(piece, 100);
  stock_.clear(metadata_);
  EXPECT_EQ(metadata_.used_bytes(), 0U);
}

TEST_F(Pieces, are_refused_with_the_memory) {
  system_.fail_from_call(1);
  EXPECT_EQ(take(64), nullptr);
  EXPECT_EQ(take(1 << 20), nullptr);
  EXPECT_EQ(stock_.held_bytes(), 0U);
  system_.succeed();
  EXPECT_NE(take(64), nullptr);
}

}  // namespace
}  // namespace allod::test

// Layer 3: memory for the allocator's own bookkeeping.
#include "allod/space/metadata.hpp"

#include <gtest/gtest.h>

#include <map>

#include "world.hpp"

namespace allod::test {
namespace {

using os::Fake;

class MetadataPool : public testing::Test {
 protected:
  void SetUp() override { system.start(); }
  void* allocate(std::size_t bytes) { return pool.allocate(system, bytes); }
  // Asks for more than is left of the current chunk, so that the system is asked.
  void use_up_chunk() {
    system.fail_from_call(1);
    while (allocate(64) != nullptr) {
    }
    system.succeed();
  }
  static std::size_t rounded(std::size_t bytes) {
    return align_up(bytes, bytes <= 4096 ? 64 : 4096);
  }
  static bool is_zero(const void* memory, std::size_t bytes) {
    const auto* const byte = static_cast<const unsigned char*>(memory);
    return std::all_of(byte, byte + bytes, [](unsigned char b) { return b == 0; });
  }
  Fake system;
  space::Metadata<Fake, true> pool;
};

TEST_F(MetadataPool, gives_zeroed_pieces_on_cache_lines_that_do_not_overlap) {
  Random random{5};
  std::map<Address, std::size_t> live;
  std::size_t used = 0;
  for (int step = 0; step < 5000; ++step) {
    if (!live.empty() && random.one_in(2)) {
      auto victim = live.lower_bound(random.next());
      if (victim == live.end()) victim = live.begin();
      std::memset(reinterpret_cast<void*>(victim->first), 0xff, victim->second);
      pool.free(reinterpret_cast<void*>(victim->first), victim->second);
      used -= rounded(victim->second);
      live.erase(victim);
      continue;
    }
    const std::size_t bytes = random.any_magnitude(6000);
    void* const piece = allocate(bytes);
    ASSERT_NE(piece, nullptr);
    ASSERT_EQ(address_of(piece) % 64, 0U);
    ASSERT_TRUE(is_zero(piece, bytes));
    const auto next = live.lower_bound(address_of(piece));
    if (next != live.end()) {
      ASSERT_LE(address_of(piece) + bytes, next->first);
    }
    if (next != live.begin()) {
      const auto before = std::prev(next);
      ASSERT_LE(before->first + before->second, address_of(piece));
    }
    live.emplace(address_of(piece), bytes);
    used += rounded(bytes);
    ASSERT_EQ(pool.used_bytes(), used);
    ASSERT_GE(pool.mapped_bytes(), used);
  }
  EXPECT_EQ(pool.mapped_bytes(), system.mapped_bytes());
}

TEST_F(MetadataPool, takes_few_mappings_however_much_it_holds) {
  for (int i = 0; i < 16 * 1024; ++i) ASSERT_NE(allocate(4096), nullptr);
  EXPECT_LE(system.count(Fake::Call::map), 16U);
}

TEST_F(MetadataPool, takes_a_small_chunk_where_a_large_one_is_refused) {
  for (int i = 0; i < 1024; ++i) ASSERT_NE(allocate(4096), nullptr);
  use_up_chunk();
  const std::size_t before = pool.mapped_bytes();
  system.fail_call(Fake::Call::map, 1);
  EXPECT_NE(allocate(64), nullptr);
  EXPECT_EQ(pool.mapped_bytes(), before + 256 * 1024);
}

TEST_F(MetadataPool, reuses_a_piece_for_the_same_size) {
  void* const piece = allocate(200);
  static_cast<void>(allocate(64));
  pool.free(piece, 200);
  EXPECT_EQ(allocate(250), piece) << "both are four lines";
  EXPECT_EQ(system.count(Fake::Call::map), 1U);
}

TEST_F(MetadataPool, splits_a_larger_piece_when_the_system_refuses) {
  auto* const large = static_cast<char*>(allocate(1024));
  use_up_chunk();
  pool.free(large, 1024);
  system.fail_from_call(1);
  EXPECT_EQ(allocate(64), large);
  EXPECT_EQ(allocate(512), large + 64);
  EXPECT_EQ(allocate(1024 - 64 - 512), large + 64 + 512);
  EXPECT_EQ(allocate(64), nullptr);
  system.succeed();
  EXPECT_NE(allocate(64), nullptr);
}

TEST_F(MetadataPool, has_a_piece_for_whoever_freed_one_without_asking_the_system) {
  std::vector<void*> pieces;
  for (std::size_t bytes = 64; bytes <= 4096; bytes += 64) pieces.push_back(allocate(bytes));
  use_up_chunk();
  system.fail_from_call(1);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    pool.free(pieces[i], 64 * (i + 1));
    const std::size_t smaller = 64 * (i / 2 + 1);
    EXPECT_NE(allocate(smaller), nullptr) << smaller;
  }
}

TEST_F(MetadataPool, keeps_the_rest_of_a_chunk_that_was_too_small) {
  static_cast<void>(allocate(252 * 1024));
  static_cast<void>(allocate(3584));
  static_cast<void>(allocate(1024));  // comes from a second chunk
  EXPECT_EQ(pool.mapped_bytes(), 512U * 1024);
  EXPECT_NE(allocate(512), nullptr);
  EXPECT_EQ(pool.used_bytes(), 256U * 1024 + 1024);
}

TEST_F(MetadataPool, loses_nothing_of_pieces_of_any_size) {
  for (const std::size_t bytes : {3'000U, 5'000U, 20'000U, 32'768U}) {
    void* const first = allocate(bytes);
    ASSERT_TRUE(is_zero(first, bytes)) << bytes;
    std::memset(first, 1, bytes);
    static_cast<void>(allocate(64));
    pool.free(first, bytes);
    void* const second = allocate(bytes);
    EXPECT_EQ(second, first) << bytes;
    EXPECT_TRUE(is_zero(second, bytes)) << bytes;
  }
  // What is larger comes back in pieces of 32 KiB and one for the rest.
  auto* const large = static_cast<unsigned char*>(allocate(200'000));
  use_up_chunk();
  pool.free(large, 200'000);
  system.fail_from_call(1);
  for (int i = 0; i < 6; ++i) EXPECT_NE(allocate(32'768), nullptr) << i;
  EXPECT_EQ(allocate(4096), large + std::ptrdiff_t{6} * 32'768);
  EXPECT_EQ(allocate(4096), nullptr);
}

// Chunks are hardly ever neighbours where addresses are random.
TEST_F(MetadataPool, knows_where_its_pieces_are_however_many_there_are) {
  constexpr std::size_t kPiece = 64 * 1024;
  for (int i = 0; i < 4000; ++i) {
    void* const piece = allocate(kPiece);
    ASSERT_NE(piece, nullptr);
    static_cast<void>(system.map(kSliceBytes));
    ASSERT_TRUE(pool.holds(address_of(piece))) << i;
    ASSERT_TRUE(pool.holds(address_of(piece) + kPiece - 1)) << i;
  }
}

TEST_F(MetadataPool, maps_as_much_as_a_large_piece_needs) {
  void* const piece = allocate(1 << 20);
  ASSERT_NE(piece, nullptr);
  EXPECT_TRUE(is_zero(piece, 1 << 20));
}

TEST_F(MetadataPool, hands_a_stable_piece_on_with_what_it_held) {
  auto* const piece = static_cast<std::uint64_t*>(pool.allocate_stable(system, 320));
  ASSERT_TRUE(is_zero(piece, 320));
  for (int i = 0; i < 40; ++i) piece[i] = 7;
  pool.free_stable(piece, 320);
  // Nobody else gets it, whatever the need.
  use_up_chunk();
  system.fail_from_call(1);
  EXPECT_EQ(allocate(320), nullptr);
  EXPECT_EQ(allocate(64), nullptr);
  EXPECT_EQ(pool.allocate_stable(system, 448), nullptr);
  EXPECT_EQ(pool.allocate_stable(system, 320), piece);
  for (int i = 1; i < 40; ++i) EXPECT_EQ(piece[i], 7U) << i;
}

TEST_F(MetadataPool, hands_out_stable_pieces_last_in_first_out) {
  void* const one = pool.allocate_stable(system, 384);
  void* const two = pool.allocate_stable(system, 384);
  EXPECT_NE(one, two);
  pool.free_stable(one, 384);
  pool.free_stable(two, 384);
  EXPECT_EQ(pool.allocate_stable(system, 384), two);
  EXPECT_EQ(pool.allocate_stable(system, 384), one);
  EXPECT_EQ(pool.used_bytes(), 768U);
}

TEST_F(MetadataPool, keeps_large_stable_pieces_by_size_too) {
  auto* const piece = static_cast<unsigned char*>(pool.allocate_stable(system, 5000));
  piece[4999] = 7;
  pool.free_stable(piece, 5000);
  EXPECT_EQ(pool.allocate_stable(system, 5000), piece);
  EXPECT_EQ(piece[4999], 7);
}

using MetadataPoolDeathTest = MetadataPool;

TEST_F(MetadataPoolDeathTest, refuses_stable_pieces_that_it_could_not_keep) {
  EXPECT_DEATH(static_cast<void>(pool.allocate_stable(system, 33 << 10)), "too large");
}

TEST_F(MetadataPool, returns_pieces_to_the_node_from_which_they_came) {
  Fake::set_nodes(2);
  pool.start(2);
  void* const first = allocate(640);
  Fake::set_node(1);
  void* const second = allocate(640);
  void* const stable = pool.allocate_stable(system, 640);
  pool.free(first, 640);
  EXPECT_NE(allocate(640), first);
  Fake::set_node(0);
  pool.free(second, 640);
  pool.free_stable(stable, 640);
  EXPECT_EQ(allocate(640), first);
  EXPECT_NE(pool.allocate_stable(system, 640), stable);
  Fake::set_node(1);
  EXPECT_EQ(allocate(640), second);
  EXPECT_EQ(pool.allocate_stable(system, 640), stable);
}

TEST_F(MetadataPool, takes_pieces_of_another_node_when_the_system_refuses) {
  Fake::set_nodes(2);
  pool.start(2);
  // The shelf of the other node must not take the piece that is free.
  constexpr std::size_t kBytes = sizeof(space::PieceShelf) + 640;
  void* const first = allocate(kBytes);
  pool.free(first, kBytes);
  Fake::set_node(1);
  static_cast<void>(allocate(kBytes));
  system.fail_from_call(1);
  bool is_found = false;
  while (void* const piece = allocate(kBytes)) is_found |= piece == first;
  system.succeed();
  EXPECT_TRUE(is_found);
}

}  // namespace
}  // namespace allod::test

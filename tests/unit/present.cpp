// Zeros for memory of which a part has no pages.
#include "allod/heaps/present.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "world.hpp"

namespace allod {
namespace {

using os::Fake;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 64;
constexpr std::size_t kBytes = kPages * kPage;

class Present : public testing::Test {
 protected:
  void SetUp() override {
    platform.start();
    ASSERT_EQ(platform.page_size(), kPage);
    memory = static_cast<unsigned char*>(platform.map(kBytes));
    ASSERT_NE(memory, nullptr);
  }
  static constexpr std::size_t kWritten = 17;  // in a page
  void write(std::size_t page) { memory[page * kPage + kWritten] = 1; }
  [[nodiscard]] std::vector<std::size_t> in_memory() const {
    std::vector<std::size_t> found;
    for (std::size_t page = 0; page < kPages; ++page) {
      if (Fake::resident_bytes(memory + page * kPage, kPage) != 0) found.push_back(page);
    }
    return found;
  }
  [[nodiscard]] Address at() const { return address_of(memory); }
  [[nodiscard]] bool is_all_zero() const { return heaps::is_zero(at(), kBytes); }

  Fake platform;
  unsigned char* memory = nullptr;
};

TEST_F(Present, pages_at_both_ends_are_cleared_and_those_between_stay_without_memory) {
  write(0);
  write(kPages - 1);
  EXPECT_FALSE(heaps::clear_present(platform, at(), kBytes)) << "it has holes";
  EXPECT_EQ(in_memory(), (std::vector<std::size_t>{0, kPages - 1}));
  EXPECT_TRUE(is_all_zero());
}

TEST_F(Present, what_is_all_there_is_cleared_and_told) {
  for (std::size_t page = 0; page < kPages; ++page) write(page);
  EXPECT_TRUE(heaps::clear_present(platform, at() + 8, kBytes - 16));
  EXPECT_EQ(in_memory().size(), kPages);
  EXPECT_TRUE(is_all_zero());
}

TEST_F(Present, every_pattern_is_cleared_and_gets_no_further_page) {
  test::Random random{1};
  for (int round = 0; round < 300; ++round) {
    ASSERT_TRUE(platform.purge(memory, kBytes));
    const std::size_t share = 1 + random.below(20);
    for (std::size_t page = 0; page < kPages; ++page) {
      if (random.one_in(share)) write(page);
    }
    const std::size_t before = in_memory().size();
    const std::size_t from = 8 * random.below(kBytes / 16);
    const std::size_t bytes = 8 * (1 + random.below(kBytes / 16));
    bool is_clear = true;
    for (const std::size_t page : in_memory()) {
      is_clear = is_clear && page * kPage + kWritten - from >= bytes;
    }
    EXPECT_EQ(heaps::is_zero_if_present(platform, at() + from, bytes, heaps::Absent::left),
              is_clear);
    heaps::clear_present(platform, at() + from, bytes);
    // A run may lack a page in so many.
    EXPECT_LE(in_memory().size(), before + before / 8 + 2);
    EXPECT_TRUE(heaps::is_zero_if_present(platform, at() + from, bytes, heaps::Absent::given_back));
    EXPECT_TRUE(heaps::is_zero(at() + from, bytes));
  }
}

TEST_F(Present, a_look_touches_nothing_that_is_not_there) {
  write(3);
  memory[3 * kPage + 17] = 0;
  EXPECT_TRUE(heaps::is_zero_if_present(platform, at(), kBytes, heaps::Absent::left));
  EXPECT_EQ(in_memory(), std::vector<std::size_t>{3});
}

TEST_F(Present, all_is_cleared_and_looked_at_where_the_system_does_not_tell) {
  write(30);
  platform.fail_from_call(1);
  EXPECT_FALSE(heaps::is_zero_if_present(platform, at(), kBytes, heaps::Absent::left));
  heaps::clear_present(platform, at(), kBytes);
  EXPECT_TRUE(is_all_zero());
  EXPECT_TRUE(heaps::is_zero_if_present(platform, at(), kBytes, heaps::Absent::given_back));
}

TEST_F(Present, every_byte_of_any_range_is_filled_and_none_beside_it) {
  test::Random random{2};
  for (int round = 0; round < 500; ++round) {
    constexpr std::size_t kPart = 4 * kPage;
    const bool is_dense = random.one_in(2);
    std::memset(memory, 0, kPart);
    if (is_dense) std::memset(memory, 0xaa, kPart);
    for (int i = 0; i < 5; ++i) memory[random.below(kPart)] = 0x55;
    const std::vector<unsigned char> before(memory, memory + kPart);
    const std::size_t from = random.below(kPart);
    const std::size_t bytes = random.any_magnitude(kPart - from);
    heaps::fill_with_zeros(at() + from, bytes);
    for (std::size_t i = 0; i < kPart; ++i) {
      const bool is_inside = i - from < bytes;
      ASSERT_EQ(memory[i], is_inside ? 0 : before[i]) << from << " " << bytes << " " << i;
    }
  }
}

}  // namespace
}  // namespace allod

// Layer 3: from any address to its owner.
#include "allod/space/page_map.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "allod/space/span.hpp"
#include "world.hpp"

namespace allod::test {
namespace {

using os::Fake;
using space::PageMap;
using space::Tag;
constexpr std::size_t kGiB = std::size_t{1} << 30;

// Addresses of every kind, among them some that no processor would take.
std::vector<Address> addresses_of_all_kinds() {
  std::vector<Address> addresses{
      0, 1, 8, kSliceBytes - 1, kSliceBytes, ~Address{0}, ~Address{0} - 7};
  for (unsigned shift = 12; shift < 8 * sizeof(Address); ++shift) {
    for (const Address offset : {Address{0}, Address{1}, Address{kSliceBytes}}) {
      addresses.push_back((Address{1} << shift) - offset);
      addresses.push_back((Address{1} << shift) + offset);
      addresses.push_back(~(Address{1} << shift) + offset);
    }
  }
  Random random{6};
  for (int i = 0; i < 10'000; ++i) addresses.push_back(random.next() >> random.below(64));
  return addresses;
}

class PageMapOf : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    system.set_page_size(GetParam());
    system.start();
  }
  void expect_all_foreign() {
    for (const Address address : addresses_of_all_kinds()) {
      ASSERT_EQ(map.tag_of(address), space::kForeignTag) << std::hex << address;
      ASSERT_EQ(map.span_of(address), nullptr) << std::hex << address;
      Tag fast = space::kForeignTag;
      static_cast<void>(map.fast_tag_of(address, &fast));
      ASSERT_EQ(fast, space::kForeignTag) << std::hex << address;
    }
  }
  Fake system;
  PageMap map;
};
INSTANTIATE_TEST_SUITE_P(pages, PageMapOf, testing::Values(4096, 16384, 65536));

#if UINTPTR_MAX > UINT32_MAX

TEST_P(PageMapOf, everything_covers_all_addresses_and_commits_nothing) {
  ASSERT_TRUE(map.start(system));
  EXPECT_EQ(system.usable_bytes(), 0U);
  EXPECT_TRUE(map.cover(system, system.arena(), kSliceBytes));
  EXPECT_TRUE(map.cover(system, 0, kSliceBytes));
  EXPECT_TRUE(map.cover(system, (Address{1} << kAddressBits) - kSliceBytes, kSliceBytes));
  EXPECT_FALSE(map.cover(system, Address{1} << kAddressBits, kSliceBytes));
  expect_all_foreign();
}

#else

TEST_P(PageMapOf, everything_is_a_small_table_whatever_the_limit) {
  system.set_address_space_limit(256U << 20);
  ASSERT_TRUE(map.start(system));
  EXPECT_EQ(system.mapped_bytes(), std::size_t{512} << 10);
  EXPECT_EQ(system.usable_bytes(), 0U);
  EXPECT_TRUE(map.cover(system, system.arena(), kSliceBytes));
  EXPECT_TRUE(map.cover(system, 0, kSliceBytes));
  EXPECT_TRUE(map.cover(system, ~Address{0} - kSliceBytes + 1, kSliceBytes));
  EXPECT_FALSE(map.cover(system, ~Address{0} - kSliceBytes + 1, 2 * kSliceBytes));
  expect_all_foreign();
}

#endif

TEST_P(PageMapOf, regions_that_are_near_take_no_mappings_of_their_own) {
  ASSERT_TRUE(map.start(system));
  ASSERT_TRUE(map.cover(system, system.arena(), kSliceBytes));
  const std::size_t before = system.mappings();
  for (const std::size_t part : {3U, 1U, 6U, 2U}) {
    ASSERT_TRUE(map.cover(system, system.arena() + part * (kGiB / 4), kSliceBytes));
  }
  EXPECT_EQ(system.mappings(), before);
}

// With 32 bits there is no window: the map is small.
#if UINTPTR_MAX > UINT32_MAX

// A debugger finds the records of blocks by them.
TEST_P(PageMapOf, spans_that_may_be_set_are_in_core_files_and_no_others) {
  ASSERT_TRUE(map.start(system));
  const auto* const cells = static_cast<const space::Span* const*>(system.zeros());
  const auto is_left_out = [&](Address address) {
    return system.is_left_out_of_dumps(cells + (address >> kSliceShift));
  };
  EXPECT_TRUE(is_left_out(system.arena()));
  ASSERT_TRUE(map.cover(system, system.arena(), kSliceBytes));
  EXPECT_FALSE(is_left_out(system.arena()));
  EXPECT_TRUE(is_left_out(system.arena() + kGiB));
  ASSERT_TRUE(map.cover(system, system.arena() + kGiB, kSliceBytes));
  EXPECT_FALSE(is_left_out(system.arena() + kGiB));
}

// Those that are in core files already would be a mapping of their own.
TEST_P(PageMapOf, without_a_mapping_left_core_files_lack_the_spans) {
  ASSERT_TRUE(map.start(system));
  ASSERT_TRUE(map.cover(system, system.arena(), kSliceBytes));
  system.set_mapping_limit(system.mappings());
  ASSERT_TRUE(map.cover(system, system.arena() + kGiB, kSliceBytes));
  const auto* const cells = static_cast<const space::Span* const*>(system.zeros());
  EXPECT_TRUE(system.is_left_out_of_dumps(cells + (system.arena() >> kSliceShift)));
}

TEST_P(PageMapOf, a_window_answers_foreign_outside_of_it) {
  system.set_address_space_limit(256U << 20);
  ASSERT_TRUE(map.start(system));
  EXPECT_LT(system.mapped_bytes(), 2U << 20);
  expect_all_foreign();
}

TEST_P(PageMapOf, a_window_holds_four_times_the_limit_below_where_mappings_begin) {
  system.set_address_space_limit(2 * kGiB);
  ASSERT_TRUE(map.start(system));
  const Address top = system.arena() + Fake::arena_bytes();
  EXPECT_TRUE(map.cover(system, top - kSliceBytes, kSliceBytes));
  EXPECT_TRUE(map.cover(system, top - 7 * kGiB, kSliceBytes));
  EXPECT_FALSE(map.cover(system, top - 7 * kGiB - kSliceBytes, kSliceBytes));
  EXPECT_FALSE(map.cover(system, top - 7 * kGiB - kSliceBytes, 2 * kSliceBytes));
}

TEST_P(PageMapOf, addresses_outside_of_the_window_cannot_be_covered) {
  system.set_address_space_limit(256U << 20);
  ASSERT_TRUE(map.start(system));
  EXPECT_FALSE(map.cover(system, 0, kSliceBytes));
  EXPECT_FALSE(map.cover(system, system.arena(), kSliceBytes));
  EXPECT_FALSE(map.cover(system, ~Address{0} - kSliceBytes + 1, kSliceBytes));
  const Address inside = system.arena() + Fake::arena_bytes() - kSliceBytes;
  EXPECT_TRUE(map.cover(system, inside, kSliceBytes));
  // The window ends 1 GiB above the highest mapping.
  const Address last = system.arena() + Fake::arena_bytes() + kGiB - kSliceBytes;
  EXPECT_TRUE(map.cover(system, last, kSliceBytes));
  EXPECT_FALSE(map.cover(system, last, 2 * kSliceBytes)) << "begins inside, ends outside";
  EXPECT_FALSE(map.cover(system, inside, std::size_t{1} << 40));
}

TEST_P(PageMapOf, everything_becomes_a_window_when_its_addresses_are_refused) {
  system.fail_call(Fake::Call::reserve_zeros, 1);
  ASSERT_TRUE(map.start(system));
  EXPECT_FALSE(map.cover(system, 0, kSliceBytes));
  EXPECT_TRUE(map.cover(system, system.arena() + Fake::arena_bytes() - kSliceBytes, kSliceBytes));
}

TEST_P(PageMapOf, a_window_becomes_smaller_until_the_system_agrees) {
  system.set_address_space_limit(16 * kGiB);
  system.fail_call(Fake::Call::reserve_zeros, 1);
  ASSERT_TRUE(map.start(system));
  EXPECT_EQ(system.count(Fake::Call::reserve_zeros), 2U);
  EXPECT_TRUE(map.cover(system, system.arena() + Fake::arena_bytes() - kSliceBytes, kSliceBytes));
}

#endif

TEST_P(PageMapOf, a_system_without_addresses_fails_cleanly) {
  system.fail_from_call(1);
  EXPECT_FALSE(map.start(system));
  EXPECT_EQ(map.tag_of(0x12345678), space::kForeignTag);
  EXPECT_EQ(map.span_of(0x12345678), nullptr);
  EXPECT_EQ(system.mapped_bytes(), 0U);
}

TEST_P(PageMapOf, memory_that_is_refused_makes_cover_fail) {
  ASSERT_TRUE(map.start(system));
  system.fail_call(Fake::Call::commit, 1);
  EXPECT_FALSE(map.cover(system, system.arena(), kSliceBytes));
  // Enough for the tags of a grain.
  system.set_memory_limit(std::size_t{64} << 10);
  EXPECT_FALSE(map.cover(system, system.arena(), kSliceBytes));
  system.set_memory_limit(0);
  EXPECT_TRUE(map.cover(system, system.arena(), kSliceBytes));
  EXPECT_EQ(map.tag_of(system.arena()), space::kForeignTag);
}

TEST_P(PageMapOf, what_is_set_is_found_from_every_byte_and_from_none_besides) {
  for (const bool windowed : {false, kAddressesAbound}) {
    Fake here;
    here.set_page_size(GetParam());
    if (windowed) here.set_address_space_limit(kGiB);
    here.start();
    PageMap own;
    ASSERT_TRUE(own.start(here));
    const Address first = here.arena() + Fake::arena_bytes() - 100 * kSliceBytes;
    ASSERT_TRUE(own.cover(here, first, 50 * kSliceBytes));
    space::Span span;
    const Tag tag = space::make_tag(5, 3);
    own.set_tags(first + 10 * kSliceBytes, {3}, tag);
    own.set_spans(first + 10 * kSliceBytes, {3}, &span);
    for (Address at = first; at < first + 50 * kSliceBytes; at += 4096) {
      const bool inside = at >= first + 10 * kSliceBytes && at < first + 13 * kSliceBytes;
      ASSERT_EQ(own.tag_of(at), inside ? tag : space::kForeignTag);
      ASSERT_EQ(own.tag_of(at + 4095), inside ? tag : space::kForeignTag);
      ASSERT_EQ(own.span_of(at + 4095), inside ? &span : nullptr);
      Tag fast = 0;
      ASSERT_EQ(own.fast_tag_of(at, &fast), !windowed);
      if (!windowed) {
        ASSERT_EQ(fast, own.tag_of(at));
      }
    }
  }
}

#if UINTPTR_MAX > UINT32_MAX

// A map of everything, and a process that has got a limit.
class PageMapNarrowed : public PageMapOf {
 protected:
  void SetUp() override {
    PageMapOf::SetUp();
    ASSERT_TRUE(map.start(system));
    first = static_cast<Address>(address_of(system.reserve(kBytes, kSliceBytes)));
    ASSERT_TRUE(map.cover(system, first, kBytes));
    map.set_tags(first, {64}, space::make_tag(5, 3));
    map.set_spans(first, {64}, &span);
    regions = {first};
    before = system.mapped_bytes();
  }
  void expect_what_was_set() {
    for (Address at = first; at < first + kBytes; at += kSliceBytes / 2) {
      ASSERT_EQ(map.tag_of(at), space::make_tag(5, 3));
      ASSERT_EQ(map.span_of(at), &span);
    }
  }
  void narrow(std::size_t limit) {
    const auto each_region = [&](auto&& keep) {
      for (const Address at : regions) keep(at, at + kBytes);
    };
    const auto each_mapping = [&](auto&& keep) {
      for (const auto& [from, to] : mappings) keep(from, to);
      return knows_mappings;
    };
    map.narrow(system, limit, is_alone, each_region, each_mapping);
  }
  bool is_whole() {
    Tag tag;
    return map.fast_tag_of(first, &tag);
  }

  static constexpr std::size_t kBytes = 64 * kSliceBytes;
  Address first = 0;
  space::Span span;
  std::vector<Address> regions;
  std::vector<std::pair<Address, Address>> mappings;
  bool knows_mappings = true;
  bool is_alone = false;
  std::size_t before = 0;
};
INSTANTIATE_TEST_SUITE_P(pages, PageMapNarrowed, testing::Values(4096, 16384, 65536));

TEST_P(PageMapNarrowed, keeps_what_was_set_and_little_else) {
  narrow(std::size_t{200} << 20);
  EXPECT_FALSE(is_whole());
  EXPECT_LT(system.mapped_bytes(), std::size_t{64} << 20);
  expect_what_was_set();
  for (const Address address : addresses_of_all_kinds()) {
    if (address - first < kBytes) continue;
    ASSERT_EQ(map.tag_of(address), space::kForeignTag) << std::hex << address;
    ASSERT_EQ(map.span_of(address), nullptr) << std::hex << address;
  }
}

TEST_P(PageMapNarrowed, covers_what_the_system_hands_out_next) {
  narrow(std::size_t{200} << 20);
  for (int i = 0; i < 64; ++i) {
    const Address next = address_of(system.reserve(std::size_t{256} << 20, kSliceBytes));
    ASSERT_TRUE(map.cover(system, next, std::size_t{256} << 20)) << i;
    map.set_tags(next, {2}, space::make_tag(7, 1));
    ASSERT_EQ(map.tag_of(next + kSliceBytes), space::make_tag(7, 1));
  }
  EXPECT_FALSE(map.cover(system, 0, kSliceBytes));
  expect_what_was_set();
}

// What lies far away, at random addresses, costs no more than what lies together.
TEST_P(PageMapNarrowed, keeps_regions_wherever_they_are) {
  const Address far[] = {Address{1} << 30, Address{1} << 40, (Address{1} << 45) + kSliceBytes};
  for (const Address at : far) {
    ASSERT_TRUE(map.cover(system, at, kBytes));
    map.set_tags(at, {64}, space::make_tag(9, 2));
    map.set_spans(at, {64}, &span);
    regions.push_back(at);
  }
  narrow(std::size_t{200} << 20);
  EXPECT_FALSE(is_whole());
  EXPECT_LT(system.mapped_bytes(), std::size_t{64} << 20);
  for (const Address at : far) {
    ASSERT_EQ(map.tag_of(at + kBytes - 1), space::make_tag(9, 2));
    ASSERT_EQ(map.span_of(at + kBytes - 1), &span);
    EXPECT_TRUE(map.cover(system, at, kBytes));
  }
  expect_what_was_set();
}

// Another thread may have seen the whole map, and be about to read the element of such an address.
TEST_P(PageMapNarrowed, keeps_elements_for_what_is_mapped_by_anybody) {
  mappings = {{Address{1} << 35, (Address{1} << 35) + 4096}};
  narrow(std::size_t{200} << 20);
  EXPECT_FALSE(is_whole());
  EXPECT_TRUE(map.cover(system, Address{1} << 35, kSliceBytes));
  EXPECT_EQ(map.tag_of(Address{1} << 35), space::kForeignTag);
}

TEST_P(PageMapNarrowed, stays_whole_where_mappings_are_not_known_unless_nobody_else_reads) {
  knows_mappings = false;
  narrow(std::size_t{200} << 20);
  EXPECT_TRUE(is_whole());
  EXPECT_TRUE(map.cover(system, Address{1} << 35, kSliceBytes));
  expect_what_was_set();
  is_alone = true;
  narrow(std::size_t{200} << 20);
  EXPECT_FALSE(is_whole());
  expect_what_was_set();
}

TEST_P(PageMapNarrowed, stays_whole_where_the_limit_has_room_for_it) {
  narrow(400 * kGiB);
  EXPECT_TRUE(is_whole());
  EXPECT_EQ(system.mapped_bytes(), before);
  expect_what_was_set();
}

TEST_P(PageMapNarrowed, stays_whole_where_what_is_left_would_take_too_much) {
  narrow(std::size_t{8} << 20);
  EXPECT_TRUE(is_whole());
  EXPECT_EQ(system.mapped_bytes(), before);
}

TEST_P(PageMapNarrowed, stays_whole_where_memory_is_refused) {
  system.fail_call(Fake::Call::map, 1);
  narrow(std::size_t{200} << 20);
  EXPECT_TRUE(is_whole());
  EXPECT_EQ(system.mapped_bytes(), before);
}

TEST_P(PageMapNarrowed, becomes_smaller_a_second_time_if_the_limit_does) {
  narrow(150 * kGiB);
  EXPECT_FALSE(is_whole());
  const std::size_t then = system.mapped_bytes();
  EXPECT_GT(then, 4 * kGiB);
  // What somebody else has mapped in a hole meanwhile stays.
  void* const hole = system.reserve(std::size_t{1} << 30, kSliceBytes);
  ASSERT_NE(hole, nullptr);
  narrow(std::size_t{400} << 20);
  EXPECT_LT(system.mapped_bytes(), (std::size_t{1} << 30) + (std::size_t{64} << 20));
  const std::size_t last = system.mapped_bytes();
  EXPECT_GE(last, std::size_t{1} << 30);
  narrow(std::size_t{400} << 20);
  EXPECT_EQ(system.mapped_bytes(), last) << "nothing would be gained";
  expect_what_was_set();
}

#endif

TEST(Tags, keep_owner_and_class_apart) {
  for (const std::uint32_t owner : {1U, 2U, 77U, space::kMaxOwner, space::kOrphanOwner}) {
    for (std::uint32_t c = 0; c < space::kHugeClass; ++c) {
      const Tag tag = space::make_tag(owner, c);
      ASSERT_EQ(space::owner_of(tag), owner);
      ASSERT_EQ(space::class_of(tag), c);
      ASSERT_TRUE(space::is_slab(tag));
      ASSERT_EQ(space::is_heaps(tag), owner == space::kMaxOwner);
    }
  }
  const Tag huge = space::make_tag(space::kFirstHeapOwner, space::kHugeClass);
  EXPECT_FALSE(space::is_slab(huge));
  EXPECT_TRUE(space::is_heaps(huge));
  EXPECT_FALSE(space::is_heaps(space::make_tag(space::kFirstHeapOwner - 1, 3)));
  for (const Tag tag :
       {space::kForeignTag, space::kFreeTag, space::kInteriorTag, space::kHugeTag}) {
    EXPECT_FALSE(space::is_slab(tag));
    EXPECT_FALSE(space::is_heaps(tag));
  }
}

}  // namespace
}  // namespace allod::test

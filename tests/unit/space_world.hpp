// Spans of a fake system, for the tests of layer 3.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "allod/space/space.hpp"
#include "world.hpp"

namespace allod::test {

using os::Fake;
using space::Span;
constexpr std::size_t kMiB = std::size_t{1} << 20;

using Sizes = std::vector<std::uint32_t>;

class SpaceOfSpans : public testing::Test {
 protected:
  static constexpr std::size_t kRegionBytes = 16 * kMiB;
  static constexpr std::size_t kHugeFrom = 4 * kMiB;
  static constexpr std::size_t kHugePage = 2 * kMiB;

  void start(std::size_t region_bytes = kRegionBytes, std::size_t huge_from = kHugeFrom) {
    ASSERT_TRUE(space.start(region_bytes, huge_from));
  }
  void TearDown() override { space.check_invariants(); }

  Span* allocate(std::uint32_t slices, std::uint32_t alignment = 1) {
    Span* const span = space.allocate({slices}, {alignment});
    if (span != nullptr) space.map().set_tags(span->base, span->size, space::kHugeTag);
    return span;
  }
  Span* allocate_dense(std::uint32_t slices) {
    constexpr std::size_t kDescriptor = 256;
    Span* const span = space.allocate_described({slices}, space::Filling::dense, kDescriptor);
    if (span != nullptr) space.map().set_tags(span->base, span->size, space::kHugeTag);
    return span;
  }
  bool is_huge(const Span* span) { return system.is_huge_at(span->base); }
  void use_enough() {
    while (space.counters().used < kHugeFrom) static_cast<void>(allocate(1));
  }
  // Slice by slice, all in use; behind them is another one.
  std::vector<Span*> three_huge_pages() {
    use_enough();
    std::vector<Span*> spans(3 * kHugePage / kSliceBytes);
    for (Span*& span : spans) span = allocate_dense(1);
    static_cast<void>(allocate_dense(1));
    EXPECT_EQ(spans.front()->base % kHugePage, 0U);
    return spans;
  }
  static unsigned char* memory(const Span* span) {
    return reinterpret_cast<unsigned char*>(span->base);
  }
  static void fill(const Span* span, int value) {
    std::memset(memory(span), value, span->size.bytes());
  }
  static bool is_all(const Span* span, unsigned char value) {
    return std::all_of(memory(span), memory(span) + span->size.bytes(),
                       [&](unsigned char byte) { return byte == value; });
  }
  // Sizes of the free spans, in order of their addresses.
  Sizes free_spans() {
    Sizes sizes;
    space.for_each_span([&](const Span& span) {
      if (is_free(span)) sizes.push_back(span.size.count);
    });
    return sizes;
  }
  FakeSpace space;
  Fake& system = space.platform();
};

}  // namespace allod::test

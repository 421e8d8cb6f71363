// Layer 3: free spans by size.
#include "allod/space/span_bins.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "world.hpp"

namespace allod::test {
namespace {

using space::Span;
using space::SpanBins;

TEST(SpanBinsProperty, finds_a_span_that_is_nearly_the_smallest_that_fits) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random{seed};
    std::vector<Span> spans(60);
    std::vector<bool> filed(spans.size());
    SpanBins bins;
    const std::size_t most = seed % 2 == 0 ? 40 : std::size_t{1} << 31;
    for (int step = 0; step < 3000; ++step) {
      const std::size_t i = random.below(spans.size());
      if (filed[i]) {
        bins.remove(&spans[i]);
      } else {
        spans[i].size = {static_cast<std::uint32_t>(random.any_magnitude(most))};
        bins.insert(&spans[i]);
      }
      filed[i] = !filed[i];

      const Slices wanted{static_cast<std::uint32_t>(random.any_magnitude(most))};
      const Span* best = nullptr;
      std::size_t near = 0;
      for (std::size_t k = 0; k < spans.size(); ++k) {
        if (!filed[k] || spans[k].size < wanted) continue;
        if (best == nullptr || spans[k].size < best->size) best = &spans[k];
        if (spans[k].size.count / 9 < wanted.count / 8 + 1) ++near;
      }
      const Span* const found = bins.find(wanted);
      if (found == nullptr) {
        // A bounded look: only spans of the very bin of the request may be missed.
        ASSERT_TRUE(best == nullptr || best->size.count / 9 < wanted.count / 8 + 1);
        continue;
      }
      ASSERT_NE(best, nullptr);
      ASSERT_GE(found->size, wanted);
      if (wanted.count < 16) {
        ASSERT_EQ(found->size.count < 16, best->size.count < 16);
        if (best->size.count < 16) {
          ASSERT_EQ(found->size, best->size);
        }
      }
      if (near <= 8) {
        ASSERT_LE(found->size.count / 9, best->size.count / 8);
      }
    }
    std::size_t visited = 0;
    bins.for_each([&](const Span&) { ++visited; });
    EXPECT_EQ(visited, static_cast<std::size_t>(std::count(filed.begin(), filed.end(), true)));
  }
}

TEST(SpanBins, prefer_the_span_that_was_freed_last) {
  SpanBins bins;
  Span old;
  Span young;
  old.size = young.size = {3};
  bins.insert(&old);
  bins.insert(&young);
  EXPECT_EQ(bins.find({3}), &young);
  bins.remove(&young);
  EXPECT_EQ(bins.find({3}), &old);
  bins.remove(&old);
  EXPECT_EQ(bins.find({1}), nullptr);
}

TEST(SpanBins, hold_the_largest_span_there_can_be) {
  SpanBins bins;
  Span span;
  span.size = {1U << 31};
  bins.insert(&span);
  EXPECT_EQ(bins.find({1}), &span);
  EXPECT_EQ(bins.find({1U << 31}), &span);
  bins.remove(&span);
  EXPECT_EQ(bins.find({1}), nullptr);
}

}  // namespace
}  // namespace allod::test

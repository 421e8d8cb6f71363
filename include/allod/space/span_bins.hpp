// Free spans by size, for best fit without a search through all of them.
#pragma once

#include "allod/space/span.hpp"

namespace allod::space {

// 2^kStepBits bins for each doubling, and exact bins below twice that many slices. Within a bin,
// the span freed last comes first, and kLooks spans are checked for one that fits. Guarded by the
// space's lock.
template <unsigned kStepBits, unsigned kLooks>
class SpanBinsOf {
 public:
  void insert(Span* span) noexcept {
    const unsigned bin = bin_of(span->size);
    bins_[bin].push_front(span);
    filled_[bin / kWordBits] |= bit(bin % kWordBits);
  }
  void remove(Span* span) noexcept {
    const unsigned bin = bin_of(span->size);
    bins_[bin].remove(span);
    if (bins_[bin].empty()) filled_[bin / kWordBits] &= ~bit(bin % kWordBits);
  }
  // A span of at least `size`, nearly the smallest; it stays in its bin. Null if there is none.
  [[nodiscard]] ALLOD_HOT Span* find(Slices size) const noexcept {
    const unsigned first = bin_of(size);
    // Spans of the first bin may be too small.
    unsigned looks = kLooks;
    for (Span* span = bins_[first].first(); span != nullptr && looks-- > 0;
         span = SpanList::next(span)) {
      if (span->size >= size) return span;
    }
    const unsigned above = next_filled(first + 1);
    return above < kBins ? bins_[above].first() : nullptr;
  }
  // Up to `most` spans of at least `size`, nearly the smallest; they stay in their bins.
  [[nodiscard]] std::uint32_t find_some(Slices size, Span** out,
                                        std::uint32_t most) const noexcept {
    std::uint32_t found = 0;
    std::uint32_t looks = 2 * most;
    for (unsigned bin = next_filled(bin_of(size)); bin < kBins; bin = next_filled(bin + 1)) {
      for (Span* span = bins_[bin].first(); span != nullptr; span = SpanList::next(span)) {
        if (looks-- == 0) return found;
        if (span->size < size) continue;
        out[found++] = span;
        if (found == most) return found;
      }
    }
    return found;
  }
  // Nearly the largest span that suits, of the largest few; it stays in its bin. Null if there is
  // none.
  template <class Suits>
  [[nodiscard]] Span* largest(Suits&& suits) const noexcept {
    unsigned looks = kLooks;
    for (unsigned word = words_for(kBins); word-- > 0;) {
      for (Word bits = filled_[word]; bits != 0; bits &= ~bit(highest_bit(bits))) {
        const SpanList& bin = bins_[word * kWordBits + highest_bit(bits)];
        for (Span* span = bin.first(); span != nullptr; span = SpanList::next(span)) {
          if (suits(*span)) return span;
          if (--looks == 0) return nullptr;
        }
      }
    }
    return nullptr;
  }
  [[nodiscard]] Span* largest() const noexcept {
    return largest([](const Span&) noexcept { return true; });
  }
  template <class F>
  void for_each(F&& visit) const {
    for (const SpanList& bin : bins_) {
      for (Span* span = bin.first(); span != nullptr; span = SpanList::next(span)) visit(*span);
    }
  }

 private:
  static constexpr unsigned kSteps = 1U << kStepBits;
  static constexpr unsigned kExact = 2 * kSteps;
  static constexpr unsigned kDoublings = 31 - kStepBits;
  static constexpr unsigned kBins = kExact + kSteps * kDoublings;

  // Rounds down to the smallest size of a bin.
  static constexpr unsigned bin_of(Slices size) noexcept {
    if (size.count < kExact) return size.count;
    const unsigned top = highest_bit(size.count);
    return kExact + kSteps * (top - kStepBits - 1) + (size.count >> (top - kStepBits)) - kSteps;
  }
  [[nodiscard]] unsigned next_filled(unsigned from) const noexcept {
    for (unsigned word = from / kWordBits; word < words_for(kBins); ++word) {
      Word bits = filled_[word];
      if (word == from / kWordBits) bits &= ~low_bits(from % kWordBits);
      if (bits != 0) return word * kWordBits + lowest_bit(bits);
    }
    return kBins;
  }
  SpanList bins_[kBins] = {};
  Word filled_[words_for(kBins)] = {};
};

using SpanBins = SpanBinsOf<3, 8>;
// In half a kilobyte, for few spans: a search checks all of a bin.
using FewSpanBins = SpanBinsOf<0, ~0U>;

}  // namespace allod::space

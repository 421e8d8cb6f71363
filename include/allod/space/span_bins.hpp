// Free spans by size, for best fit without a search through all of them.
#pragma once

#include "allod/space/span.hpp"

namespace allod::space {

// Exact bins up to 16 slices, then eight to a doubling. Within a bin the span
// freed last comes first. Guarded by the space's lock.
class SpanBins {
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
  // A span of at least `size`, nearly the smallest there is; it stays in its
  // bin. Null when there is none.
  [[nodiscard]] Span* find(Slices size) const noexcept {
    const unsigned first = bin_of(size);
    // Spans of the first bin may be smaller than asked for.
    int looks = kLooksInFirstBin;
    for (Span* span = bins_[first].first(); span != nullptr && looks-- > 0;
         span = SpanList::next(span)) {
      if (span->size >= size) return span;
    }
    const unsigned above = next_filled(first + 1);
    return above < kBins ? bins_[above].first() : nullptr;
  }
  // Nearly the largest span there is; it stays in its bin. Null when there is none.
  [[nodiscard]] Span* largest() const noexcept {
    for (unsigned word = words_for(kBins); word-- > 0;) {
      if (filled_[word] != 0) return bins_[word * kWordBits + highest_bit(filled_[word])].first();
    }
    return nullptr;
  }
  template <class F>
  void for_each(F&& visit) const {
    for (const SpanList& bin : bins_) {
      for (Span* span = bin.first(); span != nullptr; span = SpanList::next(span)) visit(*span);
    }
  }

 private:
  static constexpr unsigned kExact = 16;
  static constexpr unsigned kDoublings = 28;
  static constexpr unsigned kBins = kExact + 8 * kDoublings;
  static constexpr int kLooksInFirstBin = 8;

  // Sizes are rounded down to the smallest of a bin.
  static constexpr unsigned bin_of(Slices size) noexcept {
    if (size.count < kExact) return size.count;
    const unsigned top = highest_bit(size.count);
    return kExact + 8 * (top - 4) + (size.count >> (top - 3)) - 8;
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

}  // namespace allod::space

// Where the mappings of a region begin. Pages that moved are a mapping of their own, which merges
// with no neighbour. Pages move from within one mapping only, and the system limits mappings.
#pragma once

#include "allod/base/base.hpp"

namespace allod::space {

// Two bits for each slice, behind the object: whether a mapping may begin there, and whether it is
// in a mapping of pages that moved there. The program may have made further mappings. Guarded by
// the space's lock.
class Seams {
 public:
  explicit Seams(Slices region) noexcept : slices_{region.count} {}

  // What an object for a region needs, in zeroed memory.
  [[nodiscard]] static constexpr std::size_t bytes_for(Slices region) noexcept {
    return sizeof(Seams) + std::size_t{2} * words_for(region.count) * sizeof(Word);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_for({slices_}); }
  // Slices where a mapping may begin, but for the first of the region.
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }

  // Whether a mapping may begin at a slice, not the first of the region.
  [[nodiscard]] bool begins_at(std::uint32_t at) const noexcept {
    return (starts()[at / kWordBits] & bit(at % kWordBits)) != 0;
  }
  // How many of `most` slices from `first` on are in the mapping of the first one.
  [[nodiscard]] std::uint32_t run_from(std::uint32_t first, std::uint32_t most) const noexcept {
    const std::uint32_t end = first + most;
    for (std::uint32_t at = first + 1; at < end; at = next_word(at)) {
      const Word begins = starts()[at / kWordBits] & ~low_bits(at % kWordBits);
      if (begins == 0) continue;
      const std::uint32_t found = at - at % kWordBits + lowest_bit(begins);
      return (found < end ? found : end) - first;
    }
    return most;
  }
  // Whether pages moved to any of these slices.
  [[nodiscard]] bool has_moved(std::uint32_t first, std::uint32_t size) const noexcept {
    bool is_any = false;
    for_each_word(first, size, [&](std::uint32_t word, Word mask) noexcept {
      is_any |= (moved()[word] & mask) != 0;
    });
    return is_any;
  }
  // Pages have moved to these slices, as one mapping.
  void note_moved(std::uint32_t first, std::uint32_t size) noexcept {
    for_each_word(first, size,
                  [&](std::uint32_t word, Word mask) noexcept { moved()[word] |= mask; });
    join(first, size);
    set_start(first, true);
    set_start(first + size, true);
  }
  // These slices have been mapped anew, as one mapping with what is before them and behind them, or
  // not.
  void note_renewed(std::uint32_t first, std::uint32_t size, bool joins_before,
                    bool joins_behind) noexcept {
    for_each_word(first, size,
                  [&](std::uint32_t word, Word mask) noexcept { moved()[word] &= ~mask; });
    join(first, size);
    set_start(first, !joins_before);
    set_start(first + size, !joins_behind);
  }

 private:
  [[nodiscard]] Word* starts() noexcept { return reinterpret_cast<Word*>(this + 1); }
  [[nodiscard]] const Word* starts() const noexcept {
    return reinterpret_cast<const Word*>(this + 1);
  }
  [[nodiscard]] Word* moved() noexcept { return starts() + words_for(slices_); }
  [[nodiscard]] const Word* moved() const noexcept { return starts() + words_for(slices_); }

  // No mapping begins within these slices.
  void join(std::uint32_t first, std::uint32_t size) noexcept {
    for_each_word(first + 1, size - 1, [&](std::uint32_t word, Word mask) noexcept {
      count_ -= count_bits(starts()[word] & mask);
      starts()[word] &= ~mask;
    });
  }
  // The ends of the region do not count: its neighbours are no part of it.
  void set_start(std::uint32_t at, bool begins) noexcept {
    if (at == 0 || at >= slices_) return;
    Word& word = starts()[at / kWordBits];
    const Word mask = bit(at % kWordBits);
    if (((word & mask) != 0) == begins) return;
    word ^= mask;
    count_ += begins ? 1U : ~0U;
  }
  [[nodiscard]] static constexpr std::uint32_t next_word(std::uint32_t at) noexcept {
    return at - at % kWordBits + kWordBits;
  }
  // Calls visit(word, mask) for each word of bits that has some of these slices.
  template <class Visit>
  static void for_each_word(std::uint32_t first, std::uint32_t size, Visit&& visit) noexcept {
    const std::uint32_t end = first + size;
    for (std::uint32_t at = first; at < end; at = next_word(at)) {
      const Word until = next_word(at) <= end ? ~Word{0} : low_bits(end % kWordBits);
      visit(at / kWordBits, until & ~low_bits(at % kWordBits));
    }
  }

  std::uint32_t slices_;
  std::uint32_t count_ = 0;
};
static_assert(sizeof(Seams) == sizeof(Word));

}  // namespace allod::space

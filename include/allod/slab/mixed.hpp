// A slab with blocks of all sizes, for memory too small for a slab of each class.
#pragma once

#include "allod/slab/slab.hpp"

namespace allod::slab {

// One slice in grains of 16 bytes. A block is a run of grains; one bit marks its first grain,
// another its last. Free runs merge by themselves. As in any slab, the blocks are never read or
// written. A thread that holds a block may read its bits, whatever happens to its neighbours.
class MixedSlab : public Slab {
 public:
  static constexpr std::size_t kGrain = 16;
  static constexpr std::uint32_t kGrains = kSliceBytes / kGrain;

  [[nodiscard]] static std::size_t descriptor_bytes() noexcept {
    return Slab::descriptor_bytes(kShape) + 2 * sizeof(Word) * words_for(kGrains);
  }
  [[nodiscard]] static constexpr std::uint32_t grains_for(std::size_t bytes) noexcept {
    return bytes == 0 ? 1 : static_cast<std::uint32_t>((bytes + kGrain - 1) / kGrain);
  }

  // All between `from` and `to`, in the slice, is free; the rest belongs to others.
  void start(Owner* owner, Address from, Address to) noexcept {
    Slab::start(kShape, space::kMixedClass, owner);
    // A descriptor of this size may have served a class, with other bits here.
    forget();
    const auto first = static_cast<std::uint32_t>((from - base + kGrain - 1) / kGrain);
    const auto end = static_cast<std::uint32_t>((to - base) / kGrain);
    set_used(0, first < end ? first : kGrains);
    if (first < end) set_used(end, kGrains);
    first_usable_ = first;
    usable_ = free_count();
    refused_ = kGrains + 1;
  }
  // Before a slab with blocks in use is freed: the next life of its descriptor begins without
  // marks.
  void forget() noexcept {
    forget_remote();
    for (std::uint32_t word = 0; word < words(); ++word) {
      relaxed(starts()[word], 0);
      relaxed(lasts()[word], 0);
    }
  }
  [[nodiscard]] std::size_t usable_bytes() const noexcept { return usable_ * kGrain; }
  [[nodiscard]] bool is_whole() const noexcept { return usable_ == kGrains; }
  // Whether the grain is the slab's and not others'. From any thread.
  [[nodiscard]] bool is_usable(std::uint32_t at) const noexcept {
    return at - first_usable_ < usable_;
  }

  // A block of `grains` at a multiple of `alignment`, at most a slice. The first that fits, or
  // null.
  [[nodiscard]] void* take_run(std::uint32_t grains, std::size_t alignment) noexcept {
    if (grains >= refused_) return nullptr;
    const std::uint32_t step =
        alignment > kGrain ? static_cast<std::uint32_t>(alignment / kGrain) : 1;
    std::uint32_t at = next_free(first_word() * kWordBits);
    if (at < kGrains) set_first_word(at / kWordBits);
    for (;;) {
      at = align_up(next_free(at), step);
      if (at + grains > kGrains) break;
      const std::uint32_t end = next_used(at, at + grains);
      if (end == at + grains) {
        set_used(at, end);
        set_bit(starts(), at);
        set_bit(lasts(), end - 1);
        return block_at(at);
      }
      at = end;
    }
    if (step == 1) refused_ = grains;
    return nullptr;
  }
  // Frees the block that starts at this grain. Returns its grains, or 0 if none starts there.
  [[nodiscard]] std::uint32_t give_run(std::uint32_t at) noexcept {
    if (!is_start(at)) return 0;
    const std::uint32_t grains = run_at(at);
    clear_bit(starts(), at);
    clear_bit(lasts(), at + grains - 1);
    set_free(at, at + grains);
    refused_ = kGrains + 1;
    return grains;
  }

  [[nodiscard]] bool is_start(std::uint32_t at) const noexcept {
    return (start_word(at / kWordBits) & bit(at % kWordBits)) != 0;
  }
  // The grains of the block in use that starts here.
  [[nodiscard]] std::uint32_t run_at(std::uint32_t at) const noexcept {
    const std::uint32_t last = next_bit(at, kGrains, [&](std::uint32_t word) noexcept {
      return __atomic_load_n(&lasts()[word], __ATOMIC_RELAXED);
    });
    return last + 1 - at;
  }
  // The start of the block in use with this grain; kNoBlock if there is none.
  [[nodiscard]] std::uint32_t start_around(std::uint32_t at) const noexcept {
    for (std::uint32_t grain = at + 1; grain-- > 0;) {
      if (is_start(grain)) return grain;
      if ((free_word(grain / kWordBits) & bit(grain % kWordBits)) != 0) break;
    }
    return kNoBlock;
  }
  // Starts of blocks in use, without remote frees; see used_in_word().
  [[nodiscard]] Word live_in_word(std::uint32_t word) const noexcept {
    return start_word(word) & used_in_word(word);
  }

  [[nodiscard]] std::uint32_t count_starts() const noexcept {
    std::uint32_t count = 0;
    for (std::uint32_t word = 0; word < words(); ++word) count += count_bits(start_word(word));
    return count;
  }

  // As collect(): calls on_free(grains) for each block, or on_double(start).
  template <class OnFree, class OnDouble>
  void collect_runs(OnFree&& on_free, OnDouble&& on_double) noexcept {
    take_marks([&](std::uint32_t at) noexcept {
      const std::uint32_t grains = give_run(at);
      grains != 0 ? on_free(grains) : on_double(at);
    });
  }

 private:
  static constexpr sizes::SlabShape kShape{Divider{kGrain}, kGrain, kGrains, 1};

  [[nodiscard]] Word* starts() const noexcept {
    return reinterpret_cast<Word*>(reinterpret_cast<unsigned char*>(const_cast<MixedSlab*>(this)) +
                                   Slab::descriptor_bytes(kShape));
  }
  [[nodiscard]] Word* lasts() const noexcept { return starts() + words_for(kGrains); }
  static void set_bit(Word* bits, std::uint32_t at) noexcept {
    relaxed(bits[at / kWordBits], bits[at / kWordBits] | bit(at % kWordBits));
  }
  static void clear_bit(Word* bits, std::uint32_t at) noexcept {
    relaxed(bits[at / kWordBits], bits[at / kWordBits] & ~bit(at % kWordBits));
  }
  [[nodiscard]] Word start_word(std::uint32_t word) const noexcept {
    return __atomic_load_n(&starts()[word], __ATOMIC_RELAXED);
  }
  // The first grain in [from, end) with its bit set; or `end`.
  template <class WordAt>
  [[nodiscard]] static std::uint32_t next_bit(std::uint32_t from, std::uint32_t end,
                                              WordAt&& word_at) noexcept {
    while (from < end) {
      const Word bits = word_at(from / kWordBits) & ~low_bits(from % kWordBits);
      if (bits != 0) {
        const std::uint32_t found = align_down(from, kWordBits) + lowest_bit(bits);
        return found < end ? found : end;
      }
      from = align_down(from, kWordBits) + kWordBits;
    }
    return end;
  }
  [[nodiscard]] std::uint32_t next_free(std::uint32_t from) const noexcept {
    return next_bit(from, kGrains, [&](std::uint32_t word) noexcept { return free_word(word); });
  }
  [[nodiscard]] std::uint32_t next_used(std::uint32_t from, std::uint32_t end) const noexcept {
    return next_bit(from, end, [&](std::uint32_t word) noexcept { return ~free_word(word); });
  }

  std::uint32_t first_usable_;
  std::uint32_t usable_;   // grains
  std::uint32_t refused_;  // no run of this length is free
};

static_assert(sizeof(MixedSlab) == sizeof(Slab), "the bits follow the slab");

[[nodiscard]] inline bool is_mixed(const Slab& slab) noexcept {
  return slab.size_class() == space::kMixedClass;
}
[[nodiscard]] inline MixedSlab& as_mixed(Slab& slab) noexcept {
  return static_cast<MixedSlab&>(slab);
}
[[nodiscard]] inline const MixedSlab& as_mixed(const Slab& slab) noexcept {
  return static_cast<const MixedSlab&>(slab);
}

}  // namespace allod::slab

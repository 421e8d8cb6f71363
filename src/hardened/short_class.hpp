// Which blocks the short path of the hardened library takes, of up to 1 KiB, and how it finds their
// states.
#pragma once

#include <array>

#include "allod/slab/guarded_shape.hpp"
#include "hardened/canary.hpp"
#include "hardened/hardened.hpp"

namespace allod::hardened {

extern constinit Canary canary;
// Options are read before the first allocation; until then, the defaults.
extern constinit Mitigations chosen;

template <Mitigation kMitigation>
[[nodiscard]] ALLOD_INLINE bool on() noexcept {
  if constexpr (!HardenedPolicy::kMitigations.has(kMitigation)) return false;
  return chosen.has(kMitigation);
}

// Measures that are part of the short path; the others do not concern it, except tags and history,
// which it does not know.
inline constexpr Mitigations kShortMeasures =
    Mitigations::named("canary,neighbours,zero,written,quarantine,origin");
// The path is compiled for each level, where nothing is asked, and once for any other set.
template <Level kLevel>
struct MeasuresOf {
  static constexpr Mitigations kThese = kShortMeasures & Mitigations::of(kLevel);

  template <Mitigation kMitigation>
  [[nodiscard]] static constexpr ALLOD_INLINE bool have() noexcept {
    return kThese.has(kMitigation);
  }
  // Of a block's slack.
  [[nodiscard]] static constexpr ALLOD_INLINE std::size_t canary_bytes() noexcept {
    return kThese.has(Mitigation::canary) ? Canary::kBytes : 0;
  }
  // Whether the process has just these.
  [[nodiscard]] static bool are_chosen() noexcept { return (kShortMeasures & active()) == kThese; }
};
struct ChosenMeasures {
  template <Mitigation kMitigation>
  [[nodiscard]] static ALLOD_INLINE bool have() noexcept {
    return on<kMitigation>();
  }
  [[nodiscard]] static ALLOD_INLINE std::size_t canary_bytes() noexcept {
    return on<Mitigation::canary>() ? Canary::kBytes : 0;
  }
  [[nodiscard]] static bool are_chosen() noexcept { return true; }
};
using AllMeasures = MeasuresOf<Level::all>;
// Calls `use.operator()<Set>()` for each set until it returns true. Returns the number of that one.
struct AnyMeasures {
  template <class Use>
  static ALLOD_INLINE std::uint8_t find(Use&& use) noexcept {
    if (use.template operator()<AllMeasures>()) return 0;
    if (use.template operator()<MeasuresOf<Level::light>>()) return 1;
    if (use.template operator()<MeasuresOf<Level::balanced>>()) return 2;
    return use.template operator()<ChosenMeasures>() ? 3 : 4;
  }
};

// Blocks on this path are aligned to 16 bytes and multiples of 16 in size. They are visited as
// pairs of words, some of them twice.
using Pair [[gnu::vector_size(16), gnu::may_alias]] = std::uint64_t;
// For 16 to 128 bytes, and for 128 bytes and more.
static_assert(slab::BlockStates::kLargestNarrow == 128);
template <class Visit>
ALLOD_INLINE void visit_small(Address from, std::size_t bytes, Visit&& visit) noexcept {
  auto* const first = reinterpret_cast<Pair*>(from);
  auto* const end = reinterpret_cast<Pair*>(from + bytes);
  visit(first[0]);
  visit(end[-1]);
  if (bytes <= 32) return;
  visit(first[1]);
  visit(end[-2]);
  if (bytes <= 64) return;
  visit(first[2]);
  visit(first[3]);
  visit(end[-3]);
  visit(end[-4]);
}
template <class Visit>
ALLOD_INLINE void visit_medium(Address from, std::size_t bytes, Visit&& visit) noexcept {
  // Unrolled by hand: compilers would make a loop or a call of it.
  const auto visit_eight = [&](Pair* pairs) noexcept {
    visit(pairs[0]);
    visit(pairs[1]);
    visit(pairs[2]);
    visit(pairs[3]);
    visit(pairs[4]);
    visit(pairs[5]);
    visit(pairs[6]);
    visit(pairs[7]);
  };
  auto* const last = reinterpret_cast<Pair*>(from + bytes) - 8;
  for (auto* first = reinterpret_cast<Pair*>(from); first < last; first += 8) visit_eight(first);
  visit_eight(last);
}
constexpr auto kErase = [](Pair& pair) noexcept { pair = Pair{}; };

// What this path must know of a class, so that it reads no line of the slab's descriptor for it.
struct ShortClass {
  std::uint64_t reciprocal;  // 2^kShift / bytes, rounded up; 0: not on this path
  std::uint64_t bytes;       // of a block
  std::uint64_t states;      // offset of the states in the slab's descriptor

  using Sizes = Process::Sizes;
  static constexpr unsigned kShift = 32;
  static constexpr std::size_t kPageBytes = 4096;  // the path requires this page size
  static constexpr std::size_t kMostBytes = 1024;
  static constexpr ClassIndex kLargest = Sizes::of(kMostBytes);

  // The class qualifies if a slab is one slice, with or without a guard.
  [[nodiscard]] static constexpr ShortClass make(ClassIndex c) noexcept {
    const sizes::SlabShape& whole = Sizes::shape_of(c);
    const std::uint64_t bytes = whole.block_bytes;
    const bool is_short = slab::with_guard(whole, kPageBytes).slices == 1;
    return {is_short ? ((std::uint64_t{1} << kShift) + bytes - 1) / bytes : 0, bytes,
            slab::BlockStates::offset_for(whole)};
  }
  // Index of the block around an address.
  [[nodiscard]] constexpr ALLOD_INLINE std::uint64_t index_of(Address at) const noexcept {
    return at % kSliceBytes * reciprocal >> kShift;
  }
  // Whether a block begins there, by the fraction of the quotient, after D. Lemire, O. Kaser and N.
  // Kurz, "Faster remainder by direct computation" (2019). Always false for other classes.
  [[nodiscard]] constexpr ALLOD_INLINE bool is_start(Address at) const noexcept {
    constexpr std::uint64_t kRest = (std::uint64_t{1} << kShift) - 1;
    return (at % kSliceBytes * reciprocal & kRest) < reciprocal;
  }
};
inline constexpr auto kShortClasses = [] {
  std::array<ShortClass, ShortClass::kLargest + 1> classes{};
  for (ClassIndex c = 1; c < classes.size(); ++c) classes[c] = ShortClass::make(c);
  return classes;
}();
static_assert([] {
  for (ClassIndex c = 1; c < kShortClasses.size(); ++c) {
    const ShortClass& its = kShortClasses[c];
    if (its.reciprocal == 0) continue;
    // Every index in a slice has a state, also behind the last block.
    const std::uint64_t numbers = (kSliceBytes - 1) / its.bytes + 1;
    const std::size_t cell = its.bytes <= slab::BlockStates::kLargestNarrow ? 1 : 4;
    const std::size_t end = slab::BlockStates::end_for(ShortClass::Sizes::shape_of(c));
    if (its.states + numbers * cell > end) return false;
    // Within a block, the quotient with its fraction only grows.
    const auto bytes = static_cast<std::size_t>(its.bytes);
    for (Address at = 0; at + bytes <= kSliceBytes; at += bytes) {
      const Address last = at + bytes - 1;
      if (its.index_of(at) != at / its.bytes || its.index_of(last) != at / its.bytes) return false;
      if (!its.is_start(at) || its.is_start(at + 1) || its.is_start(last)) return false;
    }
  }
  return true;
}());
template <class Cell>
[[nodiscard]] ALLOD_INLINE Cell* cell_of(space::Span* slab, const ShortClass& its,
                                         std::uint64_t index) noexcept {
  return reinterpret_cast<Cell*>(reinterpret_cast<unsigned char*>(slab) + its.states) + index;
}
// `stride`: the class's, from a tag.
[[nodiscard]] ALLOD_INLINE const ShortClass& short_class_at(std::uint32_t stride) noexcept {
  static_assert(sizeof(ShortClass) == space::kClassStride || !kAddressesAbound);
  const auto* const first = reinterpret_cast<const unsigned char*>(kShortClasses.data());
  return *reinterpret_cast<const ShortClass*>(first + stride);
}

// Blocks with states of one kind. Sizes are requested, room is that with the canary, bytes are
// those of the class.
template <class Set, std::size_t kLeastRoom, std::size_t kMost>
struct ShortRange {
  using Measures = Set;
  static constexpr std::size_t kMostBytes = kMost;
  static constexpr ClassIndex kFirst = ShortClass::Sizes::of(kLeastRoom);
  static constexpr std::uint32_t kFirstStride = kFirst * space::kClassStride;
  static constexpr std::uint32_t kStrides =
      (ShortClass::Sizes::of(kMost) + 1) * space::kClassStride - kFirstStride;
  // Without a canary, small blocks have less room than their class begins with.
  [[nodiscard]] static constexpr ALLOD_INLINE std::size_t least_size() noexcept {
    constexpr std::size_t kWithCanary = kLeastRoom - Canary::kBytes;
    return kWithCanary == 1 ? 1 : kLeastRoom - Measures::canary_bytes();
  }

  // Sizes and classes on this path: 0 before the process has started, or if it is closed.
  static inline constinit std::size_t sizes = 0;
  static inline constinit std::uint32_t strides = 0;

  [[nodiscard]] static ALLOD_INLINE bool has_size(std::size_t size) noexcept {
    return size - least_size() < sizes;
  }
  [[nodiscard]] static ALLOD_INLINE bool has(std::uint32_t stride) noexcept {
    return stride - kFirstStride < strides;
  }
  static void open() noexcept {
    sizes = kMost - Measures::canary_bytes() - least_size() + 1;
    strides = kStrides;
  }
};
template <class Set>
struct SmallOf : ShortRange<Set, 1 + Canary::kBytes, slab::BlockStates::kLargestNarrow> {
  using Cell = std::uint8_t;
  static constexpr std::uint64_t kMostSlack = slab::BlockStateCell::kMostNarrowSlack;

  [[nodiscard]] static constexpr ALLOD_INLINE ClassIndex class_for(std::size_t room) noexcept {
    return static_cast<ClassIndex>((room + 15) / 16);
  }
  [[nodiscard]] static constexpr ALLOD_INLINE std::size_t bytes_of(ClassIndex c) noexcept {
    return c * std::size_t{16};
  }
  template <class Visit>
  static ALLOD_INLINE void visit(Address block, std::size_t bytes, Visit&& use) noexcept {
    visit_small(block, bytes, use);
  }
  [[nodiscard]] static ALLOD_INLINE std::uint64_t damage_between(Address block,
                                                                 std::size_t requested,
                                                                 std::size_t bytes) noexcept {
    return Canary::damage_between_small(block, requested, bytes);
  }
};
template <class Set>
struct MediumOf : ShortRange<Set, slab::BlockStates::kLargestNarrow + 1, ShortClass::kMostBytes> {
  using Cell = std::uint32_t;
  static constexpr std::uint64_t kMostSlack = slab::BlockStateCell::kMostWideSlack;

  [[nodiscard]] static constexpr ALLOD_INLINE ClassIndex class_for(std::size_t room) noexcept {
    return ShortClass::Sizes::of_large(room);
  }
  [[nodiscard]] static constexpr ALLOD_INLINE std::size_t bytes_of(ClassIndex c) noexcept {
    return static_cast<std::size_t>(kShortClasses[c].bytes);
  }
  template <class Visit>
  static ALLOD_INLINE void visit(Address block, std::size_t bytes, Visit&& use) noexcept {
    visit_medium(block, bytes, use);
  }
  [[nodiscard]] static ALLOD_INLINE std::uint64_t damage_between(Address block,
                                                                 std::size_t requested,
                                                                 std::size_t bytes) noexcept {
    return Canary::damage_between(block, requested, bytes);
  }
};
using Small = SmallOf<AllMeasures>;
using Medium = MediumOf<AllMeasures>;
static_assert([] {
  for (ClassIndex c = Small::kFirst; c < Medium::kFirst; ++c) {
    const ShortClass& its = kShortClasses[c];
    if (its.reciprocal == 0 || its.bytes != Small::bytes_of(c)) return false;
  }
  return true;
}());

}  // namespace allod::hardened

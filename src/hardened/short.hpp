// The short path of the hardened library, for blocks of up to 1 KiB.
//
// It does what general.cpp does, with fewer checks: the class of a block determines where its
// state is, and all measures that need it are on. It checks everything before it changes anything.
// Anything unexpected goes to the general path, which finds it again and reports it.
#pragma once

#include <array>
#include <bit>
#include <type_traits>

#include "allod/heaps/quarantine.hpp"
#include "allod/slab/guarded_shape.hpp"
#include "hardened/canary.hpp"
#include "hardened/hardened.hpp"

namespace allod::hardened {

extern constinit Canary canary;
// Null before the thread's first free.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local heaps::Quarantine* own_quarantine;

// A block in quarantine: its address and, in the unused upper bits, its size, if it is wholly zero
// and can be looked at without more; and whether it was looked at in its turn.
class Ticket {
 public:
  ALLOD_INLINE Ticket(Address block, std::size_t bytes) noexcept
      : word_{block | bytes << kSizeShift} {}
  explicit Ticket(void* ticket) noexcept : word_{address_of(ticket)} {}

  [[nodiscard]] void* word() const noexcept { return reinterpret_cast<void*>(word_); }
  [[nodiscard]] void* address() const noexcept {
    return reinterpret_cast<void*>(word_ & ((Address{1} << kSizeShift) - 1));
  }
  [[nodiscard]] bool is_simple() const noexcept { return bytes() != 0; }
  // Requires is_simple().
  [[nodiscard]] std::size_t bytes() const noexcept { return (word_ & ~kLookedAt) >> kSizeShift; }
  [[nodiscard]] bool was_looked_at() const noexcept { return (word_ & kLookedAt) != 0; }
  [[nodiscard]] Ticket looked_at() const noexcept { return Ticket{word_ | kLookedAt, 0}; }

 private:
  static constexpr unsigned kTop = 8 * sizeof(Address) - 1;
  // With 32 bits there are no unused bits; the hardened library is not made there.
  static constexpr unsigned kSizeShift = kAddressesAbound ? kAddressBits : kTop;
  static constexpr Address kLookedAt = Address{1} << kTop;

  Address word_;
};

// Blocks on this path are aligned to 16 bytes and multiples of 16 in size. They are visited as
// pairs of words, some of them twice.
using Pair [[gnu::vector_size(16), gnu::may_alias]] = std::uint64_t;
// For 16 to 128 bytes, and for 128 bytes and more.
static_assert(slab::BlockStates::kLargestNarrow == 128);
template <class Visit>
ALLOD_INLINE void visit_small(Address from, std::size_t bytes, Visit&& visit) noexcept {
  auto* const first = reinterpret_cast<Pair*>(from);
  auto* const last = reinterpret_cast<Pair*>(from + bytes) - 1;
  visit(first[0]);
  visit(last[0]);
  if (bytes <= 32) return;
  visit(first[1]);
  visit(last[-1]);
  if (bytes <= 64) return;
  visit(first[2]);
  visit(first[3]);
  visit(last[-2]);
  visit(last[-3]);
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

// Whether a block that is handed out must still be zero.
extern constinit bool looks_at_new;
// Reports a write to a block that is about to be handed out, and erases it. `end` is what was in
// its last word.
[[gnu::cold, gnu::noinline]] void report_new(Address block, std::uint64_t end) noexcept;
// The same, and seals it.
[[gnu::cold, gnu::noinline]] void* seal_reported(Address block, std::uint64_t end, std::size_t size,
                                                 Origin origin) noexcept;
// Looks at the next ones that wait in the thread's quarantine.
[[gnu::noinline]] ALLOD_HOT void look_at_oldest() noexcept;

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

// Blocks with states of one kind. Sizes are requested, bytes are those of the class.
template <std::size_t kLeastBytes, std::size_t kMost>
struct ShortRange {
  static constexpr std::size_t kMostBytes = kMost;
  static constexpr std::size_t kLeastSize = kLeastBytes - Canary::kBytes;
  static constexpr std::size_t kSizes = kMost - kLeastBytes + 1;
  static constexpr ClassIndex kFirst = ShortClass::Sizes::of(kLeastBytes);
  static constexpr std::uint32_t kFirstStride = kFirst * space::kClassStride;
  static constexpr std::uint32_t kStrides =
      (ShortClass::Sizes::of(kMost) + 1) * space::kClassStride - kFirstStride;

  // Sizes and classes on this path: 0 before the process has started, or if a measure it needs is
  // off.
  static inline constinit std::size_t sizes = 0;
  static inline constinit std::uint32_t strides = 0;

  [[nodiscard]] static ALLOD_INLINE bool has_size(std::size_t size) noexcept {
    return size - kLeastSize < sizes;
  }
  [[nodiscard]] static ALLOD_INLINE bool has(std::uint32_t stride) noexcept {
    return stride - kFirstStride < strides;
  }
  static void open() noexcept {
    sizes = kSizes;
    strides = kStrides;
  }
};
struct Small : ShortRange<1 + Canary::kBytes, slab::BlockStates::kLargestNarrow> {
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
struct Medium : ShortRange<slab::BlockStates::kLargestNarrow + 1, ShortClass::kMostBytes> {
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
static_assert([] {
  for (ClassIndex c = Small::kFirst; c < Medium::kFirst; ++c) {
    const ShortClass& its = kShortClasses[c];
    if (its.reciprocal == 0 || its.bytes != Small::bytes_of(c)) return false;
  }
  return true;
}());

// Prefetches both ends of a block that is handed out soon, since allocation writes to them. The
// processor cannot predict the random order.
ALLOD_INLINE void fetch_ends(const void* block, std::size_t bytes) noexcept {
  __builtin_prefetch(block);
  __builtin_prefetch(reinterpret_cast<const void*>(address_of(block) + bytes - 1));
}

// Whether a free block that is handed out, of this state, is still zero. A block that nobody has
// had yet is written to first: a look would map the system's page of zeros, to be replaced at once.
// `*end` becomes what this has erased in its last word.
template <class Visit>
[[nodiscard]] ALLOD_INLINE bool is_untouched(Address at, std::size_t bytes, slab::BlockState state,
                                             std::uint64_t* end, Visit&& visit) noexcept {
  *end = 0;
  if (__builtin_expect(state == slab::BlockState{}, 0)) {
    auto* const last = reinterpret_cast<std::uint64_t*>(at + bytes) - 1;
    *end = __atomic_exchange_n(last, 0, __ATOMIC_RELAXED);
    if (*end != 0) return false;
  }
  Pair seen{};
  visit(at, bytes, [&](const Pair& pair) noexcept { seen |= pair; });
  return __builtin_expect((seen[0] | seen[1]) == 0, 1);
}

// Null if no block is at hand, or the general path is needed.
template <class Range>
[[nodiscard]] ALLOD_INLINE void* allocate_short(std::size_t size, Origin origin) noexcept {
  if (__builtin_expect(!Range::has_size(size), 0)) return nullptr;
  const ClassIndex c = Range::class_for(size + Canary::kBytes);
  const ShortClass& its = kShortClasses[c];
  if (std::is_same_v<Range, Medium> && __builtin_expect(its.reciprocal == 0, 0)) return nullptr;
  void* const block = Process::current().pop(c);
  if (__builtin_expect(block == nullptr, 0)) return nullptr;
  using Cell = Range::Cell;
  using slab::BlockState;
  const Address at = address_of(block);
  space::Span* const slab = Process::heap().space().map().span_in(at >> kSliceShift);
  Cell* const cell = cell_of<Cell>(slab, its, its.index_of(at));
  const std::size_t bytes = Range::bytes_of(c);
  const BlockState before{__atomic_load_n(cell, __ATOMIC_RELAXED)};
  always_check(!before.is_live(), "a block is handed out that is in use");
  if (bytes > Range::kMostBytes) __builtin_unreachable();
  if (__builtin_expect(looks_at_new, 1)) {
    std::uint64_t end;
    const auto visit = [](Address from, std::size_t length, auto&& look) noexcept {
      Range::visit(from, length, look);
    };
    if (!is_untouched(at, bytes, before, &end, visit)) return seal_reported(at, end, size, origin);
  }
  constexpr auto kBusy = static_cast<Cell>(BlockState::busy().value());
  __atomic_store_n(cell, kBusy, __ATOMIC_RELEASE);
  // Orders `busy` before the writes below, so that a thread which sees them also sees the state
  // change.
  std::atomic_thread_fence(std::memory_order_release);
  canary.write(at, size, bytes);
  const BlockState state = BlockState::live(origin, bytes - size);
  __atomic_store_n(cell, static_cast<Cell>(state.value()), __ATOMIC_RELEASE);
  const void* coming;
  if (Process::current().magazines[c].foresee(&coming)) fetch_ends(coming, bytes);
  return block;
}

// The slab of a block that may be on this path.
struct ShortPlace {
  space::Span* slab;
  std::uint32_t stride;  // of the class, from the slab's tag
};
[[nodiscard]] ALLOD_INLINE bool find_short(Address at, ShortPlace* found) noexcept {
  space::Tag tag;
  if (__builtin_expect(!Process::heap().space().map().fast_find(at, &tag, &found->slab), 0)) {
    return false;
  }
  // Excludes first-class heaps: a bit of their tags makes the stride too large.
  constexpr space::Tag kHeaps = space::make_tag(space::kFirstHeapOwner, 0);
  constexpr space::Tag kStrides = space::make_tag(1, 0) - 1;
  found->stride = tag & (kHeaps | kStrides);
  return true;
}

// A live block, as read once.
template <class Range>
struct ShortLook {
  using Cell = Range::Cell;

  Cell* cell;
  Cell state;
  std::uint64_t index;    // in the slab
  std::size_t bytes;      // of its class
  std::size_t requested;  // of these bytes
  std::uint64_t damage;   // changed bits of its canaries; 0: intact

  // Claims the block until its next state is stored. False if another thread was faster.
  [[nodiscard]] ALLOD_INLINE bool seize() const noexcept {
    Cell expected = state;
    constexpr auto kBusy = static_cast<Cell>(slab::BlockState::busy().value());
    const bool done = __atomic_compare_exchange_n(cell, &expected, kBusy, false, __ATOMIC_ACQ_REL,
                                                  __ATOMIC_RELAXED);
    std::atomic_thread_fence(std::memory_order_release);  // as in allocate_short()
    return __builtin_expect(done, 1);
  }
  ALLOD_INLINE void store(slab::BlockState next) const noexcept {
    __atomic_store_n(cell, static_cast<Cell>(next.value()), __ATOMIC_RELEASE);
  }
};
// False if it is not in use, or was allocated by a function that does not match `claimed`.
template <class Range>
[[nodiscard]] ALLOD_INLINE bool look_at(Address at, ShortPlace place, Origin claimed,
                                        ShortLook<Range>* look) noexcept {
  const ShortClass& its = short_class_at(place.stride);
  if (__builtin_expect(!its.is_start(at), 0)) return false;
  using Cell = Range::Cell;
  using slab::BlockState;
  look->bytes = static_cast<std::size_t>(its.bytes);
  if (look->bytes > Range::kMostBytes) __builtin_unreachable();
  look->index = its.index_of(at);
  look->cell = cell_of<Cell>(place.slab, its, look->index);
  look->state = __atomic_load_n(look->cell, __ATOMIC_ACQUIRE);
  // The difference to a live state without slack is the slack, which must have room for the canary.
  constexpr auto kLeast = static_cast<Cell>(Canary::kBytes);
  constexpr auto kMost = static_cast<Cell>(Range::kMostSlack);
  const auto full = static_cast<Cell>(BlockState::live(claimed, 0).value());
  const auto slack = std::rotr(static_cast<Cell>(look->state ^ full), BlockState::kSlackShift);
  if (__builtin_expect(static_cast<Cell>(slack - kLeast) > kMost - kLeast, 0)) return false;
  look->requested = look->bytes - slack;
  look->damage = canary.damage(at, look->requested, look->bytes);
  return true;
}

// What a look at both neighbours finds: the end of the one before, and the start of the one behind,
// up to where a slab may have its guard. 0: both are intact, or in use.
template <class Range>
[[nodiscard]] ALLOD_INLINE std::uint64_t damage_around(Address at,
                                                       const ShortLook<Range>& look) noexcept {
  using slab::BlockState;
  constexpr std::size_t kGuard = kSliceBytes - ShortClass::kPageBytes;
  std::uint64_t wrong = 0;
  if (__builtin_expect(look.index != 0, 1)) {
    const auto before = __atomic_load_n(look.cell - 1, __ATOMIC_ACQUIRE);
    wrong = canary.damage_of_end(at - look.bytes, look.bytes, BlockState{before}.is_live());
  }
  if (__builtin_expect(at % kSliceBytes + look.bytes < kGuard, 1)) {
    const auto behind = __atomic_load_n(look.cell + 1, __ATOMIC_ACQUIRE);
    wrong |= Canary::damage_of_start(at, look.bytes, BlockState{behind}.is_live());
  }
  return wrong;
}

// False, and nothing changed, if the general path is needed.
template <class Range>
[[nodiscard]] ALLOD_INLINE bool release_short(Address at, ShortPlace place,
                                              std::size_t claimed_bytes, Origin claimed) noexcept {
  ShortLook<Range> look;
  if (!look_at<Range>(at, place, claimed, &look)) return false;
  if (claimed_bytes != heap::kUnknownBytes && claimed_bytes != look.requested) return false;
  using slab::BlockState;
  const std::size_t bytes = look.bytes;
  const std::uint64_t wrong =
      look.damage | Range::damage_between(at, look.requested, bytes) | damage_around(at, look);
  if (__builtin_expect(wrong != 0, 0)) return false;
  heaps::Quarantine* const quarantine = own_quarantine;
  if (__builtin_expect(quarantine == nullptr || !quarantine->keep_place(bytes), 0)) return false;
  const BlockState freed = BlockState::freed(bytes - look.requested);
  // A concurrent free of the same block loses this race.
  if (!look.seize()) {
    quarantine->leave_place();
    return false;
  }
  Range::visit(at, bytes, kErase);
  look.store(freed);
  quarantine->take_place(Ticket{at, bytes}.word(), bytes);
  if (__builtin_expect(quarantine->is_visit_due(), 0)) look_at_oldest();
  return true;
}

// Falls back to the general path.
ALLOD_HOT void release_medium(void* block, ShortPlace place, std::size_t claimed_bytes,
                              Origin claimed) noexcept;

ALLOD_INLINE void release_any(void* block, std::size_t claimed_bytes, Origin claimed) noexcept {
  const Address at = address_of(block);
  ShortPlace place;
  if (__builtin_expect(find_short(at, &place), 1)) {
    if (__builtin_expect(Small::has(place.stride), 1)) {
      if (__builtin_expect(release_short<Small>(at, place, claimed_bytes, claimed), 1)) return;
    } else if (Medium::has(place.stride)) {
      return release_medium(block, place, claimed_bytes, claimed);
    }
  }
  release(block, claimed_bytes, claimed);
}

}  // namespace allod::hardened

// The short path of the hardened library, for blocks of up to 1 KiB.
//
// It does what general.cpp does, with fewer checks: the class of a block determines where its
// state is. It checks everything before it changes anything. Anything unexpected goes to the
// general path, which finds it again and reports it.
#pragma once

#include <bit>

#include "allod/heaps/quarantine.hpp"
#include "hardened/short_class.hpp"

namespace allod::hardened {

// A closed one before the thread's first free, and after its last.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local heaps::Quarantine* own_quarantine;

// A block in quarantine: its address and, in the unused upper bits, its size, if it is wholly zero
// and can be looked at without more.
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
  [[nodiscard]] std::size_t bytes() const noexcept { return word_ >> kSizeShift; }

 private:
  // With 32 bits there are no unused bits; the hardened library is not made there.
  static constexpr unsigned kSizeShift = kAddressesAbound ? kAddressBits : 8 * sizeof(Address) - 1;

  Address word_;
};

// To be called when the thread's quarantine says so.
[[gnu::noinline]] ALLOD_HOT void settle() noexcept;

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
  using Measures = Range::Measures;
  if (__builtin_expect(!Range::has_size(size), 0)) return nullptr;
  const ClassIndex c = Range::class_for(size + Measures::canary_bytes());
  const ShortClass& its = kShortClasses[c];
  if (Range::kFirst > 1 && __builtin_expect(its.reciprocal == 0, 0)) return nullptr;
  heap::Magazine& magazine = *opaque(&Process::current().magazines[c]);
  void* const block = magazine.pop();
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
  if (Measures::template have<Mitigation::written>()) {
    std::uint64_t end;
    const auto visit = [](Address from, std::size_t length, auto&& look) noexcept {
      Range::visit(from, length, look);
    };
    if (!is_untouched(at, bytes, before, &end, visit)) {
      // The general path finds it once more.
      if (end != 0) *(reinterpret_cast<std::uint64_t*>(at + bytes) - 1) = end;
      static_cast<void>(magazine.push(block));
      return nullptr;
    }
  }
  if (Measures::template have<Mitigation::canary>()) {
    constexpr auto kBusy = static_cast<Cell>(BlockState::busy().value());
    __atomic_store_n(cell, kBusy, __ATOMIC_RELEASE);
    // Orders `busy` before the writes below, so that a thread which sees them also sees the state
    // change.
    std::atomic_thread_fence(std::memory_order_release);
    canary.write(at, size, bytes);
  }
  const BlockState state = BlockState::live(origin, bytes - size);
  __atomic_store_n(cell, static_cast<Cell>(state.value()), __ATOMIC_RELEASE);
  const void* coming;
  if (magazine.foresee(&coming)) fetch_ends(coming, bytes);
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
  using Measures = Range::Measures;

  Cell* cell;
  Cell state;
  Origin claimed;
  std::size_t bytes;     // of its class
  std::size_t slack;     // of these bytes, unused by the program
  std::uint64_t damage;  // changed bits of its canaries; 0: intact

  [[nodiscard]] ALLOD_INLINE std::size_t requested() const noexcept { return bytes - slack; }
  // Claims the block until its next state is stored. False if another thread was faster.
  [[nodiscard]] ALLOD_INLINE bool seize() const noexcept {
    Cell expected = state;
    // Computed anew, it takes no register until here.
    if (Measures::template have<Mitigation::origin>()) {
      expected = static_cast<Cell>(slab::BlockState::live(claimed, opaque(slack)).value());
    }
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
  using Measures = Range::Measures;
  const ShortClass& its = short_class_at(place.stride);
  if (__builtin_expect(!its.is_start(at), 0)) return false;
  using Cell = Range::Cell;
  using slab::BlockState;
  look->bytes = static_cast<std::size_t>(its.bytes);
  if (look->bytes > Range::kMostBytes) __builtin_unreachable();
  look->cell = cell_of<Cell>(place.slab, its, its.index_of(at));
  look->state = __atomic_load_n(look->cell, __ATOMIC_ACQUIRE);
  // The difference to a live state without slack is the slack, which must have room for the canary.
  const auto least = static_cast<Cell>(Measures::canary_bytes());
  constexpr auto kMost = static_cast<Cell>(Range::kMostSlack);
  auto difference =
      static_cast<Cell>(look->state ^ static_cast<Cell>(BlockState::live(claimed, 0).value()));
  if (!Measures::template have<Mitigation::origin>()) {
    difference &= static_cast<Cell>(~BlockState::kOriginBits);
  }
  const auto slack = std::rotr(difference, BlockState::kSlackShift);
  if (__builtin_expect(static_cast<Cell>(slack - least) > kMost - least, 0)) return false;
  look->slack = slack;
  look->claimed = claimed;
  look->damage = Measures::template have<Mitigation::canary>()
                     ? canary.damage(at, look->requested(), look->bytes)
                     : 0;
  return true;
}

// Whether the end of a block says something in this state.
template <class Measures>
[[nodiscard]] ALLOD_INLINE bool tells_end(bool in_use) noexcept {
  if (in_use) return Measures::template have<Mitigation::canary>();
  return Measures::template have<Mitigation::zero>();
}

// What a look at both neighbours finds: the end of the one before, and the start of the one behind,
// up to where a slab may have its guard. 0: both are intact, or in use.
template <class Range>
[[nodiscard]] ALLOD_INLINE std::uint64_t damage_around(Address at,
                                                       const ShortLook<Range>& look) noexcept {
  using Measures = Range::Measures;
  using slab::BlockState;
  if (!Measures::template have<Mitigation::neighbours>()) return 0;
  constexpr std::size_t kGuard = kSliceBytes - ShortClass::kPageBytes;
  std::uint64_t wrong = 0;
  if (__builtin_expect(at % kSliceBytes != 0, 1)) {
    const auto before = __atomic_load_n(look.cell - 1, __ATOMIC_ACQUIRE);
    const bool in_use = BlockState{before}.is_live();
    if (tells_end<Measures>(in_use)) {
      wrong = canary.damage_of_end(at - look.bytes, look.bytes, in_use);
    }
  }
  if (__builtin_expect(at % kSliceBytes + look.bytes < kGuard, 1) &&
      Measures::template have<Mitigation::zero>()) {
    const auto behind = __atomic_load_n(look.cell + 1, __ATOMIC_ACQUIRE);
    wrong |= Canary::damage_of_start(at, look.bytes, BlockState{behind}.is_live());
  }
  return wrong;
}
template <class Range>
[[nodiscard]] ALLOD_INLINE std::uint64_t damage_behind(Address at,
                                                       const ShortLook<Range>& look) noexcept {
  using Measures = Range::Measures;
  if (!Measures::template have<Mitigation::canary>()) return 0;
  if (!Measures::template have<Mitigation::zero>()) return look.damage;
  return look.damage | Range::damage_between(at, look.requested(), look.bytes);
}

// Ends the use of a block that is as it must be. False if another thread was faster.
template <class Range>
[[nodiscard]] ALLOD_INLINE bool end_use(Address at, const ShortLook<Range>& look) noexcept {
  if (!look.seize()) return false;
  if (Range::Measures::template have<Mitigation::zero>()) Range::visit(at, look.bytes, kErase);
  look.store(slab::BlockState::freed(opaque(look.slack)));
  return true;
}
// False, and nothing changed, if the general path is needed.
template <class Range>
[[nodiscard]] ALLOD_INLINE bool release_short(Address at, ShortPlace place,
                                              std::size_t claimed_bytes, Origin claimed) noexcept {
  ShortLook<Range> look;
  if (!look_at<Range>(at, place, claimed, &look)) return false;
  if (claimed_bytes != heap::kUnknownBytes && claimed_bytes != look.requested()) return false;
  const std::uint64_t wrong = damage_behind(at, look) | damage_around(at, look);
  if (__builtin_expect(wrong != 0, 0)) return false;
  if (!Range::Measures::template have<Mitigation::quarantine>()) {
    if (!end_use(at, look)) return false;
    Process::release(reinterpret_cast<void*>(at));
    return true;
  }
  heaps::Quarantine* const quarantine = own_quarantine;
  if (__builtin_expect(!quarantine->keep_place(look.bytes), 0)) return false;
  if (!end_use(at, look)) {
    quarantine->leave_place(look.bytes);
    return false;
  }
  if (quarantine->take_place(Ticket{at, look.bytes}.word())) settle();
  return true;
}

// The functions for a set of measures: null or false if the general path is needed. The first set
// has all, and its functions are for larger blocks only. An index chooses among them, so that no
// pointer to a function can be overwritten.
struct Way {
  void* (*allocate)(std::size_t size, Origin origin) noexcept;
  bool (*release)(Address at, ShortPlace place, std::size_t claimed_bytes, Origin claimed) noexcept;
};
inline constexpr std::size_t kWayCount = 4;
extern const Way kWays[kWayCount];
extern constinit std::uint8_t chosen_way;
[[nodiscard]] ALLOD_INLINE const Way& way() noexcept { return kWays[chosen_way % kWayCount]; }

[[nodiscard, gnu::noinline]] ALLOD_HOT void* allocate_general(std::size_t size,
                                                              Origin origin) noexcept;
// For what the short path of all measures does not take. Null if memory is exhausted.
[[nodiscard]] ALLOD_INLINE void* allocate(std::size_t size, Origin origin) noexcept {
  void* const block = way().allocate(size, origin);
  return __builtin_expect(block != nullptr, 1) ? block : allocate_general(size, origin);
}

ALLOD_INLINE void release_any(void* block, std::size_t claimed_bytes, Origin claimed) noexcept {
  const Address at = address_of(block);
  ShortPlace place;
  if (__builtin_expect(!find_short(at, &place), 0)) return release(block, claimed_bytes, claimed);
  const bool is_done = __builtin_expect(Small::has(place.stride), 1)
                           ? release_short<Small>(at, place, claimed_bytes, claimed)
                           : way().release(at, place, claimed_bytes, claimed);
  if (__builtin_expect(!is_done, 0)) release(block, claimed_bytes, claimed);
}

}  // namespace allod::hardened

// The short way for small blocks of the hardened library.
//
// What src/hardened.cpp does to a block with many questions is done to most of them here with few:
// where a block's state lies follows from its class, and the measures that have to do with it are
// on. Everything is looked at before anything is changed. Whatever is not as it should be is left
// to the general way, which finds it again and reports it.
#pragma once

#include <array>
#include <bit>

#include "allod/heap/quarantine.hpp"
#include "canary.hpp"
#include "hardened.hpp"

namespace allod::hardened {

extern constinit Canary canary;
// How many sizes, from 1 on, go this way, and how many strides of classes in tags, from the first
// class on. None before the process has started, and when a measure that belongs to it is off.
extern constinit std::size_t short_sizes;
extern constinit std::uint32_t short_strides;
// Null before the thread's first free.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local heap::Quarantine* own_quarantine;

// What stands for a block in quarantine: its address and, in the bits that no address has, the
// number of its bytes, if all of them are zero and it is looked at no further; or kShut for a
// large one that has to be opened.
class Ticket {
 public:
  static constexpr std::size_t kShut = 1;

  ALLOD_INLINE Ticket(Address block, std::size_t bytes) noexcept
      : word_{block | bytes << kAddressBits} {}
  explicit Ticket(void* ticket) noexcept : word_{address_of(ticket)} {}

  [[nodiscard]] void* word() const noexcept { return reinterpret_cast<void*>(word_); }
  [[nodiscard]] void* address() const noexcept {
    return reinterpret_cast<void*>(word_ & ((Address{1} << kAddressBits) - 1));
  }
  [[nodiscard]] bool is_shut() const noexcept { return bytes() == kShut; }
  [[nodiscard]] bool is_simple() const noexcept { return bytes() > kShut; }
  // Of one that is simple.
  [[nodiscard]] std::size_t bytes() const noexcept { return word_ >> kAddressBits; }

 private:
  Address word_;
};

// Small blocks are multiples of 16 bytes, up to 128: eight stores, or loads, that may overlap.
static_assert(slab::BlockStates::kLargestNarrow == 128);
struct Pair {
  std::uint64_t words[2];
};
template <class Visit>
ALLOD_INLINE void visit_small(Address from, std::size_t bytes, Visit&& visit) noexcept {
  const Address last = from + bytes - sizeof(Pair);
  visit(from);
  visit(last);
  if (bytes <= 32) return;
  visit(from + 16);
  visit(last - 16);
  if (bytes <= 64) return;
  visit(from + 32);
  visit(from + 48);
  visit(last - 32);
  visit(last - 48);
}
ALLOD_INLINE void zero_small(Address from, std::size_t bytes) noexcept {
  visit_small(from, bytes, [](Address at) noexcept {
    __builtin_memset(reinterpret_cast<void*>(at), 0, sizeof(Pair));
  });
}

// What the way of a block needs to know of its class: no line of the slab's descriptor is read for
// it.
struct SmallClass {
  std::uint64_t reciprocal;  // of bytes, times 2^kShift
  std::uint64_t bytes;       // of a block
  std::uint64_t states;      // where they begin in the slab's descriptor

  using Sizes = Process::Sizes;
  static constexpr unsigned kShift = 32;
  static constexpr std::size_t kMostBytes = slab::BlockStates::kLargestNarrow;
  static constexpr ClassIndex kLargest = Sizes::of(kMostBytes);

  [[nodiscard]] static constexpr SmallClass make(ClassIndex c) noexcept {
    const sizes::SlabShape& whole = Sizes::shape_of(c);
    const std::uint64_t bytes = whole.block_bytes;
    return {((std::uint64_t{1} << kShift) + bytes - 1) / bytes, bytes,
            slab::BlockStates::offset_for(whole)};
  }
  [[nodiscard]] static constexpr ALLOD_INLINE std::size_t bytes_of(ClassIndex c) noexcept {
    return c * std::size_t{16};
  }
  // The number of the block around an address, in a slab of one slice.
  [[nodiscard]] constexpr ALLOD_INLINE std::uint64_t index_of(Address at) const noexcept {
    return at % kSliceBytes * reciprocal >> kShift;
  }
  // Does that block begin there? What is left of the quotient tells, after D. Lemire, O. Kaser and
  // N. Kurz, "Faster remainder by direct computation" (2019).
  [[nodiscard]] constexpr ALLOD_INLINE bool is_start(Address at) const noexcept {
    constexpr std::uint64_t kRest = (std::uint64_t{1} << kShift) - 1;
    return (at % kSliceBytes * reciprocal & kRest) < reciprocal;
  }
  [[nodiscard]] ALLOD_INLINE std::uint8_t* states_in(space::Span* slab) const noexcept {
    return reinterpret_cast<std::uint8_t*>(slab) + states;
  }
};
inline constexpr auto kSmallClasses = [] {
  std::array<SmallClass, SmallClass::kLargest + 1> classes{};
  for (ClassIndex c = 1; c < classes.size(); ++c) classes[c] = SmallClass::make(c);
  return classes;
}();
static_assert([] {
  for (ClassIndex c = 1; c < kSmallClasses.size(); ++c) {
    const SmallClass& its = kSmallClasses[c];
    if (SmallClass::Sizes::shape_of(c).slices != 1 || its.bytes != SmallClass::bytes_of(c)) {
      return false;
    }
    // Within a block the quotient, with its rest, only grows.
    for (Address at = 0; at + its.bytes <= kSliceBytes; at += its.bytes) {
      const Address last = at + its.bytes - 1;
      if (its.index_of(at) != at / its.bytes || its.index_of(last) != at / its.bytes) return false;
      if (!its.is_start(at) || its.is_start(at + 1) || its.is_start(last)) return false;
    }
  }
  return true;
}());
// By the stride of the class in a tag.
[[nodiscard]] ALLOD_INLINE const SmallClass& small_class_at(std::uint32_t stride) noexcept {
  static_assert(sizeof(SmallClass) == space::kClassStride);
  const auto* const first = reinterpret_cast<const unsigned char*>(kSmallClasses.data());
  return *reinterpret_cast<const SmallClass*>(first + stride);
}

// Null when there is none at hand, or it has to go the general way.
[[nodiscard]] ALLOD_INLINE void* allocate_small(std::size_t size, Origin origin) noexcept {
  if (__builtin_expect(size - 1 >= short_sizes, 0)) return nullptr;
  const auto c = static_cast<ClassIndex>((size + Canary::kBytes + 15) / 16);
  void* const block = Process::current().pop(c);
  if (__builtin_expect(block == nullptr, 0)) return nullptr;
  const Address at = address_of(block);
  const SmallClass& its = kSmallClasses[c];
  space::Span* const slab = Process::heap().space().map().span_in(at >> kSliceShift);
  std::uint8_t* const cell = its.states_in(slab) + its.index_of(at);
  const std::size_t bytes = SmallClass::bytes_of(c);
  using slab::BlockState;
  always_check(!BlockState{__atomic_load_n(cell, __ATOMIC_RELAXED)}.is_live(),
               "a block is handed out that is in use");
  constexpr auto kBusy = static_cast<std::uint8_t>(BlockState::busy().value());
  __atomic_store_n(cell, kBusy, __ATOMIC_RELEASE);
  // Nobody is to take what follows for a change in the state before.
  std::atomic_thread_fence(std::memory_order_release);
  if (bytes > SmallClass::kMostBytes) __builtin_unreachable();
  canary.write(at, size, bytes);
  const BlockState state = BlockState::live(origin, bytes - size);
  __atomic_store_n(cell, static_cast<std::uint8_t>(state.value()), __ATOMIC_RELEASE);
  return block;
}

// False, and nothing has changed, when it has to go the general way.
[[nodiscard]] ALLOD_INLINE bool release_small(void* block, std::size_t claimed_bytes,
                                              Origin claimed) noexcept {
  const Address at = address_of(block);
  space::Tag tag;
  space::Span* slab;
  if (__builtin_expect(!Process::heap().space().map().fast_find(at, &tag, &slab), 0)) return false;
  // Not of a heap: the bit that heaps' tags have would make it too large.
  constexpr space::Tag kHeaps = space::make_tag(space::kFirstHeapOwner, 0);
  constexpr space::Tag kStrides = space::make_tag(1, 0) - 1;
  const std::uint32_t stride = tag & (kHeaps | kStrides);
  if (__builtin_expect(stride - space::kClassStride >= short_strides, 0)) return false;
  const SmallClass& its = small_class_at(stride);
  if (__builtin_expect(!its.is_start(at), 0)) return false;
  const std::size_t bytes = its.bytes;
  const std::uint64_t index = its.index_of(at);
  std::uint8_t* const cell = its.states_in(slab) + index;
  std::uint8_t state = __atomic_load_n(cell, __ATOMIC_ACQUIRE);
  // In use, from the function that belongs to this one, with a canary: what differs from such a
  // state of a block that has no slack is the slack.
  using slab::BlockState;
  constexpr auto kLeast = static_cast<std::uint8_t>(Canary::kBytes);
  constexpr auto kMost = static_cast<std::uint8_t>(slab::BlockStateCell::kMostNarrowSlack);
  const auto full = static_cast<std::uint8_t>(BlockState::live(claimed, 0).value());
  const auto slack = std::rotr(static_cast<std::uint8_t>(state ^ full), BlockState::kSlackShift);
  if (__builtin_expect(static_cast<std::uint8_t>(slack - kLeast) > kMost - kLeast, 0)) return false;
  const std::size_t requested = bytes - slack;
  if (claimed_bytes != heap::kUnknownBytes && claimed_bytes != requested) return false;
  std::uint64_t wrong = canary.damage(at, requested, bytes);
  if (__builtin_expect(index != 0, 1)) {
    const std::uint8_t before = __atomic_load_n(cell - 1, __ATOMIC_ACQUIRE);
    wrong |= canary.damage_of_end(at - bytes, bytes, BlockState{before}.is_live());
  }
  if (__builtin_expect(wrong != 0, 0)) return false;
  heap::Quarantine* const quarantine = own_quarantine;
  if (__builtin_expect(quarantine == nullptr || !quarantine->has_room(bytes), 0)) return false;
  constexpr auto kBusy = static_cast<std::uint8_t>(BlockState::busy().value());
  const auto freed = static_cast<std::uint8_t>(BlockState::freed(slack).value());
  // Of two threads that free it at the same instant, one is late.
  if (__builtin_expect(!__atomic_compare_exchange_n(cell, &state, kBusy, false, __ATOMIC_ACQ_REL,
                                                    __ATOMIC_RELAXED),
                       0)) {
    return false;
  }
  std::atomic_thread_fence(std::memory_order_release);  // as above
  zero_small(at, bytes);
  __atomic_store_n(cell, freed, __ATOMIC_RELEASE);
  quarantine->add(Ticket{at, bytes}.word(), bytes);
  return true;
}

}  // namespace allod::hardened

// States of blocks, for policies that ask for them: whether the program has the block, how it was
// allocated, and its requested size.
//
// States lie behind the bits of a slab's descriptor, or in the span of a block that is one, out of
// reach of overflows. They change at once for every thread, wherever the block is: in a magazine,
// in a batch, or in an inbox.
#pragma once

#include <type_traits>

#include "allod/slab/slab.hpp"

namespace allod::slab {

// The family of functions that allocated or freed a block.
enum class Origin : std::uint8_t {
  any,     // unknown, or not checked
  c,       // malloc and its relatives, free
  scalar,  // operator new, operator delete
  array,   // operator new[], operator delete[]
};

// The state's value. 0 for a block that was never allocated.
class BlockState {
 public:
  static constexpr int kSlackShift = 3;                 // of the slack in the value
  static constexpr std::uint64_t kOriginBits = 3 << 1;  // of the origin in the value
  static constexpr std::uint64_t kMostShutSlack = std::uint64_t{1} << 28;

  constexpr BlockState() noexcept = default;
  constexpr explicit BlockState(std::uint64_t value) noexcept : value_{value} {}

  // In use, and `slack` bytes smaller than its size class.
  [[nodiscard]] static constexpr BlockState live(Origin origin, std::uint64_t slack) noexcept {
    return BlockState{kLive | static_cast<std::uint64_t>(origin) << 1 | slack << kSlackShift};
  }
  // Allocated once, with that slack, and freed since.
  [[nodiscard]] static constexpr BlockState freed(std::uint64_t slack) noexcept {
    return BlockState{kFreed | slack << kSlackShift};
  }
  // The same with inaccessible pages. It is opened when it is allocated again, or leaves its slab
  // or span.
  [[nodiscard]] static constexpr BlockState closed(std::uint64_t slack) noexcept {
    return BlockState{kFreed | kClosed | slack << kSlackShift};
  }
  // The same by a mapping of its own, for a block in a slab. `slack` is less than kMostShutSlack.
  [[nodiscard]] static constexpr BlockState shut(std::uint64_t slack) noexcept {
    return BlockState{closed(slack).value_ | kShut};
  }
  // Being allocated, resized or freed.
  [[nodiscard]] static constexpr BlockState busy() noexcept { return BlockState{kBusy}; }

  [[nodiscard]] constexpr bool is_live() const noexcept { return (value_ & kLive) != 0; }
  [[nodiscard]] constexpr bool was_freed() const noexcept {
    return (value_ & (kLive | kFreed)) == kFreed;
  }
  [[nodiscard]] constexpr bool is_closed() const noexcept {
    return was_freed() && (value_ & kClosed) != 0;
  }
  [[nodiscard]] constexpr bool is_shut() const noexcept {
    return is_closed() && (value_ & kShut) != 0;
  }
  [[nodiscard]] constexpr Origin origin() const noexcept {
    return static_cast<Origin>(value_ >> 1 & 3);
  }
  [[nodiscard]] ALLOD_HOT constexpr std::uint64_t slack() const noexcept {
    return (is_shut() ? value_ & ~kShut : value_) >> kSlackShift;
  }
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }
  friend constexpr bool operator==(BlockState, BlockState) noexcept = default;

 private:
  static constexpr std::uint64_t kLive = 1;
  static constexpr std::uint64_t kFreed = 2;
  static constexpr std::uint64_t kBusy = 4;
  static constexpr std::uint64_t kClosed = 4;                            // of freed blocks
  static constexpr std::uint64_t kShut = kMostShutSlack << kSlackShift;  // of closed blocks
  std::uint64_t value_ = 0;
};

// The place of one block's state. Those of small blocks have one byte, to bound their memory; their
// slack ends at 31, which means "31 or more".
class BlockStateCell {
  template <class Use>
  ALLOD_INLINE auto on_cell(Use&& use) const noexcept {
    if (__builtin_expect(width_ == Width::narrow, 1)) {
      return use(static_cast<std::uint8_t*>(cell_));
    }
    if (width_ == Width::wide) return use(static_cast<std::uint32_t*>(cell_));
    return use(static_cast<std::uint64_t*>(cell_));
  }

 public:
  enum class Width : std::uint8_t { narrow, wide, huge };
  static constexpr std::uint64_t kMostNarrowSlack = 31;
  static constexpr std::uint64_t kMostWideSlack = (std::uint64_t{1} << 29) - 1;

  BlockStateCell(void* cell, Width width) noexcept : cell_{cell}, width_{width} {}

  // The state of the block before, in a slab.
  [[nodiscard]] ALLOD_INLINE BlockStateCell before() const noexcept {
    return {static_cast<unsigned char*>(cell_) - (width_ == Width::narrow ? 1 : 4), width_};
  }
  [[nodiscard]] std::uint64_t most_slack() const noexcept {
    return width_ == Width::narrow ? kMostNarrowSlack
           : width_ == Width::wide ? kMostWideSlack
                                   : ~std::uint64_t{0} >> 3;
  }
  [[nodiscard]] ALLOD_INLINE BlockState load() const noexcept {
    return on_cell(
        [](auto* cell) noexcept { return BlockState{__atomic_load_n(cell, __ATOMIC_ACQUIRE)}; });
  }
  // 0 if the state's place is outside of the slab's descriptor, which has the same size in each of
  // its lives.
  [[nodiscard]] ALLOD_INLINE BlockState load_within(const Slab& slab) const noexcept {
    void* const cell = opaque(cell_);  // not to be computed again from other values
    const std::size_t offset = address_of(cell) - address_of(&slab);
    const space::Span& record = slab;
    const std::size_t bytes = __atomic_load_n(&record.descriptor_bytes, __ATOMIC_RELAXED);
    return offset < bytes ? BlockStateCell{cell, width_}.load() : BlockState{};
  }
  ALLOD_INLINE void store(BlockState state) const noexcept {
    on_cell([&](auto* cell) noexcept {
      using Value = std::remove_reference_t<decltype(*cell)>;
      __atomic_store_n(cell, static_cast<Value>(state.value()), __ATOMIC_RELEASE);
    });
  }
  // False if the state is no longer `from`.
  [[nodiscard]] ALLOD_INLINE bool replace(BlockState from, BlockState to) const noexcept {
    return on_cell([&](auto* cell) noexcept {
      using Value = std::remove_reference_t<decltype(*cell)>;
      auto expected = static_cast<Value>(from.value());
      return __atomic_compare_exchange_n(cell, &expected, static_cast<Value>(to.value()), false,
                                         __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    });
  }

 private:
  void* cell_;
  Width width_;
};

// The states of a slab.
class BlockStates {
 public:
  static constexpr std::uint32_t kLargestNarrow = 128;

  // The first byte of the states in the descriptor, and the end. `whole` is the class's shape
  // without a guard, so that each class has one place for them.
  [[nodiscard]] static constexpr std::size_t offset_for(const sizes::SlabShape& whole) noexcept {
    return Slab::descriptor_bytes(whole);
  }
  [[nodiscard]] static constexpr std::size_t end_for(const sizes::SlabShape& whole) noexcept {
    return offset_for(whole) + bytes_for(whole);
  }
  // No block has been allocated. The remote bits lie where the descriptor may have held states in
  // its last life.
  static void start(Slab& slab, const sizes::SlabShape& whole) noexcept {
    slab.forget_remote();
    slab.set_behind_bits(offset_for(whole));
    __builtin_memset(slab.behind_bits(), 0, bytes_for(whole));
  }
  [[nodiscard]] static ALLOD_INLINE BlockStateCell of(const Slab& slab,
                                                      std::uint32_t index) noexcept {
    return slab.block_bytes() <= kLargestNarrow ? narrow_of(slab, index) : wide_of(slab, index);
  }
  // The same for a known size of blocks.
  [[nodiscard]] static ALLOD_INLINE BlockStateCell narrow_of(const Slab& slab,
                                                             std::uint32_t index) noexcept {
    return {slab.behind_bits() + index, BlockStateCell::Width::narrow};
  }
  [[nodiscard]] static ALLOD_INLINE BlockStateCell wide_of(const Slab& slab,
                                                           std::uint32_t index) noexcept {
    return {slab.behind_bits() + std::size_t{index} * 4, BlockStateCell::Width::wide};
  }
  [[nodiscard]] static BlockStateCell of(space::Span& span) noexcept {
    return {&span.block_state, BlockStateCell::Width::huge};
  }
  // The state itself. Another thread may be freeing the slab, whose descriptor is then
  // inconsistent.
  [[nodiscard]] static ALLOD_INLINE BlockState look_at(const Slab& slab,
                                                       std::uint32_t index) noexcept {
    return of(slab, index).load_within(slab);
  }

 private:
  // One more than blocks: the tail behind the last one has a number, too, and a state that says
  // unused.
  [[nodiscard]] static constexpr std::size_t bytes_for(const sizes::SlabShape& whole) noexcept {
    return (std::size_t{whole.capacity} + 1) * (whole.block_bytes <= kLargestNarrow ? 1 : 4);
  }
};

}  // namespace allod::slab

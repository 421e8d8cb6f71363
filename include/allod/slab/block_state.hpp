// What a policy that asks for it knows of every block: whether the program has it, how it came to
// it, and how many bytes it asked for.
//
// States lie behind the bits of a slab's descriptor, or in the span of a block that is one, and so
// out of reach of a program that writes beyond a block. They change at once and for every thread,
// wherever the block itself may lie: in a magazine, in a batch, on its way home.
#pragma once

#include <type_traits>

#include "allod/slab/slab.hpp"

namespace allod::slab {

// By which family of functions a block was allocated or freed.
enum class Origin : std::uint8_t {
  any,     // unknown, or of no importance
  c,       // malloc and its relatives, free
  scalar,  // operator new, operator delete
  array,   // operator new[], operator delete[]
};

// A value; that of a block that was never handed out is 0.
class BlockState {
 public:
  static constexpr int kSlackShift = 3;  // of the slack in the value
  static constexpr std::uint64_t kMostShutSlack = std::uint64_t{1} << 28;

  constexpr BlockState() noexcept = default;
  constexpr explicit BlockState(std::uint64_t value) noexcept : value_{value} {}

  // In use, and `slack` bytes smaller than its size class.
  [[nodiscard]] static constexpr BlockState live(Origin origin, std::uint64_t slack) noexcept {
    return BlockState{kLive | static_cast<std::uint64_t>(origin) << 1 | slack << kSlackShift};
  }
  // Handed out once, with that slack, and freed since.
  [[nodiscard]] static constexpr BlockState freed(std::uint64_t slack) noexcept {
    return BlockState{kFreed | slack << kSlackShift};
  }
  // The same, and its pages cannot be touched until it is opened: when it is handed out again, or
  // leaves its slab or span.
  [[nodiscard]] static constexpr BlockState closed(std::uint64_t slack) noexcept {
    return BlockState{kFreed | kClosed | slack << kSlackShift};
  }
  // The same by a mapping of its own; of a block in a slab. `slack` is less than kMostShutSlack.
  [[nodiscard]] static constexpr BlockState shut(std::uint64_t slack) noexcept {
    return BlockState{closed(slack).value_ | kShut};
  }
  // Being handed out, resized or freed.
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
  static constexpr std::uint64_t kClosed = 4;                            // of what was freed
  static constexpr std::uint64_t kShut = kMostShutSlack << kSlackShift;  // of what is closed
  std::uint64_t value_ = 0;
};

// The place of one block's state. Small blocks have one byte, or the states of many would need
// much memory; the slack of those ends at 31, which then means "31 or more".
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

  // That of the block before, in a slab.
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
  // States of a slab lie in its descriptor, which is as large in each of its lives: at a place
  // elsewhere, there is none.
  [[nodiscard]] ALLOD_INLINE BlockState load_within(const Slab& slab) const noexcept {
    void* const cell = opaque(cell_);  // so that it is not computed again, from other numbers
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
  // False when it is not `from` any more.
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

  // Where they begin, in bytes from the descriptor's start on, and where they end. `whole` is the
  // shape of the class, without a guard, so that each class has one place for them.
  [[nodiscard]] static constexpr std::size_t offset_for(const sizes::SlabShape& whole) noexcept {
    return Slab::descriptor_bytes(whole);
  }
  [[nodiscard]] static constexpr std::size_t end_for(const sizes::SlabShape& whole) noexcept {
    return offset_for(whole) + bytes_for(whole);
  }
  // No block was handed out. Where the bits of other threads are now, the descriptor may have
  // held states in its last life.
  static void start(Slab& slab, const sizes::SlabShape& whole) noexcept {
    slab.forget_remote();
    slab.set_behind_bits(offset_for(whole));
    __builtin_memset(slab.behind_bits(), 0, bytes_for(whole));
  }
  [[nodiscard]] static ALLOD_INLINE BlockStateCell of(const Slab& slab,
                                                      std::uint32_t index) noexcept {
    return slab.block_bytes() <= kLargestNarrow ? narrow_of(slab, index) : wide_of(slab, index);
  }
  // The same where the size of the blocks is known.
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
  // The state itself, for who only asks: another thread may be freeing the slab, whose descriptor
  // then is on its way into its next life, so that what it says of itself does not fit together.
  [[nodiscard]] static ALLOD_INLINE BlockState look_at(const Slab& slab,
                                                       std::uint32_t index) noexcept {
    return of(slab, index).load_within(slab);
  }

 private:
  // One more than there are blocks: what is left behind the last one has a number, too, and a state
  // that says that nobody has it.
  [[nodiscard]] static constexpr std::size_t bytes_for(const sizes::SlabShape& whole) noexcept {
    return (std::size_t{whole.capacity} + 1) * (whole.block_bytes <= kLargestNarrow ? 1 : 4);
  }
};

}  // namespace allod::slab

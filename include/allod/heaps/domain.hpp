// A first-class heap: an owner of slabs that is bound to no thread.
#pragma once

#include "allod/heap/domain.hpp"
#include "allod/heaps/hardening.hpp"
#include "allod/heaps/turn.hpp"

namespace allod::heaps {

using heap::Bin;
using heap::Bounds;
using heap::for_each_slab;
using heap::Misuse;
using heap::SlowPath;
using slab::Slab;
using space::SpanList;

// Allocations between two collections of remote frees.
inline constexpr std::uint32_t kHeapLookInterval = 64;

// Figures of one first-class heap, in bytes unless stated otherwise. Blocks count with their
// rounded size.
struct HeapFigures {
  std::size_t live = 0;  // in blocks in use
  std::size_t peak_live = 0;
  std::size_t held = 0;  // in slabs and huge blocks
  std::size_t slabs = 0;
  std::size_t huge_blocks = 0;
  std::size_t limit = ~std::size_t{0};  // of `live`
  std::size_t live_blocks = 0;
  std::uint64_t refused = 0;  // requests refused by the limit or the system
};

// Threads use it in turn, see heaps/turn.hpp; any thread may use the inbox. Slabs have no
// magazines, so that their bits tell exactly which blocks are in use.
//
// The object outlives the heap and is reused for another one: a late thread may still read its lock
// and its inbox.
template <class Sizes, class Lock>
struct HeapDomain : slab::Owner, HeapTurns<Lock> {
  static constexpr ClassIndex kClasses = Sizes::kCount;
  static constexpr std::size_t kNameBytes = 48;
  // Most heaps use few classes, close to each other: bins are allocated in groups, on demand.
  static constexpr ClassIndex kBinsInGroup = 8;
  static constexpr ClassIndex kGroups = (kClasses + kBinsInGroup - 1) / kBinsInGroup;
  static_assert(kClasses <= space::kHugeClass);
  struct BinGroup {
    Bin bins[kBinsInGroup] = {};
  };

  explicit HeapDomain(std::uint32_t id) noexcept : tag{space::make_tag(id, 0)} {}

  [[nodiscard]] std::uint32_t id() const noexcept { return space::owner_of(tag); }
  [[nodiscard]] ALLOD_INLINE Bin* find_bin(ClassIndex c) const noexcept {
    BinGroup* const group = groups[c / kBinsInGroup];
    return group == nullptr ? nullptr : &group->bins[c % kBinsInGroup];
  }
  template <class Visit>
  void for_each_bin(Visit&& visit) noexcept {
    for (BinGroup* group : groups) {
      if (group == nullptr) continue;
      for (Bin& bin : group->bins) visit(bin);
    }
  }
  ALLOD_INLINE void count_in(std::size_t bytes) noexcept {
    figures.live += bytes;
    ++figures.live_blocks;
    if (figures.live > ceiling) raise_peak();
  }
  void raise_peak() noexcept {
    if (figures.live > figures.peak_live) figures.peak_live = figures.live;
    ceiling = figures.peak_live < figures.limit ? figures.peak_live : figures.limit;
  }
  // Resets the figures and the limit.
  void restart_figures() noexcept {
    figures = {};
    raise_peak();
  }
  void set_limit(std::size_t bytes) noexcept {
    figures.limit = bytes;
    raise_peak();
  }
  void count_out(std::size_t bytes, std::size_t blocks) noexcept {
    figures.live -= bytes;
    figures.live_blocks -= blocks;
  }
  [[nodiscard]] bool has_room_for(std::size_t bytes) const noexcept {
    return bytes <= figures.limit && figures.live <= figures.limit - bytes;
  }
  // False, and no change, if the limit must be checked or the peak raised.
  [[nodiscard]] ALLOD_INLINE bool count_in_below_ceiling(std::size_t bytes) noexcept {
    const std::size_t live = figures.live + bytes;
    if (live > ceiling) return false;
    figures.live = live;
    ++figures.live_blocks;
    return true;
  }

  // Small classes, with more than kWordBits blocks in a slab.
  static constexpr std::size_t kQuickSize = Sizes::kTableMaxSize - 64;
  static constexpr ClassIndex kQuickClasses = Sizes::of(kQuickSize) + 1;
  static_assert(Sizes::shape_of(kQuickClasses - 1).capacity > kWordBits);
  static_assert(Sizes::shape_of(kQuickClasses - 1).slices == 1);
  [[nodiscard]] static ALLOD_INLINE ClassIndex quick_class_of(std::size_t size) noexcept {
    return kQuick.class_of[size];
  }
  [[nodiscard]] static ALLOD_INLINE std::size_t quick_bytes_of(ClassIndex c) noexcept {
    return kQuick.bytes_of[c];
  }
  // By small class: a freed block, the next to be handed out; or null. In its slab it counts as
  // used. Questions about blocks in use check this one, or put it back first.
  void* newest[kQuickClasses] = {};
  // By small class: a slab of its bin with or once with free blocks, to allocate from; or null. It
  // keeps its place in the bin, even when it becomes empty or full.
  Slab* at_hand[kQuickClasses] = {};

  const space::Tag tag;
  bool active = false;
  bool was_deleted = false;  // while inactive: its blocks were left in use
  bool reports_leaks = false;
  // A tool's heap, not in the program's statistics.
  bool unseen = false;
  std::uint32_t operations = 0;
  HeapFigures figures;
  std::size_t ceiling = 0;  // of figures.live: its peak, or the limit if that is less
  BinGroup* groups[kGroups] = {};
  SpanList huge;
  // Null if the heap is not hardened.
  Hardening* hardening = nullptr;
  // Null: the regions of the space.
  space::PageSource* source = nullptr;
  SpanList mixed;                // slabs with blocks of all sizes, in a buffer
  std::size_t largest_slab = 0;  // of one class, in a buffer; bytes
  char name[kNameBytes] = {};
  // Called at the limit, for the interface that offers the heap to programs.
  void (*on_limit)() = nullptr;
  void* on_limit_context = nullptr;
  ListLinks<HeapDomain> links;       // in the registry
  ListLinks<HeapDomain> pool_links;  // in the pool

 private:
  struct QuickTable {
    std::uint8_t class_of[kQuickSize + 1];
    std::uint16_t bytes_of[kQuickClasses];
  };
  static constexpr auto kQuick = [] {
    QuickTable table{};
    for (std::size_t size = 0; size <= kQuickSize; ++size) {
      table.class_of[size] = static_cast<std::uint8_t>(Sizes::of(size));
    }
    for (ClassIndex c = 0; c < kQuickClasses; ++c) {
      table.bytes_of[c] = static_cast<std::uint16_t>(Sizes::size_of(c));
    }
    return table;
  }();
};

// The result of a free.
struct HeapRelease {
  bool given = false;
  bool retired = false;  // its slab was freed with it
  bool found = false;    // tell_findings() must be called
};

// The result of a free of a block that is a span.
enum class HugeRelease : std::uint8_t {
  done,
  damaged,  // a write past its end; it stays in use
  gone,     // another thread has freed it meanwhile
};

// A request and its result.
struct HeapRequest {
  std::size_t size = 0;
  std::size_t alignment = 1;      // a power of two
  bool zero = false;              // out: the block is all zeros
  bool slow = false;              // out: no free block was at hand
  bool over_limit = false;        // out: refused by the heap's limit, not by the system
  bool moved = false;             // out: the heap no longer owns the block beside
  bool found = false;             // out: tell_findings() must be called
  const void* doubled = nullptr;  // out: a block that was freed twice
};

}  // namespace allod::heaps

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

// Allocations between two looks at what others have freed.
inline constexpr std::uint32_t kHeapLookInterval = 64;

// Figures of one first-class heap; bytes unless said otherwise. Blocks count as
// rounded.
struct HeapFigures {
  std::size_t live = 0;  // in blocks that the program holds
  std::size_t peak_live = 0;
  std::size_t held = 0;  // in slabs and huge blocks
  std::size_t slabs = 0;
  std::size_t huge_blocks = 0;
  std::size_t limit = ~std::size_t{0};  // of `live`
  std::size_t live_blocks = 0;
  std::uint64_t refused = 0;  // requests that the limit, or the system, did not allow
};

// Threads use it in turn, see heaps/turn.hpp; the inbox is everybody's. Slabs
// have no magazines in front, so that their bits tell exactly what is in use.
//
// The object outlives the heap and becomes another one later: a thread that is
// late may still look at its lock and its inbox.
template <class Sizes, class Lock>
struct HeapDomain : slab::Owner, HeapTurns<Lock> {
  static constexpr ClassIndex kClasses = Sizes::kCount;
  static constexpr std::size_t kNameBytes = 48;
  // Most heaps use few classes, and near ones: bins come in groups, on demand.
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
  // No figures, or a limit.
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
  // False, and nothing is done, when that needs a closer look.
  [[nodiscard]] ALLOD_INLINE bool count_in_below_ceiling(std::size_t bytes) noexcept {
    const std::size_t live = figures.live + bytes;
    if (live > ceiling) return false;
    figures.live = live;
    ++figures.live_blocks;
    return true;
  }

  // Small classes, whose slabs have so many blocks that nobody knows which were handed out.
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
  // Of a small class: a block that was freed, and is the next to be handed out; or null. In its
  // slab it counts as used. So little lies here that whoever asks for what is in use can look,
  // or has it put back first.
  void* newest[kQuickClasses] = {};
  // Of a small class: the slab to take from, one of its bin that has or had free blocks; or null.
  // It stays where it is in the bin, even when it becomes empty or full.
  Slab* at_hand[kQuickClasses] = {};

  const space::Tag tag;
  bool active = false;
  bool was_deleted = false;  // of one that is not active: its blocks were left
  bool reports_leaks = false;
  // Of a tool that watches the process: in no statistics of the program.
  bool unseen = false;
  std::uint32_t operations = 0;
  HeapFigures figures;
  std::size_t ceiling = 0;  // of figures.live: what it was at most, or the limit if that is less
  BinGroup* groups[kGroups] = {};
  SpanList huge;
  // Null: the heap is not hardened.
  Hardening* hardening = nullptr;
  // Null: everybody's regions.
  space::PageSource* source = nullptr;
  SpanList mixed;                // slabs with blocks of all sizes, in a buffer
  std::size_t largest_slab = 0;  // of one class, in a buffer; bytes
  char name[kNameBytes] = {};
  // For whoever offers the heap to programs: what to ask at the limit.
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

// What became of a free.
struct HeapRelease {
  bool given = false;
  bool retired = false;  // a slab with it
  bool found = false;    // something to be told, by tell_findings()
};

// The same of a block that is a span of its own.
enum class HugeRelease : std::uint8_t {
  done,
  damaged,  // it was written past its end, and stays
  gone,     // another thread has freed it meanwhile
};

// A wish, and what became of it.
struct HeapRequest {
  std::size_t size = 0;
  std::size_t alignment = 1;      // a power of two
  bool zero = false;              // out: the block is known to be all zeros
  bool slow = false;              // out: no free block was at hand
  bool over_limit = false;        // out: refused by the heap's limit, not by the system
  bool moved = false;             // out: the block beside belongs to the heap no longer
  bool found = false;             // out: something to be told, by tell_findings()
  const void* doubled = nullptr;  // out: a block that was found to be freed twice
};

}  // namespace allod::heaps

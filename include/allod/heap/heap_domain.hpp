// A first-class heap: an owner of slabs that is bound to no thread.
#pragma once

#include "allod/heap/domain.hpp"
#include "allod/heap/hardening.hpp"
#include "allod/heap/heap_turn.hpp"

namespace allod::heap {

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

// Threads use it in turn, see heap/heap_turn.hpp; the inbox is everybody's. Slabs
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
  void count_in(std::size_t bytes) noexcept {
    figures.live += bytes;
    ++figures.live_blocks;
    if (figures.live > figures.peak_live) figures.peak_live = figures.live;
  }
  void count_out(std::size_t bytes, std::size_t blocks) noexcept {
    figures.live -= bytes;
    figures.live_blocks -= blocks;
  }
  [[nodiscard]] bool has_room_for(std::size_t bytes) const noexcept {
    return bytes <= figures.limit && figures.live <= figures.limit - bytes;
  }

  // Small classes, whose slabs have so many blocks that nobody knows which were handed out.
  static constexpr std::size_t kQuickSize = Sizes::kTableMaxSize - 64;
  static constexpr ClassIndex kQuickClasses = Sizes::of(kQuickSize) + 1;
  static_assert(Sizes::shape_of(kQuickClasses - 1).capacity > kWordBits);
  [[nodiscard]] static ALLOD_INLINE ClassIndex quick_class_of(std::size_t size) noexcept {
    return kClassOfSize[size];
  }
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
  static constexpr auto kClassOfSize = [] {
    std::array<std::uint8_t, kQuickSize + 1> classes{};
    for (std::size_t size = 0; size <= kQuickSize; ++size) {
      classes[size] = static_cast<std::uint8_t>(Sizes::of(size));
    }
    return classes;
  }();
};

// What became of a free.
struct HeapRelease {
  bool given = false;
  bool retired = false;  // a slab with it
  bool found = false;    // something to be told, by tell_findings()
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

}  // namespace allod::heap

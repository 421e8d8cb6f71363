// An owner of slabs: magazines for the fast paths, and lists of slabs.
#pragma once

#include "allod/heap/count.hpp"
#include "allod/heap/magazine.hpp"
#include "allod/slab/block_state.hpp"
#include "allod/slab/mixed.hpp"
#include "allod/space/piece_stock.hpp"

namespace allod::heap {

using slab::Slab;
using space::SpanList;

struct DomainCounters {
  Counter refills;         // magazines filled from slabs
  Counter flushes;         // magazines emptied into slabs
  Counter remote_frees;    // blocks of other domains freed here
  Counter remote_batches;  // atomic operations for these
  Counter collected;       // remote frees collected from the inbox
  Counter slabs_created;
  Counter slabs_retired;
  Counter slabs_adopted;
  Counter magazine_shrinks;
  Counter kept_reused;  // kept huge blocks that were reused
};

// The slabs of one class, and state of its magazine.
struct Bin {
  SpanList partial;  // with free blocks; allocation takes the first
  SpanList full;
  bool ran_dry = false;  // the magazine, since the last look
  // Blocks above a page in consecutive slabs that were found mostly resident. Above the threshold,
  // it counts down the slabs in huge pages until the next look; see filling_for().
  std::uint8_t touched = 0;
  std::uint16_t seen = 0;  // digest of the magazines at the last look
  std::uint32_t slab_count = 0;
};

// Visits each slab of a bin. `visit` may retire the slab or move it within the bin, and may then
// see it twice.
template <class Visit>
void for_each_slab(const Bin& bin, Visit&& visit) {
  for (const SpanList* list : {&bin.full, &bin.partial}) {
    for (space::Span *span = list->first(), *next = nullptr; span != nullptr; span = next) {
      next = SpanList::next(span);
      visit(*slab::as_slab(span));
    }
  }
}

// Remote frees that wait to be marked together, with one atomic operation: blocks of one word of
// one slab.
struct RemoteBatch {
  Address key = 0;  // of a slab and a word; 0: empty
  Word bits = 0;
  Slab* slab = nullptr;
  std::uint32_t bytes = 0;  // of these blocks

  // Unique: slabs begin at slices, and have fewer words than a slice has bytes.
  [[nodiscard]] static ALLOD_INLINE Address key_of(const Slab& slab, std::uint32_t word) noexcept;
  [[nodiscard]] std::uint32_t word() const noexcept { return key % kSliceBytes; }
  // Words of one slab, and of neighbouring slabs, rarely share a place.
  [[nodiscard]] static ALLOD_INLINE std::size_t place_of(Address key, std::uint32_t word) noexcept;
};
inline constexpr std::size_t kRemoteBatches = 256;
// A batch is sent at this size, to bound the memory that it holds back.
inline constexpr std::size_t kBatchBytes = std::size_t{4} << 10;

inline Address RemoteBatch::key_of(const Slab& slab, std::uint32_t word) noexcept {
  return slab.first_block() + word;
}
inline std::size_t RemoteBatch::place_of(Address key, std::uint32_t word) noexcept {
  constexpr std::uint32_t kStep = 37;
  return ((key >> kSliceShift) + std::size_t{word} * kStep) % kRemoteBatches;
}

// Huge blocks kept for the next request; see heap/kept.hpp. Changed in slow paths of the domain.
struct Kept {
  struct Sparse {
    space::Span* span;
    std::size_t present;  // resident bytes
    std::uint32_t since_ms;
  };
  static constexpr std::uint32_t kMostSparse = 16;

  [[nodiscard]] bool is_nothing() const noexcept { return span == nullptr && sparse_count == 0; }

  space::Span* span = nullptr;  // the last block, or null
  std::size_t bytes = 0;        // of the last block
  std::size_t reserved = 0;     // share of the bytes that all domains may keep
  bool rests = false;           // none was kept or reused since the helper's last look
  // Earlier blocks that are mostly not resident, the oldest first.
  std::uint32_t sparse_count = 0;
  std::size_t sparse_bytes = 0;  // their resident bytes
  Sparse sparse[kMostSparse] = {};
};

enum class DomainState : std::uint8_t {
  active,  // bound to a thread
  shared,  // shared by threads; see heap/turn.hpp
  pooled,  // without slabs, ready for the next thread
};

// The owner of a thread's fast paths: none; none, for a thread that may be a guest in the memory of
// another process; a cache over a domain; or a domain.
enum class FrontKind : std::uint8_t { none, guest, cache, domain };

template <class Sizes>
struct Front {
  static constexpr ClassIndex kClasses = Sizes::kCount;
  static_assert(sizeof(Magazine) == space::kClassStride && kClasses <= space::kMaxClasses);

  constexpr Front(space::Tag own, FrontKind what) noexcept : tag{own}, kind{what} {}

  [[nodiscard]] bool has_magazines() const noexcept { return kind >= FrontKind::cache; }
  // Whether the tag is one of the domain's slabs.
  [[nodiscard]] ALLOD_INLINE bool owns(space::Tag other) const noexcept {
    return (tag ^ other) < kApart + sizeof freed;
  }
  // A block for `size`, at most Sizes::kTableMaxSize; null if the magazine is empty.
  [[nodiscard]] ALLOD_INLINE void* pop_small(std::size_t size) noexcept {
    return small_magazine(size).pop();
  }
  // The magazine of pop_small().
  [[nodiscard]] ALLOD_INLINE Magazine& small_magazine(std::size_t size) noexcept {
    return *at(kOffsets[size]);
  }
  // The magazine that allocates blocks with this own tag.
  [[nodiscard]] ALLOD_INLINE Magazine& magazine_of(space::Tag own) noexcept {
    return *at((tag ^ own) & (kApart - 1));
  }
  // Sizes::of by the same table, for sizes up to Sizes::kTableMaxSize.
  [[nodiscard]] static ALLOD_INLINE ClassIndex small_class_of(std::size_t size) noexcept {
    return kOffsets[size] / ClassIndex{sizeof(Magazine)};
  }
  // A block of class `c`; null if the magazine is empty.
  [[nodiscard]] ALLOD_INLINE void* pop(ClassIndex c) noexcept {
    return at(std::size_t{c} * sizeof(Magazine))->pop();
  }
  // Takes a block of an own slab with tag `own`: the difference of the tags is the offset of the
  // magazine. False if that is full.
  [[nodiscard]] ALLOD_INLINE bool push(space::Tag own, void* block) noexcept {
    return at(tag ^ own)->push(block);
  }

  // While allocations are counted, frees go to magazines of their own: an empty magazine has then
  // allocated all blocks that it was filled with. The front's tag differs from its slabs' in one
  // more bit, so that frees find the magazines that many bytes further on. Owner ids are even for
  // this. Any thread may switch at any time: both ways are right for any block.
  void count(bool on) noexcept {
    __atomic_store_n(&tag, (tag & ~kApart) | (on ? kApart : 0), __ATOMIC_RELAXED);
  }
  [[nodiscard]] bool is_counting() const noexcept { return (tag & kApart) != 0; }
  [[nodiscard]] Magazine& magazine_for_frees(ClassIndex c) noexcept {
    return is_counting() ? freed[c] : magazines[c];
  }
  // Before the `count` oldest blocks of `magazine`, one of the two of the class, are given up.
  void note_given_up(const Magazine& magazine, ClassIndex c, std::uint32_t count) noexcept {
    if (__builtin_expect(!is_counting() || counts == nullptr, 1)) return;
    if (&magazine == &freed[c]) {
      counts[c].freed.add(count);
    } else {
      counts[c].filled -= count < counts[c].filled ? count : counts[c].filled;
    }
  }
  // Makes up to `most` freed blocks available, when the magazine is empty.
  void reuse_freed(ClassIndex c, std::uint32_t most) noexcept {
    Magazine& from = freed[c];
    Magazine& to = magazines[c];
    if (counts != nullptr) counts[c].freed.add(from.count());
    if (from.count() <= most) {
      const Magazine empty = to;
      to = from;
      from = empty;
    } else {
      const std::uint32_t moved = most < to.capacity() ? most : to.capacity();
      from.top -= moved;
      std::memcpy(to.bottom, from.top, moved * sizeof(void*));
      to.top = to.bottom + moved;
      if (counts != nullptr) counts[c].freed.add(-std::uint64_t{from.count()});
    }
  }
  // The usual case in few instructions: the counted class has an empty magazine, enough blocks were
  // freed, and all of them come before the next sample. Null otherwise.
  [[nodiscard]] ALLOD_INLINE void* reuse_all(ClassIndex c) noexcept {
    ClassCount& count = counts[c];
    Magazine& from = freed[c];
    Magazine& to = magazines[c];
    if (to.top != to.bottom) return nullptr;
    const std::uint32_t ready = from.count();
    const std::uint64_t filled = count.filled;
    if (ready < count.worth || filled + ready >= count.until) return nullptr;
    count.allocated.add(filled);
    count.until -= filled;
    count.filled = ready;
    count.freed.add(ready);
    void** const newest = from.top - 1;
    const Magazine rest{newest, from.bottom, from.limit};
    from = to;
    to = rest;
    return *newest;
  }
  // The blocks in both magazines.
  [[nodiscard]] std::uint32_t cached(ClassIndex c) const noexcept {
    return magazines[c].count() + freed[c].count();
  }
  // Most likely changes when blocks are taken or freed; see Magazine::digest.
  [[nodiscard]] std::uint16_t digest(ClassIndex c) const noexcept {
    return static_cast<std::uint16_t>(magazines[c].digest() + 3 * freed[c].digest());
  }

  // Of all magazines: changes, most likely, when one of them does. 0 if all are empty.
  [[nodiscard]] std::uint32_t stamp() const noexcept {
    std::uint32_t sum = 0;
    for (ClassIndex c = 0; c < kClasses; ++c) sum = 31 * sum + digest(c);
    return sum;
  }

  // Members that all operations use share a page. Frees are rarely counted.
  Magazine magazines[kClasses] = {};
  space::Tag tag;
  FrontKind kind;
  // By class, the last for huge blocks. Null until allocations are counted.
  ClassCount* counts = nullptr;
  std::uint64_t period = 0;  // of counting, to which `counts` belong

 private:
  static constexpr space::Tag kApart = space::Tag{1} << space::kOwnerShift;
  static constexpr std::size_t kBefore =
      align_up(sizeof magazines + 2 * sizeof(space::Tag) + sizeof(ClassCount*),
               alignof(std::uint64_t)) +
      sizeof(std::uint64_t);
  static_assert(kBefore < kApart);
  unsigned char unused_[kApart - kBefore] = {};

 public:
  Magazine freed[kClasses] = {};  // kApart bytes behind the magazine of the class

 private:
  // By size: the offset of its magazine.
  static constexpr auto kOffsets = [] {
    std::array<std::uint16_t, Sizes::kTableMaxSize + 1> offsets{};
    for (std::size_t size = 0; size < offsets.size(); ++size) {
      offsets[size] = static_cast<std::uint16_t>(sizeof(Magazine) * Sizes::of(size));
    }
    return offsets;
  }();
  // One register for all accesses. Processors forward a store to a load at no cost if both name the
  // same register and constant, but not if they add two registers.
  [[nodiscard]] ALLOD_INLINE Magazine* at(std::size_t offset) noexcept {
    return opaque(reinterpret_cast<Magazine*>(reinterpret_cast<unsigned char*>(this) + offset));
  }
};

// The calling thread's front. A thread without one has an empty front, on which every fast path
// misses. In a slow path of its own domain it has none: a signal handler then behaves like a thread
// without a domain.
template <class Sizes>
struct AtHand {
  using FrontOfSizes = Front<Sizes>;

  // Never written: for threads without a front, and for threads that seem to have ended.
  static inline constinit FrontOfSizes nobody{space::kForeignTag, FrontKind::none};
  static inline constinit FrontOfSizes gone{space::kForeignTag, FrontKind::none};
  // For a thread that may be a guest. Its kind is written at the first guest: until then it is all
  // zeros and takes no room in the library's file.
  static inline constinit FrontOfSizes guest{space::kForeignTag, FrontKind::none};
  ALLOD_THREAD_LOCAL(FrontOfSizes*, now, &nobody);
};

template <class Sizes, class Lock>
struct ThreadCache;

// Used by one thread at a time; members that other threads read are atomic. Constructed in bytes()
// of zeroed memory, with bins and batches behind it. Their pages stay untouched until a large
// class, or a remote free, needs them.
template <class Sizes, class Lock>
struct Domain : Front<Sizes>, slab::Owner {
  using Front<Sizes>::kClasses;
  using Front<Sizes>::magazines;
  using Front<Sizes>::tag;
  using AtHand = heap::AtHand<Sizes>;

  explicit Domain(std::uint32_t id) noexcept
      : Front<Sizes>{space::make_tag(id, 0), FrontKind::domain} {}

  // Even; see Front::count.
  [[nodiscard]] std::uint32_t id() const noexcept { return space::owner_of(tag) & ~1U; }

  template <class Visit>
  void for_each_bin(Visit&& visit) noexcept {
    for (Bin& bin : bins()) visit(bin);
  }

  using RemoteBatches = RemoteBatch[kRemoteBatches];
  struct Behind {
    Bin bins[kClasses];
    RemoteBatches remote;
  };
  [[nodiscard]] static constexpr std::size_t bytes() noexcept {
    return sizeof(Domain) + sizeof(Behind);
  }
  [[nodiscard]] ALLOD_INLINE auto& bins() noexcept { return behind().bins; }
  [[nodiscard]] ALLOD_INLINE RemoteBatches& remote() noexcept { return behind().remote; }
  [[nodiscard]] const RemoteBatches& remote() const noexcept {
    return reinterpret_cast<const Behind*>(this + 1)->remote;
  }

  // What each turn and each slow path writes is one cache line, apart from the inbox, which other
  // threads write.
  alignas(kCacheLine) Lock lock{LockRank::domain};  // of a shared domain: the turn on it
  std::atomic<void*> holder{nullptr};
  // True while its thread is in a slow path; see heap/slow_path.hpp.
  std::atomic<bool> in_slow_path{false};
  std::atomic<DomainState> state{DomainState::active};

  std::uint32_t slow_operations = 0;
  std::uint32_t bursts = 0;
  // Classes of large blocks that may keep a magazine, in order of first use.
  static constexpr std::size_t kLargeClasses = 8;
  std::uint8_t large[kLargeClasses] = {};
  std::uint8_t large_count = 0;
  std::size_t large_bytes = 0;
  std::size_t burst_bytes = 0;  // room in magazines beyond the usual
  space::PieceStock cells;      // for its magazines, and those of its caches
  Kept kept;
  std::uint32_t seen_operations = 0;  // the helper's: slow_operations at its last walk
  // Bytes in slabs that became mostly free, and in remote frees sent, since the last request for a
  // look by the helper.
  std::size_t loosened = 0;
  // Of a shared domain: whether a slow path began since the helper emptied it; turns on it, and
  // their number at the helper's last look. See heap/stocks.hpp.
  bool is_stocked = false;
  std::uint32_t turns = 0;
  std::uint32_t seen_turns = 0;
  DomainCounters counters;
  ListLinks<Domain> links;                                 // in the registry
  ListLinks<Domain> pool_links;                            // in the pool
  std::atomic<ThreadCache<Sizes, Lock>*> caches{nullptr};  // every cache it ever had
  ThreadCache<Sizes, Lock>* free_caches = nullptr;
  std::uint32_t thread = 0;  // system's id of the thread, 0: none
  Node node = 0;             // of the record
  std::uint32_t away = 0;    // slow paths since its thread has been on another node

 private:
  [[nodiscard]] ALLOD_INLINE Behind& behind() noexcept {
    return *reinterpret_cast<Behind*>(this + 1);
  }
};

// Magazines of one thread over a shared domain. They hold blocks of the domain, and exchange them
// with the domain's magazines in a turn. The thread moves the tops of the magazines; all other
// members change in a turn on the domain.
template <class Sizes, class Lock>
struct ThreadCache : Front<Sizes> {
  explicit ThreadCache(Domain<Sizes, Lock>& domain) noexcept
      : Front<Sizes>{domain.tag, FrontKind::cache}, home{domain} {}

  Domain<Sizes, Lock>& home;
  ThreadCache* next = nullptr;  // of the same domain; never changes
  ThreadCache* next_free = nullptr;
  bool is_used = false;
  bool is_processors = false;                   // for its whole life; see Engine::equip_cache
  bool is_due = false;                          // the helper is about to empty it
  std::uint32_t seen_stamp = 0;                 // the helper's: stamp() at its last look
  bool is_at_rest = false;                      // while the process forks, no thread changes it
  std::uint32_t thread = 0;                     // system's id of the thread
  std::uint32_t misses = 0;                     // refills and flushes of its thread
  std::size_t bytes = 0;                        // of the blocks that fit
  Word classes[words_for(Sizes::kCount)] = {};  // classes with cells
};

}  // namespace allod::heap

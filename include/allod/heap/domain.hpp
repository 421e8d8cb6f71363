// An owner of slabs: magazines for the fast paths, lists of slabs behind them.
#pragma once

#include "allod/heap/count.hpp"
#include "allod/heap/magazine.hpp"
#include "allod/slab/block_state.hpp"
#include "allod/slab/mixed.hpp"

namespace allod::heap {

using slab::Slab;
using space::SpanList;

struct DomainCounters {
  Counter refills;         // magazines filled from slabs
  Counter flushes;         // magazines emptied into slabs
  Counter remote_frees;    // blocks of other domains freed here
  Counter remote_batches;  // atomic operations they took
  Counter collected;       // blocks that others freed and that came home
  Counter slabs_created;
  Counter slabs_retired;
  Counter slabs_adopted;
  Counter magazine_shrinks;
  Counter kept_reused;  // huge blocks that were freed here and handed out again at once
};

// The slabs of one class, and what stands behind its magazine.
struct Bin {
  SpanList partial;  // with free blocks; allocation takes from the first
  SpanList full;
  bool ran_dry = false;  // the magazine, since the last look
  // Blocks above a page in slabs that were found touched nearly as a whole, one after the other;
  // with enough of them, and so many more, as many slabs come in huge pages before the next look.
  std::uint8_t touched = 0;
  std::uint16_t seen = 0;  // the digest of its magazines then
  std::uint32_t slab_count = 0;
};

// Calls `visit` for each slab of a bin; it may retire the slab or move it within
// the bin, and then see it twice.
template <class Visit>
void for_each_slab(const Bin& bin, Visit&& visit) {
  for (const SpanList* list : {&bin.full, &bin.partial}) {
    for (space::Span *span = list->first(), *next = nullptr; span != nullptr; span = next) {
      next = SpanList::next(span);
      visit(*slab::as_slab(span));
    }
  }
}

// Frees of other domains' blocks that wait to be marked together: the blocks of
// one word of one slab.
struct RemoteBatch {
  Address key = 0;  // tells words of slabs apart; 0: empty
  Word bits = 0;
  Slab* slab = nullptr;
  std::uint32_t bytes = 0;  // in these blocks

  // Slabs begin at slices, and have fewer words than a slice has bytes.
  [[nodiscard]] static ALLOD_INLINE Address key_of(const Slab& slab, std::uint32_t word) noexcept;
  [[nodiscard]] std::uint32_t word() const noexcept { return key % kSliceBytes; }
  // Words of one slab, and slabs beside each other, seldom compete for a place.
  [[nodiscard]] static ALLOD_INLINE std::size_t place_of(Address key, std::uint32_t word) noexcept;
};
inline constexpr std::size_t kRemoteBatches = 256;
// A batch that waits must not hold back much memory.
inline constexpr std::size_t kBatchBytes = std::size_t{4} << 10;

inline Address RemoteBatch::key_of(const Slab& slab, std::uint32_t word) noexcept {
  return slab.first_block() + word;
}
inline std::size_t RemoteBatch::place_of(Address key, std::uint32_t word) noexcept {
  constexpr std::uint32_t kStep = 37;
  return ((key >> kSliceShift) + std::size_t{word} * kStep) % kRemoteBatches;
}

// See heap/kept.hpp. Changed in slow paths of the domain.
struct Kept {
  struct Sparse {
    space::Span* span;
    std::size_t present;  // bytes of it in memory
    std::uint32_t since_ms;
  };
  static constexpr std::uint32_t kMostSparse = 16;

  [[nodiscard]] bool is_nothing() const noexcept { return span == nullptr && sparse_count == 0; }

  space::Span* span = nullptr;  // or null
  std::size_t bytes = 0;        // in the last one
  std::size_t reserved = 0;     // of the bytes that all domains may keep
  bool rests = false;           // nothing was kept or taken since the helper looked last
  // Those that were freed before, and are in memory in small part only; the oldest first.
  std::uint32_t sparse_count = 0;
  std::size_t sparse_bytes = 0;  // of them in memory
  Sparse sparse[kMostSparse] = {};
};

enum class DomainState : std::uint8_t {
  active,  // bound to a thread
  shared,  // used by any thread in turn; see heap/turn.hpp
  pooled,  // without slabs, ready for the next thread
};

// What a thread's fast paths use: those of nobody, of nobody that may be a guest in the memory of
// another process, of a cache over a domain, or of a domain.
enum class FrontKind : std::uint8_t { none, guest, cache, domain };

template <class Sizes>
struct Front {
  static constexpr ClassIndex kClasses = Sizes::kCount;
  static_assert(sizeof(Magazine) == space::kClassStride && kClasses <= space::kMaxClasses);

  constexpr Front(space::Tag own, FrontKind what) noexcept : tag{own}, kind{what} {}

  [[nodiscard]] bool has_magazines() const noexcept { return kind >= FrontKind::cache; }
  // Does the domain own slabs of this tag?
  [[nodiscard]] ALLOD_INLINE bool owns(space::Tag other) const noexcept {
    return (tag ^ other) < kApart + sizeof freed;
  }
  // A block for `size`, up to Sizes::kTableMaxSize; null when the magazine is
  // empty.
  [[nodiscard]] ALLOD_INLINE void* pop_small(std::size_t size) noexcept {
    return small_magazine(size).pop();
  }
  // Whence that comes.
  [[nodiscard]] ALLOD_INLINE Magazine& small_magazine(std::size_t size) noexcept {
    return *at(kOffsets[size]);
  }
  // Whence blocks with a tag that it owns are handed out.
  [[nodiscard]] ALLOD_INLINE Magazine& magazine_of(space::Tag own) noexcept {
    return *at((tag ^ own) & (kApart - 1));
  }
  // Sizes::of by the same table, for a size up to Sizes::kTableMaxSize.
  [[nodiscard]] static ALLOD_INLINE ClassIndex small_class_of(std::size_t size) noexcept {
    return kOffsets[size] / ClassIndex{sizeof(Magazine)};
  }
  // A block of class `c`; null when the magazine is empty.
  [[nodiscard]] ALLOD_INLINE void* pop(ClassIndex c) noexcept {
    return at(std::size_t{c} * sizeof(Magazine))->pop();
  }
  // Takes a block of an own slab with tag `own`: the difference of the tags is
  // the offset of the magazine. False when that is full.
  [[nodiscard]] ALLOD_INLINE bool push(space::Tag own, void* block) noexcept {
    return at(tag ^ own)->push(block);
  }

  // While allocations are counted, blocks that are freed do not come into the way of those that
  // are handed out: a magazine that runs dry has handed out what it was filled with. The tag of
  // the front then differs from that of its slabs in one bit more, and what is freed comes to
  // magazines that are that much further on. Owners are even numbers for this. Any thread
  // may switch, at any time: both ways are right for any block.
  void count(bool on) noexcept {
    __atomic_store_n(&tag, (tag & ~kApart) | (on ? kApart : 0), __ATOMIC_RELAXED);
  }
  [[nodiscard]] bool is_counting() const noexcept { return (tag & kApart) != 0; }
  // Where a block of class `c` goes that is freed.
  [[nodiscard]] Magazine& magazine_for_frees(ClassIndex c) noexcept {
    return is_counting() ? freed[c] : magazines[c];
  }
  // The `count` oldest blocks of one of the two are going back.
  void note_given_up(const Magazine& magazine, ClassIndex c, std::uint32_t count) noexcept {
    if (__builtin_expect(!is_counting() || counts == nullptr, 1)) return;
    if (&magazine == &freed[c]) {
      counts[c].freed.add(count);
    } else {
      counts[c].filled -= count < counts[c].filled ? count : counts[c].filled;
    }
  }
  // Lets up to `most` of the blocks that were freed be handed out, when all others are gone.
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
  // The same in the usual case, in few instructions: the magazine of a class that is counted is
  // dry, enough was freed since, and all of it comes before the next sample. Null otherwise.
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
  // Blocks at hand.
  [[nodiscard]] std::uint32_t cached(ClassIndex c) const noexcept {
    return magazines[c].count() + freed[c].count();
  }
  // Most likely another one when some of them came or went; see Magazine::digest.
  [[nodiscard]] std::uint16_t digest(ClassIndex c) const noexcept {
    return static_cast<std::uint16_t>(magazines[c].digest() + 3 * freed[c].digest());
  }

  // What all operations look at comes together on one page: frees are seldom counted.
  Magazine magazines[kClasses] = {};
  space::Tag tag;
  FrontKind kind;
  // By class, and one for huge blocks; null until something is counted.
  ClassCount* counts = nullptr;
  std::uint64_t period = 0;  // that they belong to

 private:
  static constexpr space::Tag kApart = space::Tag{1} << space::kOwnerShift;
  static constexpr std::size_t kBefore = sizeof magazines + 3 * sizeof(std::uint64_t);
  static_assert(kBefore < kApart);
  unsigned char unused_[kApart - kBefore] = {};

 public:
  Magazine freed[kClasses] = {};  // kApart bytes after the magazine of the class

 private:
  // By size: the offset of its magazine.
  static constexpr auto kOffsets = [] {
    std::array<std::uint16_t, Sizes::kTableMaxSize + 1> offsets{};
    for (std::size_t size = 0; size < offsets.size(); ++size) {
      offsets[size] = static_cast<std::uint16_t>(sizeof(Magazine) * Sizes::of(size));
    }
    return offsets;
  }();
  // One register for all accesses: processors forward a store to a load at no cost
  // when both name the same register and constant, but not when they add two registers.
  [[nodiscard]] ALLOD_INLINE Magazine* at(std::size_t offset) noexcept {
    return opaque(reinterpret_cast<Magazine*>(reinterpret_cast<unsigned char*>(this) + offset));
  }
};

// What the calling thread has at hand: its own front, or that of nobody, of which every fast path
// misses. In a slow path of its own domain it has none, so that a signal handler that interrupts it
// there does as a thread without a domain does.
template <class Sizes>
struct AtHand {
  using FrontOfSizes = Front<Sizes>;

  // Never written; of threads that have nothing of their own, and of threads that have ended as far
  // as we know.
  static inline constinit FrontOfSizes nobody{space::kForeignTag, FrontKind::none};
  static inline constinit FrontOfSizes gone{space::kForeignTag, FrontKind::none};
  // Of a thread that may be a guest. Its kind is written when there is one first, so that it is all
  // zeros until then, and takes no room in the library's file.
  static inline constinit FrontOfSizes guest{space::kForeignTag, FrontKind::none};
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local FrontOfSizes* now =
      &nobody;
};

template <class Sizes, class Lock>
struct ThreadCache;

// Used by one thread at a time; what other threads may read is atomic. Made in bytes() of memory
// that is zero: bins and batches follow it there. Those of large classes take no memory before they
// are used, and batches none before a block of others is freed.
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

  // True while its thread is inside a slow path; see heap/slow_path.hpp.
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
  Kept kept;
  std::uint32_t seen_operations = 0;  // the helper's: slow_operations when it walked last
  // Bytes of slabs that became mostly free, and of blocks sent home to others, since the helper was
  // asked to look for such.
  std::size_t loosened = 0;
  DomainCounters counters;
  ListLinks<Domain> links;       // in the registry
  ListLinks<Domain> pool_links;  // in the pool
  Lock lock{LockRank::domain};   // of a shared domain: whose turn it is
  std::atomic<void*> holder{nullptr};
  std::atomic<ThreadCache<Sizes, Lock>*> caches{nullptr};  // all that it ever had
  ThreadCache<Sizes, Lock>* free_caches = nullptr;
  std::uint32_t thread = 0;  // system's id of the thread, 0: none

 private:
  [[nodiscard]] ALLOD_INLINE Behind& behind() noexcept {
    return *reinterpret_cast<Behind*>(this + 1);
  }
};

// Magazines of one thread over a shared domain: full of its blocks, filled from and
// emptied into the magazines of the domain in turn. Changed by its thread, and what
// is not a magazine's top only in a turn on the domain.
template <class Sizes, class Lock>
struct ThreadCache : Front<Sizes> {
  explicit ThreadCache(Domain<Sizes, Lock>& domain) noexcept
      : Front<Sizes>{domain.tag, FrontKind::cache}, home{domain} {}

  Domain<Sizes, Lock>& home;
  ThreadCache* next = nullptr;  // of the same domain; never changes
  ThreadCache* next_free = nullptr;
  bool is_used = false;
  bool is_at_rest = false;                      // while the process forks, nobody changes it
  std::uint32_t thread = 0;                     // system's id of the thread
  std::uint32_t misses = 0;                     // refills and flushes of its thread
  std::size_t bytes = 0;                        // of the blocks that there is room for
  Word classes[words_for(Sizes::kCount)] = {};  // those that have cells
};

}  // namespace allod::heap

// Layer 3: address space in slices. Spans are cut from regions, found by best
// fit, merged with their free neighbours, and purged when they stay free.
#pragma once

#include "allod/space/free_spans.hpp"
#include "allod/space/metadata.hpp"
#include "allod/space/page_map.hpp"
#include "allod/space/recent_use.hpp"

namespace allod::space {

// What happened so far and how things stand; bytes unless said otherwise.
struct SpaceCounters {
  std::size_t reserved = 0;  // addresses held in regions
  std::size_t used = 0;      // in used spans
  std::size_t peak_used = 0;
  std::size_t dirty = 0;      // in free spans whose memory is present
  std::size_t clean = 0;      // in free spans without memory
  std::size_t purged = 0;     // given back, ever
  std::uint64_t purges = 0;   // steps of giving back
  std::uint64_t regions = 0;  // held
  std::uint64_t refused = 0;  // requests that the system did not serve
  std::uint64_t span_allocations = 0;
  std::uint64_t span_frees = 0;
};

template <os::Platform P, CheckLevel kChecks>
class Space {
 public:
  using Pool = Metadata<P, kChecks >= CheckLevel::debug>;
  using Lock = typename Pool::Lock;

  constexpr Space() noexcept = default;
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  // Called once, before anything else and by one thread. False when the system
  // gives no addresses at all; every allocation fails then. Dense spans come in
  // huge pages, where the system has them, as long as `huge_from` bytes are used.
  ALLOD_HOT bool start(std::size_t region_bytes, std::size_t huge_from) noexcept {
    platform_.start();
    huge_from_ = huge_from;
    region_slices_ = Slices::covering(region_bytes);
    if (!map_.start(platform_)) return false;
    auto* const apart =
        static_cast<Apart*>(metadata_.allocate(platform_, align_up(sizeof(Apart), kApartAlign)));
    if (apart == nullptr) return false;
    free_.start(&apart->bins);
    spare_ = &apart->spare;
    spare_region_ = &apart->spare_region;
    return true;
  }

  // Zeroed bookkeeping memory; when the system gives no more, free slices serve.
  // Null when there are none either. Thread-safe.
  [[nodiscard]] ALLOD_HOT void* allocate_metadata(std::size_t bytes) noexcept {
    void* piece = metadata_.allocate(platform_, bytes);
    if (piece == nullptr && feed_metadata(bytes)) piece = metadata_.allocate(platform_, bytes);
    return piece;
  }

  // The same for stable metadata: zeros, or what a piece of that size held when it was given back.
  [[nodiscard]] ALLOD_HOT void* allocate_stable(std::size_t bytes) noexcept {
    void* piece = metadata_.allocate_stable(platform_, bytes);
    if (piece == nullptr && feed_metadata(bytes))
      piece = metadata_.allocate_stable(platform_, bytes);
    return piece;
  }

  // A used span of at least `size` whose base is a multiple of `alignment`
  // slices (a power of two). The page map leads to it from every slice; tags are
  // the caller's to set. From `source`, or from everybody's regions for null. Null
  // when there is no more. Thread-safe.
  [[nodiscard]] ALLOD_HOT Span* allocate(Slices size, Slices alignment,
                                         PageSource* source = nullptr) noexcept;
  // The same for a span that is likely to grow: where there is room behind it.
  [[nodiscard]] Span* allocate_growing(Slices size) noexcept;
  // The same, but held by a descriptor of `bytes` that starts with a Span. It is
  // stable metadata: behind the Span, it holds what it held when a span with a
  // descriptor of that size was freed, or zeros.
  [[nodiscard]] ALLOD_HOT Span* allocate_described(Slices size, Filling filling, std::size_t bytes,
                                                   PageSource* source = nullptr) noexcept;

  // Of a span that goes: may whoever gets it next see what is there?
  enum class Contents : bool {
    nobodys,  // yes
    users,    // not where the platform erases
  };
  // Takes the span back; its descriptor is gone afterwards. Nobody has used it for `age_ms`.
  // Thread-safe.
  ALLOD_HOT void free(Span* span, std::uint32_t age_ms = 0,
                      Contents contents = Contents::nobodys) noexcept;

  // Lengthens a used span into its free neighbour. False, and nothing changed,
  // when that is used or too small. The caller sets the tags. Thread-safe.
  [[nodiscard]] ALLOD_HOT bool grow(Span* span, Slices to) noexcept;

  // Cuts a used span down to its first `to` slices. When there is no metadata
  // for the rest it keeps its size. Thread-safe.
  ALLOD_HOT void shrink(Span* span, Slices to) noexcept;

  // Moves or lengthens a used span that is a region of its own, by page tables.
  // False, and nothing changed, when it shares a region or the system refuses.
  // The caller sets the tags. Thread-safe.
  [[nodiscard]] bool remap(Span* span, Slices to) noexcept;

  // From now on every access from `from` on, the start of a page, to the end of a used span is a
  // fault, as far as the system can do that and the memory is the system's. The caller neither
  // lengthens nor cuts the span until unguard(), which free() calls as well: false, and it is as
  // it was, when the system refuses. See space_guard.hpp.
  ALLOD_HOT void guard(Span& span, Address from) noexcept;
  // The same where that is guarded from another page on. False, and it stays as it is, when the
  // system does not open the pages before `from`.
  [[nodiscard]] bool move_guard(Span& span, Address from) noexcept;
  // Whoever has the span has closed parts of it, by the platform's own means, and may leave them
  // closed: unguard() opens all of it. Thread-safe.
  static void note_closed(Span& span) noexcept;
  // Whole pages of a used span become mappings of their own that cannot be touched and keep what is
  // in them, until reopen() or unguard(). False, and nothing has changed, when the system refuses,
  // has refused to reopen any, or so many spans have such pages that the program may lack mappings.
  // Thread-safe.
  [[nodiscard]] bool shut(Span& span, Address from, std::size_t bytes) noexcept;
  // False, and they stay so, when the system refuses.
  [[nodiscard]] bool reopen(Address from, std::size_t bytes) noexcept;
  static constexpr std::uint32_t kMostShut = 2048;
  [[nodiscard]] ALLOD_HOT bool unguard(Span& span) noexcept;
  // How large a guard behind a slab has to be; 0: there is to be none. `wished`: by a heap that is
  // hardened itself.
  [[nodiscard]] ALLOD_HOT std::size_t guard_bytes(Filling filling, const PageSource* source,
                                                  bool wished) noexcept;

  // --- memory of one heap alone; see space_source.hpp ---------------------------

  // A source as wished for. Null, and `*error` an error number, when the system does not
  // give what is wished for, or the buffer is not one. Thread-safe.
  [[nodiscard]] PageSource* open_source(const PageWishes& wishes, int* error) noexcept;
  // The slices that a buffer shares with others, as used spans with a descriptor of `bytes`,
  // as allocate_described() gives them: calls take(span, from, to) with the addresses that
  // are the buffer's. Once, after open_source(). False when there is no metadata.
  template <class Take>
  [[nodiscard]] bool take_ends(PageSource& source, std::size_t bytes, Take&& take) noexcept;
  // Gives back all regions of a source, whose spans are all free. A buffer is as if it
  // had never been ours.
  void close_source(PageSource* source) noexcept;

  // Gives back the memory of spans that have been free for `delay_ms`, and of
  // the oldest but the one freed last while more than `budget` bytes are dirty;
  // at most about `limit` bytes, as huge pages go as a whole.
  // Returns how much. Thread-safe; the memory goes without the lock held.
  ALLOD_HOT std::size_t purge(std::uint32_t delay_ms, std::size_t budget,
                              std::size_t limit) noexcept;

  // The same for the sources that have delays of their own; `now`: whatever those say.
  std::size_t purge_delayed(std::size_t limit, bool now) noexcept;
  // Both at once, for as many bytes as are free when it begins: it comes to an end, however much
  // others free meanwhile. Thread-safe.
  std::size_t purge_free() noexcept {
    const std::size_t delayed = delayed_bytes();
    return purge(0, 0, dirty_bytes()) + purge_delayed(delayed, true);
  }

  // Of spans that were handed out and had never been touched, since the start. Thread-safe.
  [[nodiscard]] std::size_t fresh_bytes() const noexcept {
    return fresh_bytes_.load(std::memory_order_relaxed);
  }
  // Gives back the memory of pieces, whole pages within used spans of one region that nobody
  // touches meanwhile. False when the system does not take them all, or what is there then would
  // not read as zero. Thread-safe.
  ALLOD_HOT bool purge_within(Region& region, const os::Piece* pieces, std::size_t count) noexcept;
  // The used part of the lowest region that does not end before `at`, from there on; empty when
  // there is none. Thread-safe.
  struct Range {
    Address from = 0;
    Address to = 0;
  };
  [[nodiscard]] ALLOD_HOT Range range_from(Address at) noexcept;

  // See PageMap::narrow.
  template <class Mappings>
  void narrow_map(std::size_t limit, bool is_alone, Mappings&& each_mapping) noexcept {
    LockGuard guard{lock_};
    const auto each_region = [&](auto&& keep) noexcept {
      for_each_region([&](const Region& region) noexcept {
        keep(region.base, region.base + region.size.bytes());
      });
    };
    map_.narrow(platform_, limit, is_alone, each_region, each_mapping);
  }

  // Milliseconds until the oldest free span has been free for `delay_ms`; the
  // largest value when nothing is dirty. Thread-safe.
  [[nodiscard]] std::uint32_t next_purge_in(std::uint32_t delay_ms) noexcept {
    LockGuard guard{lock_};
    return free_.next_due_in(now_ms(), delay_ms);
  }
  // The same for the source with a delay of its own that comes next.
  [[nodiscard]] std::uint32_t next_delayed_in() noexcept {
    LockGuard guard{lock_};
    return free_.next_delayed_in(now_ms());
  }
  // The system did not take memory back when it was asked last.
  [[nodiscard]] bool refuses_purge() const noexcept {
    return refuses_purge_.load(std::memory_order_relaxed);
  }
  // Is so much in use that dense spans get huge pages? Thread-safe.
  [[nodiscard]] bool is_large_enough_for_huge_pages() noexcept {
    LockGuard guard{lock_};
    return counters_.used >= huge_from_;
  }
  // Bytes in free spans whose memory is present. Thread-safe, approximate.
  [[nodiscard]] std::size_t dirty_bytes() const noexcept { return free_.dirty_bytes(); }

  // How many of them are above `budget`. What was freed last is the next to be used, however large
  // it is, and comes on top of the budget. (That piece alone: it may have been merged with
  // everything that was freed before.) Thread-safe, approximate.
  [[nodiscard]] std::size_t dirty_bytes_above(std::size_t budget) const noexcept {
    return free_.dirty_bytes_above(budget);
  }

  // How much less is used now than lately, in spans that programs mostly write as a whole.
  // Thread-safe, approximate.
  [[nodiscard]] std::size_t below_peak() const noexcept { return recent_.below_peak(); }
  // From now on, lately is since the call before. Thread-safe.
  void forget_peak() noexcept {
    LockGuard guard{lock_};
    recent_.forget_peak();
  }

  // The same in sources that have delays of their own, which dirty_bytes() leaves out.
  [[nodiscard]] std::size_t delayed_bytes() const noexcept { return free_.delayed_bytes(); }

  [[nodiscard]] SpaceCounters counters() noexcept {
    LockGuard guard{lock_};
    SpaceCounters copy = counters_;
    copy.dirty = free_.dirty_bytes() + free_.delayed_bytes() + free_.kept_bytes();
    copy.clean = free_.clean_bytes();
    return copy;
  }
  // Calls `visit` for every span, used and free, with the lock held: spans do not
  // come and go meanwhile, but owners may be changing what is theirs.
  template <class Visit>
  void for_each_span(Visit&& visit) noexcept;
  [[nodiscard]] P& platform() noexcept { return platform_; }
  [[nodiscard]] PageMap& map() noexcept { return map_; }
  [[nodiscard]] const PageMap& map() const noexcept { return map_; }
  [[nodiscard]] Pool& metadata() noexcept { return metadata_; }
  [[nodiscard]] Lock& lock() noexcept { return lock_; }

  // In the child of a fork, with the lock held: spans that a thread of the
  // parent was purging are dirty again.
  void repair_after_fork() noexcept {
    while (Span* const span = purging_.pop_front()) {
      if (span->region->source != nullptr) --span->region->source->purging;
      insert_free(span, SpanState::dirty, 0);
    }
  }

  // Walks everything and checks it against itself; for tests and debug builds.
  void check_invariants() noexcept;

 private:
  static constexpr Slices kCommitStep{32};
  // The usual huge page. Where it is larger, the system sees to what fits.
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  // Larger spans often stay untouched in part.
  static constexpr Slices kLargestHuge{64};
  // Of smaller ones, the memory that is present is not worth a search.
  static constexpr Slices kWorthLengthening{16};
  // Where spans are to lie at random places: among how many.
  static constexpr Slices kScatter{32};
  static constexpr Slices kLargestScattered{3};
  static constexpr Slices kFeed{2};  // slices that become metadata at a time, at least
  // Left free behind the first of regions that follow each other, for those. The kernel fills it
  // from its end with what the program maps.
  static constexpr std::size_t kRoom = std::size_t{4} << 30;
  // Of all regions together, the next one is this part at least: where each lies by itself, their
  // number grows with the logarithm of their size.
  static constexpr std::size_t kShare = 8;

  [[nodiscard]] ALLOD_HOT Span* take(Slices size, Slices alignment, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Span* take_free(Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Span* take_lengthened(Slices size) noexcept;
  [[nodiscard]] Address remap_pages(const Region& region, Slices to) noexcept;
  void move_region(Span* span, Address base, Slices to) noexcept;
  void note_huge_wanted(Span& span, Slices taken) noexcept;
  void prefer_huge_again(const Span& span) noexcept;
  // space_scatter.hpp
  [[nodiscard]] ALLOD_HOT Span* take_anywhere(Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Span* choose_free(Slices size, Filling filling) noexcept;
  [[nodiscard]] bool stock_up(Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Span* cut_anywhere(Span* span, Slices size) noexcept;
  [[nodiscard]] ALLOD_HOT Span* take_fresh(Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Region* region_with(Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Region* any_region_with(Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Region* new_region(Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT bool place(Region& region, Slices size, bool is_shared) noexcept;
  [[nodiscard]] ALLOD_HOT bool place_behind(Region& region, Slices size) noexcept;
  [[nodiscard]] void* reserve_before_room(std::size_t bytes, std::size_t alignment) noexcept;
  [[nodiscard]] bool settle(Region& region, void* memory, Slices size) noexcept;
  [[nodiscard]] ALLOD_HOT bool advance(Region& region, Slices more) noexcept;
  [[nodiscard]] ALLOD_HOT bool commit(Region& region, Slices to) noexcept;
  void hide_tail(Region& region) noexcept;
  void forget(Region& region) noexcept {
    for (Region*& last : last_) last = last == &region ? nullptr : last;
    metadata_.free(&region, sizeof(Region));
  }
  // Is a span of that size a region of its own?
  [[nodiscard]] bool is_for_itself(Slices size) const noexcept {
    return size.count * 2 > region_slices_.count;
  }
  ALLOD_HOT void choose_pages(const Region& region, Slices first) noexcept;
  ALLOD_HOT void file_region(Region& region) noexcept;
  void trim_to_alignment(Span*& span, Slices size, Slices alignment) noexcept;

  template <class Visit>
  void for_each_region(Visit&& visit) noexcept;

  // space_source.hpp
  [[nodiscard]] Span* take_from(PageSource& source, Slices size, Slices alignment) noexcept;
  [[nodiscard]] Span* take_fresh_from(PageSource& source, Slices size) noexcept;
  [[nodiscard]] Region* map_region(PageSource& source, Slices size, int* error) noexcept;
  [[nodiscard]] void* map_pages(const PageWishes& wishes, std::size_t bytes, int* error) noexcept;
  [[nodiscard]] int adopt_buffer(PageSource& source) noexcept;
  [[nodiscard]] Region* add_region(PageSource& source, Address base, Slices size) noexcept;
  [[nodiscard]] bool is_nobodys(Address from, Address to) const noexcept;
  void drop_region(PageSource& source, Region& region) noexcept;
  // Of a used span whose source wants that: its memory behind the first `keep` slices.
  [[nodiscard]] ALLOD_HOT bool is_purged_at_once(const Span& span, Slices keep) noexcept;
  // What is cut off goes to others, whoever had it: true when it has no memory any more.
  [[nodiscard]] ALLOD_HOT bool is_erased(const Span& span, Slices keep) noexcept;
  void abandon(Span& span) noexcept;

  // When a request cannot be served: purges everything and gives empty regions
  // back. False when there was nothing of either.
  [[nodiscard]] bool make_room() noexcept;
  [[nodiscard]] bool wait_for_purges() noexcept;
  [[nodiscard]] bool give_up_guards() noexcept;
  static constexpr std::size_t kSpareMetadata = 1024;  // for a region and some spans

  // Turns a few free or untouched slices into metadata, for good: addresses, or mappings, can be
  // scarce while memory is not. False when there are no `bytes` in a row.
  [[nodiscard]] bool feed_metadata(std::size_t bytes) noexcept;
  [[nodiscard]] Span* fresh_for_metadata(Slices size) noexcept;

  [[nodiscard]] std::uint32_t now_ms() noexcept {
    return static_cast<std::uint32_t>(platform_.now_ms());
  }
  [[nodiscard]] Span* new_span() noexcept {
    return static_cast<Span*>(metadata_.allocate(platform_, sizeof(Span)));
  }
  // A used span has another size; none before it is handed out and after it is free.
  void account(Slices before, Slices after) noexcept {
    counters_.used += after.bytes() - before.bytes();
    if (counters_.used > counters_.peak_used) counters_.peak_used = counters_.used;
    recent_.add(bytes_if_full(after) - bytes_if_full(before));
  }
  [[nodiscard]] static std::size_t bytes_if_full(Slices size) noexcept {
    return size > kLargestHuge ? 0 : size.bytes();
  }
  [[nodiscard]] ALLOD_HOT Span* allocate_with(Slices size, Slices alignment, Filling filling,
                                              PageSource* source, Span* descriptor,
                                              std::size_t bytes) noexcept;
  [[nodiscard]] ALLOD_HOT Span* take_for(Slices size, Slices alignment, Filling filling,
                                         PageSource* source, bool described) noexcept;
  [[nodiscard]] ALLOD_HOT static Span* describe(Span* span, Span* descriptor,
                                                std::size_t bytes) noexcept;
  // Calls `take` for a span in no bin, or null. What its neighbours look at is set under the lock;
  // that takes the same time for any size.
  template <class Take>
  [[nodiscard]] ALLOD_INLINE Span* hand_out(Take&& take) noexcept;
  ALLOD_HOT void note_used(Span* span) noexcept;
  // Leaves a larger descriptor.
  [[nodiscard]] ALLOD_HOT Span* go_home(Span* span) noexcept;
  [[nodiscard]] Span* free_neighbour(Address at, const Region& region) const noexcept {
    if (at < region.base || at >= region.base + region.used.bytes()) return nullptr;
    if (map_.tag_of(at) != kFreeTag) return nullptr;
    Span* const span = map_.span_of(at);
    return is_free(*span) ? span : nullptr;
  }
  [[nodiscard]] bool is_at_front(const Span& span) const noexcept {
    return end_of(span) == span.region->base + span.region->used.bytes();
  }
  [[nodiscard]] static bool is_region(const Span& span) noexcept {
    return span.size == span.region->size && span.region->source == nullptr;
  }
  // `tail` follows `span`; both are in no bin. The descriptor of `tail` goes.
  void absorb(Span* span, Span* tail) noexcept {
    span->size = span->size + tail->size;
    metadata_.free(tail, sizeof(Span));
  }
  // Cuts `span` (in no bin) to `size`; the rest is returned, in no bin either,
  // or null when nothing is left or no metadata can be had.
  [[nodiscard]] Span* split(Span* span, Slices size) noexcept {
    if (span->size <= size) return nullptr;
    Span* const tail = new_span();
    if (tail != nullptr) cut(span, size, tail);
    return tail;
  }
  void cut(Span* span, Slices size, Span* tail) noexcept {
    tail->base = span->base + size.bytes();
    tail->size = span->size - size;
    tail->state = span->state;
    tail->region = span->region;
    tail->freed_ms = span->freed_ms;
    span->size = size;
  }
  // Of a free span that was just taken out of its bin. What follows it is not
  // free in the same state, or it would have been merged.
  void give_back_tail(Span* span, Slices keep) noexcept {
    if (Span* const tail = split(span, keep)) file_free(tail);
  }

  // Merges with free neighbours in the same state and files the result, which it returns. The
  // larger part decides on the age of the whole, or one that is used again and again in a small
  // part would never be purged.
  ALLOD_HOT Span* insert_free(Span* span, SpanState state, std::uint32_t freed_ms) noexcept;
  ALLOD_HOT void file_free(Span* span) noexcept {
    map_.set_tags(span->base, {1}, kFreeTag);
    map_.set_span(span->base, span);
    map_.set_span(end_of(*span) - 1, span);
    free_.insert(span);
  }
  ALLOD_HOT void take_part_to_purge(Span* span, std::size_t limit) noexcept;
  template <class Choose>
  ALLOD_HOT std::size_t purge_chosen(std::size_t limit, Choose&& choose) noexcept;
  ALLOD_HOT void finish_purge(Span* span, bool reads_zero) noexcept;
  ALLOD_HOT void finish_clean(Span* span) noexcept;
  ALLOD_HOT void avoid_huge_pages(Region& region, Address to) noexcept;
  void avoid_used_pages(Region& region) noexcept;
  void release_region(Span* span) noexcept;

  // space_check.hpp
  struct FreeBytes {
    std::size_t dirty = 0;
    std::size_t clean = 0;
    std::size_t kept = 0;
    std::size_t delayed = 0;
  };
  void check_free(const Span& span, SpanState state, FreeBytes* sum) noexcept;
  [[nodiscard]] FreeBytes check_free_spans() noexcept;

  Lock lock_{LockRank::space};
  [[no_unique_address]] P platform_{};
  PageMap map_;
  Pool metadata_;
  Slices region_slices_{1024};
  std::size_t huge_from_ = 0;
  std::atomic<std::size_t> fresh_bytes_{0};
  RegionList regions_;  // with untouched slices first
  // By filling: behind which the next one is to lie, or null; and how much was held when a new one
  // was refused.
  Region* last_[2] = {};
  std::size_t refused_at_[2] = {~std::size_t{0}, ~std::size_t{0}};
  PageSourceList sources_;
  FreeSpans free_;
  // What is allocated next begins a page.
  struct Apart {
    FreeSpans::Bins bins;
    Span spare;
    Region spare_region;
  };
  static constexpr std::size_t kApartAlign = 4096;
  SpanList purging_;
  Span* fed_ = nullptr;             // the slices that became metadata last
  Span* spare_ = nullptr;           // for feed_metadata, which cannot ask for one
  Region* spare_region_ = nullptr;  // the same
  std::atomic<bool> refuses_purge_{false};
  std::atomic<bool> refuses_to_reopen_{false};
  std::atomic<std::uint32_t> shut_spans_{0};  // that have pages which are shut, or had them
  RecentUse recent_;                          // of spans up to kLargestHuge
  SpaceCounters counters_;
};

}  // namespace allod::space

#include "allod/space/space_allocate.hpp"
#include "allod/space/space_check.hpp"
#include "allod/space/space_guard.hpp"
#include "allod/space/space_purge.hpp"
#include "allod/space/space_regions.hpp"
#include "allod/space/space_release.hpp"
#include "allod/space/space_scatter.hpp"
#include "allod/space/space_source.hpp"

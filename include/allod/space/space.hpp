// Layer 3: address space in slices. Spans are cut from regions, found by best fit, merged with free
// neighbours, and purged if they stay free.
#pragma once

#include "allod/space/free_spans.hpp"
#include "allod/space/guesses.hpp"
#include "allod/space/metadata.hpp"
#include "allod/space/page_map.hpp"
#include "allod/space/recent_use.hpp"
#include "allod/space/seams.hpp"
#include "allod/space/space_counters.hpp"

namespace allod::space {

template <os::Platform P, CheckLevel kChecks>
class Space {
 public:
  using Pool = Metadata<P, kChecks >= CheckLevel::debug>;
  using Lock = typename Pool::Lock;

  constexpr Space() noexcept = default;
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  // Called once, before anything else. False if the system gives no addresses: then every
  // allocation fails. While at least `huge_from` bytes are used, dense spans get huge pages, if the
  // system has them. Tells `nodes` memory nodes apart; 0: those of the system.
  ALLOD_HOT bool start(std::size_t region_bytes, std::size_t huge_from,
                       std::uint32_t nodes = 0) noexcept {
    platform_.start();
    tell_apart(nodes != 0 ? nodes : P::nodes());
    huge_from_ = huge_from;
    region_slices_ = Slices::covering(region_bytes);
    if (!map_.start(platform_)) return false;
    auto* const apart =
        static_cast<Apart*>(metadata_.allocate(platform_, align_up(sizeof(Apart), kApartAlign)));
    if (apart == nullptr) return false;
    free_.start(0, &apart->bins);
    spare_ = &apart->spare;
    spare_region_ = &apart->spare_region;
    return true;
  }

  // Zeroed metadata. If the system gives none, free slices serve. Null if there are none.
  // Thread-safe.
  [[nodiscard]] ALLOD_HOT void* allocate_metadata(std::size_t bytes) noexcept {
    void* piece = metadata_.allocate(platform_, bytes);
    if (piece == nullptr && feed_metadata(bytes)) piece = metadata_.allocate(platform_, bytes);
    return piece;
  }

  // The same for stable metadata: zeros, or the content of a freed piece of that size.
  [[nodiscard]] ALLOD_HOT void* allocate_stable(std::size_t bytes) noexcept {
    void* const piece = metadata_.allocate_stable(platform_, bytes);
    if (piece != nullptr || !feed_metadata(bytes)) return piece;
    return metadata_.allocate_stable(platform_, bytes);
  }

  // A used span of at least `size` whose base is a multiple of `alignment` slices, a power of two.
  // From `source`, or the shared regions for null. All its slices lead to it in the page map; the
  // caller sets the tags. Null if there is no memory. Thread-safe.
  [[nodiscard]] ALLOD_HOT Span* allocate(Slices size, Slices alignment,
                                         PageSource* source = nullptr) noexcept;
  // The same for a span that is likely to grow: with room behind it.
  [[nodiscard]] Span* allocate_growing(Slices size) noexcept;
  // The same with a descriptor of `bytes` that starts with a Span. The descriptor is stable
  // metadata: behind the Span, it has the content of a freed descriptor of that size, or zeros.
  [[nodiscard]] ALLOD_HOT Span* allocate_described(Slices size, Filling filling, std::size_t bytes,
                                                   PageSource* source = nullptr) noexcept;

  // Whether the next owner of a freed span may see its content.
  enum class Contents : bool {
    nobodys,  // yes
    users,    // not if the platform erases
  };
  // Frees a span, which has not been used for `age_ms`, and its descriptor. Thread-safe.
  ALLOD_HOT void free(Span* span, std::uint32_t age_ms = 0,
                      Contents contents = Contents::nobodys) noexcept;

  // The owner of a new huge block will probably write its first `part`: all but the last slice of
  // that get the memory of dirty spans where they have none, then huge pages.
  // Later, the next slice has memory only if the guess was right; until then, it counts against
  // `budget`. The part counts in below_peak(). False if the system lost a part of the span,
  // which is nobody's then. Thread-safe; calls the system without the lock. See space_move.hpp.
  [[nodiscard]] bool fill(Span& span, Slices part, std::size_t budget) noexcept;
  // Takes its last slice's memory, which then tells the same; or changes nothing.
  void leave_out_last(Span& span) noexcept;
  // Remembers a new huge block without memory. Returns the memory of the one before it, which only
  // its owner can have touched; empty if that was freed. Thread-safe.
  [[nodiscard]] os::Piece swap_newest(const Span& span) noexcept;

  // Lengthens a used span into its free neighbour. False, and no change, if that is used or too
  // small. The caller sets the tags. Thread-safe.
  [[nodiscard]] ALLOD_HOT bool grow(Span* span, Slices to) noexcept;

  // Cuts a used span to its first `to` slices. Without metadata for the rest it keeps its size. An
  // absent rest has hardly any memory, and is purged at once. Thread-safe.
  ALLOD_HOT void shrink(Span* span, Slices to, Tail tail = Tail::present) noexcept;

  // Moves or lengthens a used span that is a region of its own, by page tables. False, and no
  // change, if it shares a region or the system refuses. The caller sets the tags. Thread-safe.
  [[nodiscard]] bool remap(Span* span, Slices to) noexcept;

  // Makes accesses from `from`, the start of a page, to the end of a used span fault, if the system
  // can. Only for the system's memory. Until unguard(), the caller must not resize the span. See
  // space_guard.hpp.
  ALLOD_HOT void guard(Span& span, Address from) noexcept;
  // Moves that guard. False, and no change, if the system refuses to open the pages before `from`.
  [[nodiscard]] bool move_guard(Span& span, Address from) noexcept;
  // The owner has closed parts of the span by means of the platform, and may leave them closed:
  // unguard() opens all of it. Thread-safe.
  static void note_closed(Span& span) noexcept;
  // Makes whole pages of a used span mappings of their own that fault and keep their content, until
  // reopen() or unguard(). False, and no change, if the system refuses, has ever refused to reopen
  // pages, or more spans with such pages could exhaust the process's mappings. Thread-safe.
  [[nodiscard]] bool shut(Span& span, Address from, std::size_t bytes) noexcept;
  // False, and no change, if the system refuses.
  [[nodiscard]] bool reopen(Address from, std::size_t bytes) noexcept;
  static constexpr std::uint32_t kMostShut = 2048;
  [[nodiscard]] ALLOD_HOT bool unguard(Span& span) noexcept;
  // Bytes of the guard behind a slab; 0 for none. `wished`: the heap itself is hardened.
  [[nodiscard]] ALLOD_HOT std::size_t guard_bytes(Filling filling, const PageSource* source,
                                                  bool wished) noexcept;

  // --- memory of one heap alone; see space_source.hpp ---------------------------
  // A source with these wishes. Null, and `*error`, if the system cannot fulfil them, or the buffer
  // is invalid. Thread-safe.
  [[nodiscard]] PageSource* open_source(const PageWishes& wishes, int* error) noexcept;
  // Takes the slices that a buffer shares with its neighbours, as used spans with a descriptor of
  // `bytes`, as from allocate_described(). Calls take(span, from, to) with the buffer's part. Once,
  // after open_source(). False without metadata.
  template <class Take>
  [[nodiscard]] bool take_ends(PageSource& source, std::size_t bytes, Take&& take) noexcept;
  // Unmaps all regions of a source, whose spans must be free. A buffer returns to the program.
  void close_source(PageSource* source) noexcept;

  // Purges spans that have been free for `delay_ms`. While more than `budget` bytes are dirty,
  // purges the oldest as well, but not the one freed last. Returns the purged bytes, at most about
  // `limit`, as huge pages go as a whole. Thread-safe; calls the system without the lock.
  ALLOD_HOT std::size_t purge(std::uint32_t delay_ms, std::size_t budget,
                              std::size_t limit) noexcept;

  // The same for sources with their own delays; `now` ignores these.
  std::size_t purge_delayed(std::size_t limit, bool now) noexcept;
  // Both without delays, for the bytes that are free at the start, so that it ends however much
  // other threads free meanwhile. Thread-safe.
  std::size_t purge_free() noexcept {
    const std::size_t delayed = delayed_bytes();
    return purge(0, 0, dirty_bytes()) + purge_delayed(delayed, true);
  }

  // The bytes of all spans that were handed out untouched. Thread-safe.
  [[nodiscard]] std::size_t fresh_bytes() const noexcept {
    return fresh_bytes_.load(std::memory_order_relaxed);
  }
  // Purges pieces: whole pages within used spans of one region, which no thread touches meanwhile.
  // False if the system refuses any, or they would not read as zero. Thread-safe.
  ALLOD_HOT bool purge_within(Region& region, const os::Piece* pieces, std::size_t count) noexcept;
  // The used part of the lowest region that ends behind `at`, from `at` on; empty if there is none.
  // Thread-safe.
  [[nodiscard]] ALLOD_HOT Range range_from(Address at) noexcept;

  // See PageMap::narrow.
  template <class Mappings>
  void narrow_map(std::size_t limit, bool is_alone, Mappings&& each_mapping) noexcept;

  // Milliseconds until the oldest free span has been free for `delay_ms`; the largest value if
  // nothing is dirty. Thread-safe.
  [[nodiscard]] std::uint32_t next_purge_in(std::uint32_t delay_ms) noexcept {
    LockGuard guard{lock_};
    return free_.next_due_in(now_ms(), delay_ms);
  }
  // The same for the next source with its own delay.
  [[nodiscard]] std::uint32_t next_delayed_in() noexcept {
    LockGuard guard{lock_};
    return free_.next_delayed_in(now_ms());
  }
  // Whether the system refused the last purge.
  [[nodiscard]] bool refuses_purge() const noexcept {
    return refuses_purge_.load(std::memory_order_relaxed);
  }
  // Whether enough is in use for huge pages of dense spans. Thread-safe.
  [[nodiscard]] bool is_large_enough_for_huge_pages() noexcept {
    LockGuard guard{lock_};
    return counters_.used >= huge_from_;
  }
  // Bytes in free spans whose memory is present. Thread-safe, approximate.
  [[nodiscard]] std::size_t dirty_bytes() const noexcept { return free_.dirty_bytes(); }
  // The dirty bytes above `budget`. The span freed last is reused next, whatever its size, and its
  // own bytes, without those of spans it was merged with, come on top. Thread-safe, approximate.
  [[nodiscard]] std::size_t dirty_bytes_above(std::size_t budget) const noexcept {
    return free_.dirty_bytes_above(budget);
  }

  // The difference between the recent peak and the present use, in spans that programs mostly write
  // as a whole. Thread-safe, approximate.
  [[nodiscard]] std::size_t below_peak() const noexcept { return recent_.below_peak(); }
  // From now on, the recent peak is that since the call before. Thread-safe.
  void forget_peak() noexcept {
    LockGuard guard{lock_};
    recent_.forget_peak();
  }

  // The same of sources with their own delays, which that leaves out.
  [[nodiscard]] std::size_t delayed_bytes() const noexcept { return free_.delayed_bytes(); }

  [[nodiscard]] SpaceCounters counters() noexcept {
    LockGuard guard{lock_};
    auto copy = counters_;
    copy.dirty = free_.dirty_bytes() + free_.delayed_bytes() + free_.kept_bytes();
    copy.clean = free_.clean_bytes();
    return copy;
  }
  // Visits every span with the lock held: none comes or goes, but owners may change theirs.
  void for_each_span(auto&& visit) noexcept;
  // Likewise usable memory that no span has had yet: an address and bytes.
  void for_each_untouched(auto&& visit) noexcept;
  // Memory nodes that are told apart, and the calling thread's. See space_nodes.hpp.
  [[nodiscard]] std::uint32_t nodes() const noexcept { return metadata_.nodes(); }
  [[nodiscard]] ALLOD_INLINE Node node() const noexcept { return metadata_.node(); }
  [[nodiscard]] ALLOD_INLINE bool is_near(const Span& span) const noexcept {
    return __builtin_expect(nodes() <= 1, 1) || span.region->node == node();
  }
  [[nodiscard]] P& platform() noexcept { return platform_; }
  [[nodiscard]] PageMap& map() noexcept { return map_; }
  [[nodiscard]] const PageMap& map() const noexcept { return map_; }
  [[nodiscard]] Pool& metadata() noexcept { return metadata_; }
  [[nodiscard]] Lock& lock() noexcept { return lock_; }

  // In the child of a fork, with the lock held: spans that were being purged become dirty again.
  void repair_after_fork() noexcept;

  void check_invariants() noexcept;  // for tests and debug builds

 private:
  static constexpr Slices kCommitStep{32};
  // The usual huge page. If the system's is larger, the system sees to it.
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  // Larger spans often stay untouched in part.
  static constexpr Slices kLargestHuge{64};
  // In smaller spans, the present memory is not worth a search.
  static constexpr Slices kWorthLengthening{16};
  // For random placement: the slices to choose from.
  static constexpr Slices kScatter{32};
  static constexpr Slices kLargestScattered{3};
  static constexpr Slices kFeed{2};  // the least slices that become metadata at a time
  // Kept free behind the first of adjacent regions, for the next ones. The kernel places the
  // program's mappings from its end.
  static constexpr std::size_t kRoom = std::size_t{kAddressesAbound ? 4096 : 64} << 20;
  // Mappings of pages that moved: an eighth of vm.max_map_count.
  static constexpr std::uint32_t kMostSeams = 8192;
  static constexpr const char* kName = "allod: heap";
  // The next region is at least this part of all. If each lies by itself, their number grows with
  // the logarithm of their size.
  static constexpr std::size_t kShare = 8;

  [[nodiscard]] ALLOD_HOT Span* take(Slices size, Slices alignment, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Span* take_at(Node node, Slices size, Slices alignment,
                                        Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Span* take_free(Node node, Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Span* take_lengthened(Node node, Slices size) noexcept;
  [[nodiscard]] Address remap_pages(const Region& region, Slices to) noexcept;
  void move_region(Span* span, Address base, Slices to) noexcept;
  void note_huge_wanted(Span& span, Slices taken) noexcept;
  void prefer_huge_again(const Span& span) noexcept;
  // space_scatter.hpp
  [[nodiscard]] ALLOD_HOT Span* take_anywhere(Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Span* choose_free(Node node, Slices size, Filling filling) noexcept;
  [[nodiscard]] bool stock_up(Node node, Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Span* cut_anywhere(Span* span, Slices size) noexcept;
  [[nodiscard]] ALLOD_HOT Span* take_fresh(Node node, Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Region* region_with(Node node, Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Region* any_region_with(Node node, Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT Region* new_region(Node node, Slices size, Filling filling) noexcept;
  [[nodiscard]] ALLOD_HOT bool place(Region& region, Slices size, bool is_shared) noexcept;
  [[nodiscard]] ALLOD_HOT bool place_behind(Region& region, Slices size) noexcept;
  [[nodiscard]] void* reserve_before_room(std::size_t bytes, std::size_t alignment) noexcept;
  [[nodiscard]] bool settle(Region& region, void* memory, Slices size) noexcept;
  [[nodiscard]] ALLOD_HOT bool advance(Region& region, Slices more) noexcept;
  [[nodiscard]] ALLOD_HOT bool commit(Region& region, Slices to) noexcept;
  void hide_tail(Region& region) noexcept;
  void forget(Region& region) noexcept {
    for (Region*& last : last_[region.node]) last = last == &region ? nullptr : last;
    if (region.seams != nullptr) {
      seams_ -= region.seams->count();
      metadata_.free(region.seams, region.seams->bytes());
    }
    metadata_.free(&region, sizeof(Region));
  }
  // Whether a span of that size is a region of its own.
  [[nodiscard]] bool is_for_itself(Slices size) const noexcept {
    return size.count * 2 > region_slices_.count;
  }
  ALLOD_HOT void choose_pages(Region& region, Slices first) noexcept;
  [[nodiscard]] bool advance_alike(Region& region, Slices first) noexcept;
  ALLOD_HOT void file_region(Region& region) noexcept;
  void trim_to_alignment(Span*& span, Slices size, Slices alignment) noexcept;

  template <class Visit>
  void for_each_region(Visit&& visit) noexcept;

  // space_nodes.hpp
  ALLOD_HOT void tell_apart(std::uint32_t nodes) noexcept;
  [[nodiscard]] ALLOD_INLINE Node here() noexcept;
  [[nodiscard]] bool add_node(Node node) noexcept;

  // space_source.hpp
  [[nodiscard]] Span* take_from(PageSource& source, Slices size, Slices alignment) noexcept;
  [[nodiscard]] Span* take_fresh_from(PageSource& source, Slices size) noexcept;
  [[nodiscard]] Region* map_region(PageSource& source, Slices size, int* error) noexcept;
  [[nodiscard]] void* map_pages(const PageWishes& wishes, std::size_t bytes, int* error) noexcept;
  [[nodiscard]] int adopt_buffer(PageSource& source) noexcept;
  [[nodiscard]] Region* add_region(PageSource& source, Address base, Slices size) noexcept;
  [[nodiscard]] bool is_nobodys(Address from, Address to) const noexcept;
  void drop_region(PageSource& source, Region& region) noexcept;
  // Whether a used span's memory behind its first `keep` slices was purged, if its source wants
  // that at once.
  [[nodiscard]] ALLOD_HOT bool is_purged_at_once(const Span& span, Slices keep) noexcept;
  [[nodiscard]] ALLOD_HOT bool purge_behind(const Span& span, Slices keep) noexcept;
  // Whether the part that is cut off, for other owners, was erased and is not present.
  [[nodiscard]] ALLOD_HOT bool is_erased(const Span& span, Slices keep) noexcept;
  void abandon(Span& span) noexcept;

  // For a request that cannot be served: purges all free memory, and frees empty regions. False if
  // there was neither.
  [[nodiscard]] bool make_room() noexcept;
  [[nodiscard]] bool wait_for_purges() noexcept;
  [[nodiscard]] bool give_up_guards() noexcept;
  static constexpr std::size_t kSpareMetadata = 1024;  // for a region and some spans

  // Makes a few free or untouched slices metadata for good: addresses or mappings may be scarce
  // while memory is not. False if no run has `bytes`.
  [[nodiscard]] bool feed_metadata(std::size_t bytes) noexcept;
  [[nodiscard]] Span* fresh_for_metadata(Slices size) noexcept;
  [[nodiscard]] Span* find_for_metadata(Node node, Slices least) noexcept;

  [[nodiscard]] std::uint32_t now_ms() noexcept {
    return static_cast<std::uint32_t>(platform_.now_ms());
  }
  [[nodiscard]] Span* new_span() noexcept {
    return static_cast<Span*>(metadata_.allocate(platform_, sizeof(Span)));
  }
  // A used span changes its size, from or to none when it is handed out or freed.
  void account(Slices before, Slices after, Slices expected = {}) noexcept {
    counters_.used += after.bytes() - before.bytes();
    if (counters_.used > counters_.peak_used) counters_.peak_used = counters_.used;
    recent_.add(bytes_in_use(after, expected) - bytes_in_use(before, expected));
  }
  // Of large spans, only what will probably be written.
  [[nodiscard]] static std::size_t bytes_in_use(Slices size, Slices expected) noexcept {
    return size <= kLargestHuge || size < expected ? size.bytes() : expected.bytes();
  }
  [[nodiscard]] ALLOD_HOT Span* allocate_with(Slices size, Slices alignment, Filling filling,
                                              PageSource* source, Span* descriptor,
                                              std::size_t bytes) noexcept;
  [[nodiscard]] ALLOD_HOT Span* take_for(Slices size, Slices alignment, Filling filling,
                                         PageSource* source, bool described) noexcept;
  [[nodiscard]] ALLOD_HOT static Span* describe(Span* span, Span* descriptor,
                                                std::size_t bytes) noexcept;
  // Calls `take`, which returns a span in no bin, or null. Sets only the map entries that
  // neighbours read under the lock, which takes the same time for any size.
  template <class Take>
  [[nodiscard]] ALLOD_INLINE Span* hand_out(Take&& take) noexcept;
  ALLOD_HOT void note_used(Span* span) noexcept;
  // Returns from a larger descriptor.
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
  // `tail` follows `span`; both are in no bin. Frees the descriptor of `tail`.
  void absorb(Span* span, Span* tail) noexcept {
    span->size = span->size + tail->size;
    metadata_.free(tail, sizeof(Span));
  }
  // Cuts `span`, in no bin, to `size`. Returns the rest, in no bin, or null if there is no rest or
  // no metadata.
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
  // For a free span just taken out of its bin. Its successor is not free in the same state, or they
  // would have been merged.
  void give_back_tail(Span* span, Slices keep) noexcept {
    if (Span* const tail = split(span, keep)) file_free(tail);
  }

  // Merges with free neighbours in the same state, files the result and returns it. The larger part
  // decides the age of the whole: otherwise a span of which a small part is reused again and again
  // would never be purged.
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
  ALLOD_HOT void finish_purge(Span* span, bool reads_zero, std::uint32_t freed_ms) noexcept;
  ALLOD_HOT void finish_clean(Span* span) noexcept;
  ALLOD_HOT void avoid_huge_pages(Region& region, Address to) noexcept;
  void avoid_used_pages(Region& region) noexcept;
  void release_region(Span* span) noexcept;
  void renew(const Span& span) noexcept;

  // space_move.hpp
  void populate_huge(Span& span, Address end) noexcept;
  [[nodiscard]] bool may_guess(std::size_t bytes, std::size_t budget) noexcept;
  [[nodiscard]] os::Moved move_to(Span& span, Address end) noexcept;
  [[nodiscard]] os::Piece mapping_around(const Span& span) noexcept;
  [[nodiscard]] Span* take_donor(Node node, Slices most) noexcept;
  [[nodiscard]] bool has_seams(Region& region) noexcept;
  [[nodiscard]] ALLOD_HOT static bool has_moved_pages(const Span& span) noexcept;
  [[nodiscard]] static std::uint32_t slice_in_region(const Span& span) noexcept {
    return static_cast<std::uint32_t>((span.base - span.region->base) >> kSliceShift);
  }
  template <class Change>
  void change_seams(const Span& span, Change&& change) noexcept;

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
  RegionList regions_;  // those with untouched slices first
  // By node and filling: the region behind which the next one is placed, or null. By filling: the
  // reserved bytes when a new one was refused.
  Region* last_[kMostNodes][2] = {};
  std::size_t refused_at_[2] = {~std::size_t{0}, ~std::size_t{0}};
  PageSourceList sources_;
  FreeSpans free_;
  // Separate, since the following members start a page.
  struct Apart {
    FreeSpans::Bins bins;
    Span spare;
    Region spare_region;
  };
  static constexpr std::size_t kApartAlign = 4096;
  SpanList purging_;
  Span* fed_ = nullptr;    // the slices that became metadata last
  Span* spare_ = nullptr;  // this and the next: for feed_metadata(), which has no other
  Region* spare_region_ = nullptr;
  std::atomic<bool> refuses_purge_{false};
  std::atomic<bool> refuses_to_reopen_{false};
  std::uint32_t seams_ = 0;  // of all regions
  Guesses guesses_;
  std::atomic<std::uint32_t> shut_spans_{0};  // with pages that are or were shut
  RecentUse recent_;                          // see bytes_in_use()
  SpaceCounters counters_;
};

}  // namespace allod::space

#include "allod/space/space_allocate.hpp"
#include "allod/space/space_check.hpp"
#include "allod/space/space_guard.hpp"
#include "allod/space/space_move.hpp"
#include "allod/space/space_nodes.hpp"
#include "allod/space/space_purge.hpp"
#include "allod/space/space_regions.hpp"
#include "allod/space/space_release.hpp"
#include "allod/space/space_scatter.hpp"
#include "allod/space/space_source.hpp"

// Layer 5: a heap, that is domains over one space. What happens when a magazine
// is empty or full, when a block belongs to somebody else or is huge, and when a
// domain comes and goes.
#pragma once

#include <array>

#include "allod/heap/domain.hpp"
#include "allod/heap/heap_domain.hpp"
#include "allod/heap/helper_state.hpp"
#include "allod/heap/misuse.hpp"
#include "allod/heap/options.hpp"
#include "allod/heap/present.hpp"
#include "allod/heap/rest_walk.hpp"
#include "allod/heap/slow_path.hpp"
#include "allod/heap/turn.hpp"

namespace allod::heap {

// Blocks from here on are worth a magazine only while they are in use again and
// again: a single one holds more memory than a magazine of small ones.
inline constexpr std::size_t kLargeBlock = std::size_t{32} << 10;
// From here on, what realloc moves gets a span of its own.
inline constexpr std::size_t kGrowable = kSliceBytes;
// A purge that a caller has to wait for gives back at most this much.
inline constexpr std::size_t kPurgeStep = std::size_t{1} << 20;
// The same of our own thread, before it looks again.
inline constexpr std::size_t kHelperStep = std::size_t{4} << 20;
// Less than this does not deserve a thread.
inline constexpr std::size_t kWorthAThread = std::size_t{1} << 20;
// Of that thread, where only heaps have delays.
inline constexpr std::uint32_t kLongestNapMs = 60'000;
// Slow operations between two looks at the magazines.
inline constexpr std::uint32_t kLookInterval = 256;
// Orphans that are looked at then.
inline constexpr std::uint32_t kOrphanLooks = 16;

// Blocks up to this size touch every page of a slab that is full.
inline constexpr std::size_t kTouchedBlock = 4096;

// Policy names the parts: Platform, Sizes, Reporter, and the level of checks.
// One object, constant-initialised; all functions but start() are thread-safe as
// long as each thread passes its own domain.
template <class Policy>
class Heap {
 public:
  using Platform = typename Policy::Platform;
  using Sizes = typename Policy::Sizes;
  using Reporter = typename Policy::Reporter;
  static constexpr CheckLevel kChecks = Policy::kChecks;
  // Policy may ask for a state of each block, see slab/block_state.hpp, and may change the order in
  // which blocks are handed out: by shuffle(blocks, count), and where fewer than kGroup are taken
  // at a time by choice(count), the number of one of so many neighbours.
  static constexpr bool kBlockStates = requires { requires Policy::kBlockStates; };
  static constexpr bool kShuffles =
      requires(void** blocks, std::uint32_t count) { Policy::shuffle(blocks, count); };
  using Space = space::Space<Platform, kChecks>;
  using Lock = typename Space::Lock;
  using Domain = heap::Domain<Sizes, Lock>;
  using Cache = heap::ThreadCache<Sizes, Lock>;
  using Turn = heap::Turn<Domain, ForkGate<Platform>>;
  using HeapDomain = heap::HeapDomain<Sizes, Lock>;
  using HeapTurn = heap::HeapTurn<HeapTurns<Lock>, ForkGate<Platform>>;
  using LeaningTurn = heap::LeaningTurn<HeapTurns<Lock>, ForkGate<Platform>>;
  static constexpr ClassIndex kClasses = Sizes::kCount;

  constexpr Heap() noexcept = default;
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Called once, before anything else. Allocation fails cleanly when the system
  // gave no addresses.
  ALLOD_HOT void start(const HeapOptions& options) noexcept {
    options_ = options;
    usable_ = space_.start(options.region_bytes, options.huge_pages_from);
    gate_.start(space_.platform());
  }

  // --- domains; see heap/lifetime.hpp -----------------------------------------

  // A domain for the calling thread, or null.
  [[nodiscard]] ALLOD_HOT Domain* attach() noexcept;
  // A domain that threads use in turn, or null: every call for it is made within a Turn,
  // but detach(). See heap/turn.hpp.
  [[nodiscard]] ALLOD_HOT Domain* attach_shared() noexcept;
  // Gives up everything the domain holds. What is still in use becomes an
  // orphan, for others to adopt.
  ALLOD_HOT void detach(Domain& domain) noexcept;
  // The same for a shared domain that goes on, in a turn, unless it holds so much that others
  // would not soon have use for all of it.
  ALLOD_HOT void pass_on(Domain& shared) noexcept;

  // --- caches of threads over a shared domain; see heap/thread_cache.hpp ----------

  // A cache for the calling thread, or null.
  [[nodiscard]] ALLOD_HOT Cache* attach_cache(Domain& home) noexcept;
  // Gives its blocks to the domain.
  ALLOD_HOT void detach_cache(Cache& cache) noexcept;
  // Gives a cache room for blocks of every class that fit into `bytes`, for as long as it lives.
  // It belongs to no thread then; see thread/processor_caches.hpp.
  ALLOD_HOT void equip_cache(Cache& cache, std::size_t bytes) noexcept;
  // Blocks of it go to the domain, but the cache goes on.
  void empty_cache(Cache& cache, typename Turn::Wait wait = Turn::Wait::yes) noexcept;
  // When the magazine is empty, as allocate() and allocate_class().
  [[nodiscard]] ALLOD_HOT void* allocate_cached(Cache& cache, ClassIndex c, bool* zero) noexcept;
  // A block of the cache's domain, when the magazine is full.
  ALLOD_HOT void release_cached(Cache& cache, ClassIndex c, void* address) noexcept;
  template <class Visit>
  static void for_each_cache(const Domain& domain, Visit&& visit) noexcept {
    for (Cache* cache = domain.caches.load(std::memory_order_acquire); cache != nullptr;
         cache = cache->next) {
      visit(*cache);
    }
  }

  // --- slow paths of malloc; see heap/allocate.hpp ------------------------------

  // `size` bytes when the magazine of its class is empty, or no class is large
  // enough. Sets `*zero` when the block is known to be all zeros. Null when the
  // system refuses.
  [[nodiscard]] ALLOD_HOT void* allocate(Domain& domain, std::size_t size, bool* zero) noexcept;
  // With an alignment above 16, a power of two.
  [[nodiscard]] ALLOD_HOT void* allocate_aligned(Domain& domain, std::size_t size,
                                                 std::size_t alignment, bool* zero) noexcept;
  // The same, from a magazine if possible.
  [[nodiscard]] void* allocate_class(Domain& domain, ClassIndex c, bool* zero) noexcept {
    if (void* const block = domain.magazines[c].pop()) return block;
    return refill(domain, c, zero);
  }

  // While allocations are counted: has so much been freed that it is worth being handed out again?
  // Otherwise the magazine is filled from a slab, until as many blocks are on their way as
  // a magazine usually holds.
  [[nodiscard]] bool can_reuse(const Front<Sizes>& front, ClassIndex c) const noexcept {
    const std::uint32_t count = front.freed[c].count();
    if (count == 0) return false;
    if (!front.is_counting() || front.kind != FrontKind::domain) return true;
    return count >= worth_reuse(c);
  }
  [[nodiscard]] std::uint32_t worth_reuse(ClassIndex c) const noexcept {
    const std::uint32_t half = (usual_capacity(c) + 1) / 2;
    return half > 0 ? half : 1;
  }

  // --- slow paths of free; see heap/release.hpp and heap/remote.hpp --------------

  // Any address: an own block whose magazine is full, somebody else's block, a
  // huge block, or an address that should not be freed.
  ALLOD_HOT void release(Domain& domain, void* address) noexcept;
  // For a thread that has no domain and shall not get one.
  void release_detached(void* address) noexcept;
  // Is the caller a signal handler whose thread holds a lock without which there is no memory? It
  // would wait for itself.
  [[nodiscard]] ALLOD_INLINE bool is_interrupting() const noexcept {
    return __builtin_expect(HeldLocks::any_of_space(), 0) && !gate_.lets_pass();
  }
  // For such a one, and for one that would wait for a fork, which waits for what it has
  // interrupted. All but a block of a slab is lost.
  ALLOD_COLD void release_interrupting(void* address) noexcept;

  // --- questions; see heap/inspect.hpp ------------------------------------------

  // Bytes that the block at `address` offers; 0 for an address that is no block.
  [[nodiscard]] ALLOD_HOT std::size_t usable_size(const void* address) const noexcept;
  // The same for a fast path: false for all but blocks in slabs of domains.
  [[nodiscard]] bool fast_usable_size(const void* address, std::size_t* bytes) const noexcept;
  // Is it a block of no bytes, in a hardened heap? Of others, usable_size() is not 0.
  [[nodiscard]] bool is_block_of_no_bytes(const void* address) const noexcept;
  // Is `address` the start of a block that is in use, as far as can be told
  // without stopping anybody?
  [[nodiscard]] ALLOD_HOT Misuse describe(MisuseKind kind, const void* address) const noexcept;
  // Of an address behind the last block of a slab: as if that went on. False, and nothing is done,
  // elsewhere.
  [[nodiscard]] bool describe_behind(const void* address, Misuse* misuse) const noexcept;
  // Is the address in a guard behind a slab or a block?
  [[nodiscard]] bool is_guarded(const void* address) const noexcept;
  // Is the span in use only as far as the space knows, because a domain keeps it for its next
  // request? Its memory is present, like that of a dirty one, or a part of it is.
  [[nodiscard]] ALLOD_HOT static bool is_kept(const space::Span& span) noexcept;
  // How many of its bytes, if these are half of them at most, and all of them otherwise.
  [[nodiscard]] std::size_t present_in_kept(const space::Span& span) noexcept;
  // What is wrong with a free of an address in a span, but in its first slice.
  [[nodiscard]] MisuseKind kind_of_interior(const void* address) const noexcept;
  // The block in use, as far as slabs know, around any address; what a thread has at hand counts
  // as used. Takes no lock, and never faults.
  [[nodiscard]] Bounds bounds_of(const void* address) const noexcept;
  // From an address in a slab to the end of what a block has there, if one is or not: behind the
  // last, to that of the slab. SIZE_MAX for others. Takes no lock, and never faults.
  [[nodiscard]] ALLOD_COLD std::size_t room_in_place(const void* address) const noexcept;

  // --- realloc; see heap/resize.hpp ----------------------------------------------

  // Has realloc nothing to do, because `address` is an own block of the class of `size`, or a huge
  // one of as many slices? May say no when the answer is yes.
  [[nodiscard]] ALLOD_HOT bool fits(const Front<Sizes>& front, const void* address,
                                    std::size_t size) const noexcept;
  // Changes a block's size where it stands, or by moving its pages. Null, and
  // nothing changed, when that cannot be done. `own`: the caller's domain, or null.
  [[nodiscard]] ALLOD_HOT void* resize_in_place(Domain* own, void* address,
                                                std::size_t size) noexcept;
  // A new place for a block that grows to `size` and has no room where it stands. Null when the
  // size deserves no such care, or the system refuses: allocate it like any other. `own`: as above.
  [[nodiscard]] ALLOD_HOT void* allocate_growing(Domain* own, std::size_t size) noexcept;

  // --- memory back to the system; see heap/purge.hpp ------------------------------

  // Empties the domain's magazines into slabs, and retires empty ones.
  void give_up(Domain& domain) noexcept;
  // The same, and purges what is free. Returns the bytes given back.
  std::size_t trim(Domain& domain) noexcept;
  // The huge blocks that domains keep for their next request become free spans, but of those that
  // are in a slow path just now.
  void give_up_kept() noexcept { give_back_kept_of(Keepers::all); }
  // Pages inside of slabs on which no block is in use go back. Returns the bytes. Outside of slow
  // paths.
  std::size_t purge_slabs() noexcept;
  // What others have freed becomes free in the domains of all threads, unless one is in a slow path
  // for long; their empty slabs go. Outside of slow paths.
  void collect_for_others() noexcept;
  // The process gets a limit of addresses, below which the page map would leave it too little: see
  // PageMap::narrow. Thread-safe; nobody is in a slow path meanwhile. Nothing is done if somebody
  // is in one for long, as threads are that a child made by a bare system call does not have.
  template <class Mappings>
  void narrow_map(std::size_t limit, bool is_alone, Mappings&& each_mapping) noexcept;
  // The same as give_up(), with a step of the usual purge.
  ALLOD_HOT void collect(Domain& domain) noexcept;
  // Blocks that were freed have waited somewhere else, and have come together. A program that does
  // little else but take these again hardly comes to slow paths, and some of what they do besides
  // is done after many bursts.
  ALLOD_HOT void note_burst(Domain& domain) noexcept;
  // At the end of the process: what is ready to be handed out goes through the slabs, which see
  // what was freed twice, or was no block. Takes no lock; from then on no slab is given up.
  ALLOD_HOT void check_stocks(Domain& domain) noexcept;

  // --- first-class heaps; see heap/first_class.hpp and heap/first_class_blocks.hpp ---

  // `own` is the calling thread's own domain, or null. A heap must not be given back
  // while another thread uses it; freeing its blocks by release() is no such use.

  // For a thread that uses heaps: they may lean to it from now on, see heap/heap_turn.hpp, until
  // it says, at its end, that it leaves. False when there is no memory for that; heaps are locks
  // for it then.
  bool take_seat() noexcept;
  ALLOD_HOT void leave_seat() noexcept;
  // Is the calling thread, or what a signal has interrupted on it, in a turn on a heap that leans
  // to it?
  [[nodiscard]] static bool is_in_leaning_turn() noexcept {
    const Seat* const seat = ForkGate<Platform>::seat();
    if (seat == nullptr || seat == &nobodys_seat) return false;
    return seat->on.load(std::memory_order_relaxed) != nullptr;
  }

  // An empty heap without limit, or null and `*error`. The name is copied, as far as it fits.
  [[nodiscard]] HeapDomain* create_heap(const char* name, const space::PageWishes& wishes,
                                        int* error, bool hardened = false) noexcept;
  [[nodiscard]] HeapDomain* create_heap(const char* name) noexcept {
    int error;
    return create_heap(name, {}, &error);
  }
  // Blocks in use stay valid and belong to nobody, like those of a thread that ended. False,
  // and the heap stays, when it has memory of its own and blocks in it.
  bool delete_heap(HeapDomain& heap) noexcept;
  // All blocks are gone. Looks at slabs and huge blocks, not at other blocks.
  void destroy_heap(HeapDomain& heap) noexcept;

  // Null when the heap's limit or the system refuses.
  [[nodiscard]] void* allocate_in(Domain* own, HeapDomain& heap, HeapRequest& request) noexcept;
  // The same when that takes few steps, for the thread that the heap leans to; null otherwise.
  [[nodiscard]] void* allocate_at_once(HeapDomain& heap, std::size_t size) noexcept;
  // The same for release_in(): false, and nothing is done, when it takes more.
  [[nodiscard]] bool release_at_once(HeapDomain& heap, void* address) noexcept;
  // The same in the heap that owns `block`, a block in use; `*owned` is set to
  // whether there is one.
  [[nodiscard]] ALLOD_HOT void* allocate_beside(Domain* own, const void* block,
                                                HeapRequest& request, bool* owned) noexcept;
  // The heap that owns `block`, a block in use, unless it is deleted meanwhile; or null.
  [[nodiscard]] ALLOD_HOT HeapDomain* heap_of(const void* block) const noexcept;
  // Without a turn on a domain: a block of a first-class heap, as `tag` says, which was read of it.
  void release_to_heap(Domain* own, space::Tag tag, void* address) noexcept;
  // Any address; what is no block of this heap is reported.
  void release_in(Domain* own, HeapDomain& heap, void* address) noexcept;
  // Does the heap own the block that begins at `address`, and is it in use?
  [[nodiscard]] bool contains(HeapDomain& heap, const void* address) noexcept;
  // Brings home what others freed and gives up empty slabs. Returns their bytes.
  std::size_t collect_heap(HeapDomain& heap) noexcept;
  [[nodiscard]] HeapFigures figures_of(HeapDomain& heap) noexcept;
  // A limit below what is live refuses every request until enough has been freed.
  void limit_heap(HeapDomain& heap, std::size_t bytes) noexcept;

  // Calls `visit(block, bytes)` for the blocks in use, in no order, until it returns
  // false. It may do anything, with this heap too: a block that comes or goes meanwhile
  // may be missed, or be told although it is gone. False when there is no memory.
  template <class Visit>
  [[nodiscard]] bool walk_heap(HeapDomain& heap, Visit&& visit) noexcept;

  // With the registry's lock held: the heap made after this one, or the first for null.
  // Some are not in use. Objects stay, so that the lock may be let go between two calls.
  [[nodiscard]] HeapDomain* next_heap(HeapDomain* heap) noexcept {
    return heap == nullptr ? heaps_.first() : HeapList::next(heap);
  }

  // --- the helper; see heap/purge.hpp ----------------------------------------------

  // Ends the helper, if there is one, and keeps it away until let_helper_come() is called as well:
  // the process then has no thread but its own. Unless that happens all the time, the caller gives
  // back free memory and kept blocks in its place. True if there was one, and it is gone. It waits
  // for that a tenth of a second at most; but not if it may not, or has interrupted who holds a
  // lock that the helper may wait for. Not for a child of vfork. Thread-safe.
  enum class Wait : bool { no, yes };
  bool send_helper_away(Wait wait = Wait::yes) noexcept;
  void let_helper_come() noexcept { helper_.let_come(); }

  // --- fork; see heap/lifetime.hpp -------------------------------------------------

  // `own` is the domain of the forking thread, or null. Waits for other threads to
  // leave their slow paths, and keeps them out.
  void before_fork(const Domain* own) noexcept;
  void after_fork_in_parent() noexcept;
  // `own` and `cache` are those of the one thread that is left, or null.
  void after_fork_in_child(Domain* own, const Cache* cache = nullptr) noexcept;

  [[nodiscard]] Space& space() noexcept { return space_; }
  [[nodiscard]] const HeapOptions& options() const noexcept { return options_; }
  [[nodiscard]] HeapOptions& options() noexcept { return options_; }
  [[nodiscard]] Lock& registry_lock() noexcept { return registry_lock_; }
  [[nodiscard]] ForkGate<Platform>& gate() noexcept { return gate_; }

  // With the registry's lock held: every domain that was ever made.
  template <class Visit>
  void for_each_domain(Visit&& visit) noexcept {
    for (Domain* d = domains_.first(); d != nullptr; d = DomainList::next(d)) visit(*d);
  }
  // With the registry's lock held: the domain that was made after this one, or the first for null.
  // Domains stay, so that the lock may be let go between two calls.
  [[nodiscard]] Domain* next_domain(Domain* domain) noexcept {
    return domain == nullptr ? domains_.first() : DomainList::next(domain);
  }
  // With the registry's lock held: slabs without domain.
  template <class Visit>
  void for_each_orphan(Visit&& visit) noexcept {
    for (SpanList& list : orphans_) {
      for (space::Span* s = list.first(); s != nullptr; s = SpanList::next(s)) {
        visit(*slab::as_slab(s));
      }
    }
  }
  // While no other thread uses the heap: walks and checks everything.
  void check_invariants() noexcept;

 private:
  using DomainList = List<Domain, &Domain::links>;
  using DomainPool = List<Domain, &Domain::pool_links>;
  using HeapList = List<HeapDomain, &HeapDomain::links>;
  using HeapPool = List<HeapDomain, &HeapDomain::pool_links>;
  using SeatList = List<Seat, &Seat::links>;
  using FreeSeats = List<Seat, &Seat::free_links>;

  // allocate.hpp
  [[nodiscard]] ALLOD_HOT void* refill(Domain& domain, ClassIndex c, bool* zero) noexcept;
  [[nodiscard]] static void* take_one(Slab& slab, bool* virgin) noexcept;
  static void take_some(Slab& slab, void** out, std::uint32_t count) noexcept;
  [[nodiscard]] ALLOD_HOT Slab* slab_with_free_block(Domain& domain, ClassIndex c) noexcept;
  [[nodiscard]] ALLOD_HOT Slab* new_slab(Domain& domain, ClassIndex c) noexcept;
  [[nodiscard]] ALLOD_HOT space::Filling filling_for(Bin& bin, ClassIndex c) noexcept;
  [[nodiscard]] ALLOD_HOT Slab* fresh_slab(Bin& bin, ClassIndex c, slab::Owner* owner,
                                           std::uint32_t id, space::PageSource* source = nullptr,
                                           bool is_hardened = false) noexcept;
  ALLOD_HOT void populate(const space::Span& span, bool will_be_full) noexcept;
  ALLOD_HOT void widen_magazine(Domain& domain, Magazine& magazine, ClassIndex c,
                                std::uint32_t most) noexcept;
  ALLOD_HOT void activate_large(Domain& domain, ClassIndex c) noexcept;
  ALLOD_HOT void resize_magazine(Domain& domain, Magazine& magazine, ClassIndex c,
                                 std::uint32_t capacity) noexcept;
  ALLOD_HOT void replace_cells(Magazine& magazine, std::uint32_t capacity) noexcept;
  static constexpr std::size_t kUsualBytes = std::size_t{32} << 10;
  static constexpr std::uint32_t kUsualBlocks = 256;
  static constexpr std::uint32_t kMostBlocks = 4096;
  // How many blocks of a class fit `bytes`, below 4 GiB; one at least.
  [[nodiscard]] static constexpr std::uint32_t capacity_for(ClassIndex c, std::size_t bytes,
                                                            std::uint32_t blocks) noexcept {
    const std::uint32_t fit = Sizes::block_index(bytes, Sizes::shape_of(c));
    return fit < 1 ? 1 : fit > blocks ? blocks : fit;
  }
  static constexpr auto kUsualCapacities = [] {
    std::array<std::uint16_t, kClasses> capacities{};
    for (ClassIndex c = 0; c < kClasses; ++c) {
      capacities[c] = static_cast<std::uint16_t>(capacity_for(c, kUsualBytes, kUsualBlocks));
    }
    return capacities;
  }();
  [[nodiscard]] std::uint32_t usual_capacity(ClassIndex c) const noexcept;
  [[nodiscard]] std::uint32_t max_capacity(ClassIndex c) const noexcept;
  // What a magazine of that capacity holds beyond the usual one, whatever the options say.
  [[nodiscard]] static std::size_t burst_bytes(ClassIndex c, std::uint32_t capacity) noexcept {
    const std::uint32_t usual = kUsualCapacities[c];
    return capacity > usual ? (capacity - usual) * Sizes::size_of(c) : 0;
  }
  [[nodiscard]] ALLOD_HOT void* allocate_huge(Domain& domain, std::size_t size, Slices alignment,
                                              bool* zero) noexcept;
  ALLOD_HOT void* make_huge(space::Span* span, space::Tag tag) noexcept;

  // release.hpp
  ALLOD_HOT void release_own(Domain& domain, ClassIndex c, void* address) noexcept;
  ALLOD_HOT void flush(Domain& domain, Magazine& magazine, ClassIndex c,
                       std::uint32_t count) noexcept;
  ALLOD_HOT void flush_newest(Domain& domain, Magazine& magazine, ClassIndex c,
                              std::uint32_t count) noexcept;
  ALLOD_HOT void put_back(Domain& domain, ClassIndex c, void** blocks,
                          std::uint32_t count) noexcept;
  // A full magazine of up to so many blocks gives up its older half. A larger one is in the midst
  // of a burst of frees: what came last goes, and not so much that the caller would have to wait.
  static constexpr std::uint32_t kLargestHalved = 512;
  static constexpr std::uint32_t kBurstFlush = 256;
  [[nodiscard]] static bool must_settle(const Slab& slab, std::uint32_t free_before) noexcept;
  template <class Retire>
  static void settle(Bin& bin, Slab& slab, std::uint32_t free_before, Retire&& retire) noexcept;
  ALLOD_HOT void retire(Domain& domain, Bin& bin, Slab& slab) noexcept;
  ALLOD_HOT void remove(Domain& domain, Bin& bin, Slab& slab) noexcept;
  ALLOD_HOT void release_huge(Domain* own, void* address) noexcept;
  ALLOD_HOT void drop_magazine(Domain& domain, Magazine& magazine, ClassIndex c) noexcept;

  // remote.hpp
  ALLOD_HOT void release_others(Domain& domain, void* address) noexcept;
  [[nodiscard]] bool join_batch(Domain& domain, const Slab& slab, const void* address) noexcept;
  ALLOD_HOT void release_anything(Domain& domain, void* address) noexcept;
  ALLOD_HOT void mark_remote(Slab& slab, std::uint32_t word, Word bits) noexcept;
  ALLOD_HOT void send(Domain& domain, RemoteBatch& batch) noexcept;
  ALLOD_HOT void send_all(Domain& domain) noexcept;
  void collect_inbox(Domain& domain) noexcept;
  ALLOD_HOT void collect(Domain& domain, Slab& slab) noexcept;

  // kept.hpp
  [[nodiscard]] ALLOD_HOT bool keep(Domain& domain, space::Span& span) noexcept;
  [[nodiscard]] bool may_keep() const noexcept {
    return options_.purge_delay_ms > 0 && options_.purge_thread && !space_.refuses_purge();
  }
  [[nodiscard]] bool make_room_for_kept(Kept& kept, std::size_t bytes) noexcept;
  [[nodiscard]] bool reserve_kept(Kept& kept, std::size_t bytes) noexcept;
  void ask_for_share(const Kept& kept, std::size_t bytes) noexcept;
  ALLOD_HOT void set_reserved(Kept& kept, std::size_t bytes) noexcept;
  [[nodiscard]] ALLOD_HOT void* take_kept(Domain& domain, Slices size, Slices alignment,
                                          bool wants_zeros) noexcept;
  [[nodiscard]] void* take_sparse(Domain& domain, Slices size, Slices alignment,
                                  bool may_grow) noexcept;
  [[nodiscard]] void* hand_out_kept(Domain& domain, space::Span& span) noexcept;
  ALLOD_HOT void mark_kept(space::Span& span, bool is_kept) noexcept;
  // Mostly there is nothing.
  ALLOD_INLINE void put_aside(Domain& domain) noexcept {
    if (__builtin_expect(domain.kept.span != nullptr, 0)) put_last_aside(domain);
  }
  ALLOD_NOINLINE void put_last_aside(Domain& domain) noexcept;
  void add_sparse(Kept& kept, space::Span& span, std::size_t present) noexcept;
  static space::Span* remove_sparse(Kept& kept, std::uint32_t index) noexcept;
  void end_old_sparse(Kept& kept) noexcept;
  ALLOD_INLINE void give_back_kept(Kept& kept, std::uint32_t age_ms = 0) noexcept {
    if (__builtin_expect(!kept.is_nothing(), 0)) give_back_all_kept(kept, age_ms);
  }
  ALLOD_NOINLINE void give_back_all_kept(Kept& kept, std::uint32_t age_ms) noexcept;
  // Those that have not kept or taken anything since the last look; or have more than their share.
  enum class Keepers : std::uint8_t { all, resting, greedy };
  ALLOD_HOT void give_back_kept_of(Keepers which) noexcept;
  ALLOD_HOT void look_at_kept() noexcept;
  void give_up_everything(Domain& domain) noexcept;

  // resize.hpp
  [[nodiscard]] bool grow(Domain* own, space::Span& span, Slices to) noexcept;
  [[nodiscard]] ALLOD_HOT void* resize_huge(Domain* own, void* address, std::size_t size,
                                            space::Tag tag) noexcept;

  // lifetime.hpp
  [[nodiscard]] ALLOD_HOT Domain* new_domain(DomainState state) noexcept;
  ALLOD_HOT void strip(Domain& domain) noexcept;
  [[nodiscard]] ALLOD_HOT Slab* adopt(Domain& domain, ClassIndex c) noexcept;
  [[nodiscard]] ALLOD_HOT Slab* adopt_locked(Domain& domain, ClassIndex c,
                                             const void** doubled) noexcept;
  ALLOD_HOT void abandon(Slab& slab, const void** doubled) noexcept;
  bool collect_quietly(Slab& slab, const void** doubled) noexcept;
  template <class D>
  static ALLOD_HOT void disown_slabs(D& domain) noexcept;
  ALLOD_HOT void surrender(Domain& domain) noexcept;
  ALLOD_HOT void surrender_locked(Domain& domain, const void** doubled) noexcept;
  ALLOD_HOT void set_slab_tags(const Slab& slab, space::Tag tag) noexcept;
  ALLOD_HOT void reap_orphans(std::uint32_t looks) noexcept;
  ALLOD_HOT void reap_orphans_locked(ClassIndex c, std::uint32_t* looks,
                                     const void** doubled) noexcept;
  [[nodiscard]] ALLOD_HOT bool is_quiet_but_for(const Domain* own) noexcept;

  // thread_cache.hpp
  ALLOD_HOT void grow_cache(Cache& cache, Magazine& magazine, ClassIndex c) noexcept;
  ALLOD_HOT void give_home(Cache& cache, Magazine& magazine, ClassIndex c,
                           std::uint32_t count) noexcept;
  ALLOD_HOT void empty_in_turn(Cache& cache) noexcept;
  void forget_caches(Domain& domain, const Cache* own) noexcept;

  // first_class.hpp
  void keep_own_seat() noexcept;
  void check_in_use(const HeapDomain& heap) const noexcept;
  void close_heap(HeapDomain& heap) noexcept;
  [[nodiscard]] HeapDomain* new_heap() noexcept;
  static void copy_name(HeapDomain& heap, const char* name) noexcept;
  [[nodiscard]] bool open_source(HeapDomain& heap, const space::PageWishes& wishes,
                                 int* error) noexcept;
  void abandon_slabs(HeapDomain& heap, const void** doubled) noexcept;
  void destroy_in_turn(HeapDomain& heap) noexcept;
  void free_in_use(HeapDomain& heap, space::Span* span) noexcept;
  void pool_heap(HeapDomain& heap) noexcept;
  static void snapshot(HeapDomain& heap, Address* bases) noexcept;
  template <class Visit>
  [[nodiscard]] bool walk_span(HeapDomain& heap, Address base, Visit&& visit) noexcept;

  // first_class_blocks.hpp
  [[nodiscard]] void* serve(Domain* own, HeapDomain& heap, const void* beside,
                            HeapRequest& request) noexcept;
  [[nodiscard]] void* take_from(HeapDomain& heap, HeapRequest& request) noexcept;
  [[nodiscard]] void* take_class(HeapDomain& heap, ClassIndex c, HeapRequest& request) noexcept;
  [[nodiscard]] static void* take_newest(HeapDomain& heap, ClassIndex c) noexcept;
  [[nodiscard]] Slab* at_hand(HeapDomain& heap, ClassIndex c) noexcept;
  [[nodiscard]] static Slab* first_with_room(HeapDomain& heap, ClassIndex c) noexcept;
  [[nodiscard]] bool release_small(HeapDomain& heap, Slab& slab, void* address,
                                   LeaningTurn& turn) noexcept;
  void release_behind_newest(HeapDomain& heap, Slab& slab, void* address) noexcept;
  void settle_and_leave(HeapDomain& heap, Slab& slab, std::uint32_t free_before) noexcept;
  [[nodiscard]] static void* take_at_hand(HeapDomain& heap, Slab& slab,
                                          HeapRequest& request) noexcept;
  static void put_full_away(HeapDomain& heap, Slab& slab) noexcept;
  [[nodiscard]] static ClassIndex class_for(const HeapRequest& request) noexcept;
  static void count_taken(HeapDomain& heap, Slab& slab) noexcept;
  [[nodiscard]] void* take_with_look(HeapDomain& heap, ClassIndex c, HeapRequest& request) noexcept;
  [[nodiscard]] Slab* look_for_slab(HeapDomain& heap, ClassIndex c, HeapRequest& request) noexcept;
  [[nodiscard]] Slab* stock_bin(HeapDomain& heap, ClassIndex c) noexcept;
  [[nodiscard]] void* take_huge(HeapDomain& heap, HeapRequest& request) noexcept;
  [[nodiscard]] bool is_owned_by(const HeapDomain& heap, const void* address) const noexcept;
  void release_in_turn(HeapDomain& heap, void* address, HeapRelease& outcome) noexcept;
  void tell(HeapDomain& heap, const HeapRelease& outcome, const void* address) noexcept;
  void mark_for_heap(Domain* own, Slab& slab, void* address) noexcept;
  [[nodiscard]] bool release_small_at_once(space::Tag tag, void* address) noexcept;
  void release_to_heap_in_turn(Domain* own, void* address, bool interrupts) noexcept;
  void free_huge_of_heap(space::Span* span, void* address) noexcept;
  [[nodiscard]] HugeRelease free_huge_in_turn(HeapDomain& heap, space::Span* span, void* address,
                                              bool reported) noexcept;
  [[nodiscard]] void* resize_in_heap(void* address, std::size_t size) noexcept;
  // first_class_hardened.hpp
  [[nodiscard]] bool open_hardening(HeapDomain& heap) noexcept;
  void close_hardening(HeapDomain& heap) noexcept;
  [[nodiscard]] void* take_hardened(HeapDomain& heap, HeapRequest& request) noexcept;
  [[nodiscard]] void* take_at_random(HeapDomain& heap, Slab& slab, std::size_t size) noexcept;
  void seal_huge(HeapDomain& heap, void* block, std::size_t size, std::size_t guard) noexcept;
  [[nodiscard]] static bool is_huge_intact(const HeapDomain& heap,
                                           const space::Span& span) noexcept;
  void report_huge(const space::Span& span) const noexcept;
  // Of a block of its own span: up to the end of its canary.
  [[nodiscard]] static std::size_t sealed_bytes(std::size_t size) noexcept {
    return align_up(size, 8) + SizedCanary::kBytes;
  }
  void clear_fresh(HeapDomain& heap, Slab& slab) noexcept;
  bool clear(const space::Span& span, Address from, std::size_t bytes) noexcept;
  bool erase(Slab& slab, std::uint32_t index) noexcept;
  void release_hardened(HeapDomain& heap, Slab& slab, void* address, HeapRelease& outcome) noexcept;
  void end_waiting(HeapDomain& heap, void* block) noexcept;
  void end_all_waiting(HeapDomain& heap) noexcept;
  void collect_hardened(HeapDomain& heap, Slab& slab, const void** doubled) noexcept;
  [[nodiscard]] bool is_unwritten(const Slab& slab, Address block) noexcept;
  void check_unwritten(HeapDomain& heap, const Slab& slab, void* block) noexcept;
  void check_block_before(HeapDomain& heap, const Slab& slab, std::uint32_t index) noexcept;
  void note(HeapDomain& heap, const Slab& slab, Finding finding) noexcept;
  void tell_findings(HeapDomain& heap) noexcept;
  void settle_hardening(HeapDomain& heap) noexcept;
  [[nodiscard]] Bounds bounds_elsewhere(Address at, space::Tag tag) const noexcept;
  [[nodiscard]] static std::size_t canary_end(const space::Span& span, std::size_t step) noexcept {
    return span.home == nullptr ? sealed_bytes(span.block_state) : step;
  }
  [[nodiscard]] std::size_t sealed_size(const HeapDomain& heap, const Misuse& block) const noexcept;
  [[nodiscard]] bool is_sealed_nothing(const HeapDomain& heap, const Misuse& block) const noexcept;
  [[nodiscard]] std::size_t hardened_size(const HeapDomain& heap,
                                          const Misuse& block) const noexcept;
  [[nodiscard]] Bounds sealed_bounds(const space::Span& span, space::Tag tag,
                                     const Bounds& whole) const noexcept;
  [[nodiscard]] bool read_sealed(HeapDomain& heap, const void* block, std::size_t step,
                                 std::size_t* bytes) noexcept;
  void hide_waiting(HeapDomain& heap, const Slab& slab, Word* used) noexcept;
  // first_class_mixed.hpp
  [[nodiscard]] void* take_from_buffer(HeapDomain& heap, HeapRequest& request) noexcept;
  [[nodiscard]] void* take_mixed(HeapDomain& heap, HeapRequest& request) noexcept;
  [[nodiscard]] void* find_run(HeapDomain& heap, std::uint32_t grains,
                               std::size_t alignment) noexcept;
  [[nodiscard]] slab::MixedSlab* new_mixed_slab(HeapDomain& heap) noexcept;
  void add_mixed_slab(HeapDomain& heap, slab::MixedSlab& slab) noexcept;
  void release_mixed(HeapDomain& heap, slab::MixedSlab& slab, const void* address,
                     HeapRelease& outcome) noexcept;
  void collect_mixed(HeapDomain& heap, slab::MixedSlab& slab, const void** doubled) noexcept;
  void retire_if_empty(HeapDomain& heap, slab::MixedSlab& slab) noexcept;

  [[nodiscard]] static bool is_newest(const HeapDomain& heap, const Slab& slab,
                                      const void* address) noexcept;
  void put_newest_back(HeapDomain& heap) noexcept;
  void settle_in_heap(HeapDomain& heap, Slab& slab, std::uint32_t free_before) noexcept;
  void retire_from_heap(HeapDomain& heap, Bin& bin, Slab& slab) noexcept;
  void collect_in_heap(HeapDomain& heap, const void** doubled) noexcept;
  void give_up_empty(HeapDomain& heap) noexcept;

  // purge.hpp
  ALLOD_HOT void look_around(Domain& domain) noexcept;
  enum class Shrink : std::uint8_t { idle, spare };
  ALLOD_HOT void shrink_magazines(Domain& domain, Shrink which) noexcept;
  ALLOD_HOT void retire_last(Domain& domain, Bin& bin) noexcept;
  ALLOD_HOT void maybe_purge() noexcept;
  ALLOD_HOT void ask_for_look(Domain& domain) noexcept;
  void purge_delayed() noexcept;
  // Of the budget, what domains do not keep, but never less than a quarter: without any, each slab
  // that becomes empty would be purged. Or, if that is more, what would be in use if nothing had
  // been freed lately: a program that soon needs as much again finds it, and never has more
  // memory than it has needed. The delay sees to it that it goes.
  [[nodiscard]] std::size_t purge_budget() const noexcept {
    const std::size_t least = options_.purge_budget / 4;
    const std::size_t kept = kept_bytes_.load(std::memory_order_relaxed);
    const std::size_t budget =
        kept < options_.purge_budget - least ? options_.purge_budget - kept : least;
    if (!helper_.is_running()) return budget;
    const std::size_t below = space_.below_peak();
    const std::size_t lately = below < options_.most_below_peak ? below : options_.most_below_peak;
    return lately > budget ? lately : budget;
  }
  // By as much the helper goes below a budget that was passed, and callers let it be passed.
  [[nodiscard]] static constexpr std::size_t headroom(std::size_t budget) noexcept {
    return budget / 8;
  }
  [[nodiscard]] std::size_t dirty_bytes() const noexcept {
    return space_.dirty_bytes() + kept_bytes_.load(std::memory_order_relaxed);
  }
  ALLOD_HOT void return_stocks(Domain& domain) noexcept;
  void give_up_stocks(Domain& domain) noexcept;
  ALLOD_HOT void start_helper() noexcept;
  [[nodiscard]] ALLOD_HOT bool has_work_for_helper() const noexcept;
  static ALLOD_HOT void purge_on_helper(void* heap) noexcept;
  ALLOD_HOT void purge_until_done() noexcept;

  // rest.hpp
  [[nodiscard]] ALLOD_HOT bool pause() noexcept;
  [[nodiscard]] bool pause_within(int tries) noexcept;
  [[nodiscard]] ALLOD_HOT bool pause_in_turn() noexcept;
  ALLOD_HOT bool resume() noexcept;
  [[nodiscard]] ALLOD_HOT bool collect_resting() noexcept;
  enum class Owners : std::uint8_t { resting, all };
  [[nodiscard]] ALLOD_HOT bool collect_for(Owners which) noexcept;
  [[nodiscard]] ALLOD_HOT bool collect_at_rest(Domain& domain, std::uint32_t* looks) noexcept;
  ALLOD_HOT void reap_at_rest() noexcept;
  [[nodiscard]] ALLOD_HOT bool purge_resting() noexcept;
  [[nodiscard]] ALLOD_HOT RestStep purge_resting_in(Address at, Address end, Owners which) noexcept;

  ALLOD_COLD void report(MisuseKind kind, const void* address) noexcept {
    Reporter::report(describe(kind, address));
  }

  Space space_;
  HeapOptions options_;
  ForkGate<Platform> gate_;
  bool usable_ = false;
  std::atomic<bool> ending_{false};
  Lock fork_lock_{LockRank::fork};  // of a fork, a pause, or who takes what others keep
  Lock registry_lock_{LockRank::registry};
  DomainList domains_;
  DomainPool pool_;
  HeapList heaps_;
  HeapPool heap_pool_;
  SeatList seats_;
  FreeSeats free_seats_;
  std::uint32_t pooled_heaps_ = 0;
  // Where uses of heaps that are gone are to be found out, the last ones stay what they were.
  static constexpr std::uint32_t kKeptHeaps = [] {
    if constexpr (requires { Policy::kKeptHeaps; }) return Policy::kKeptHeaps;
    return 0U;
  }();
  std::uint32_t next_heap_id_ = space::kMaxOwner;
  std::uint32_t next_id_ = 2;
  std::atomic<std::uint32_t> cache_count_{0};
  SpanList orphans_[kClasses] = {};
  std::atomic<std::uint32_t> orphan_count_[kClasses] = {};
  std::atomic<ClassIndex> last_reaped_{0};                // where the last look at orphans ended
  std::atomic<std::size_t> kept_bytes_{0};                // that domains have reserved
  std::atomic<std::uint32_t> keepers_{0};                 // and how many have
  std::atomic<std::size_t> kept_share_{~std::size_t{0}};  // the most that one may have
  std::atomic<bool> kept_short_{false};  // somebody has less than that, and got nothing
  HelperState helper_;                   // only one that is running takes back what is kept
  ForkPause fork_pause_;
  std::atomic<bool> look_is_wanted_{false};  // much has become free within slabs
  std::atomic<std::size_t> loosened_{0};     // about so much, since the helper looked last
  RestWalk rest_walk_;                       // the helper's
};

}  // namespace allod::heap

#include "allod/heap/allocate.hpp"
#include "allod/heap/first_class.hpp"
#include "allod/heap/first_class_blocks.hpp"
#include "allod/heap/first_class_hardened.hpp"
#include "allod/heap/first_class_mixed.hpp"
#include "allod/heap/first_class_release.hpp"
#include "allod/heap/inspect.hpp"
#include "allod/heap/kept.hpp"
#include "allod/heap/lifetime.hpp"
#include "allod/heap/purge.hpp"
#include "allod/heap/release.hpp"
#include "allod/heap/remote.hpp"
#include "allod/heap/resize.hpp"
#include "allod/heap/rest.hpp"
#include "allod/heap/thread_cache.hpp"

// Layer 5: domains over one space. What happens when a magazine is empty or full, when a block
// belongs to somebody else or is huge, and when a domain comes and goes.
#pragma once

#include <array>
#include <concepts>

#include "allod/heap/domain.hpp"
#include "allod/heap/helper_state.hpp"
#include "allod/heap/misuse.hpp"
#include "allod/heap/options.hpp"
#include "allod/heap/rest_walk.hpp"
#include "allod/heap/slow_path.hpp"
#include "allod/heap/turn.hpp"

namespace allod::heap {

// Blocks from here on are worth a magazine only while they are in use again and
// again: a single one holds more memory than a magazine of small ones.
inline constexpr std::size_t kLargeBlock = std::size_t{32} << 10;
// From here on, what realloc moves gets a span of its own.
inline constexpr std::size_t kGrowable = kSliceBytes;

// What the engine asks of the class above it, and nothing else. That class has owners of slabs and
// spans that are no domains; tags mark their blocks as heaps' (space::is_heaps).
template <class A>
concept HeapsAbove = requires(A& above, typename A::Domain* own, space::Tag tag, void* address) {
  // Frees a block with such a tag, which was read of it. `own`: the caller's domain, or null.
  above.release_to_heap(own, tag, address);
  // As Engine::resize_in_place(), for a block with such a tag.
  { above.resize_in_heap(address, std::size_t{}) } -> std::same_as<void*>;
  // With the gate closed and the registry's lock held: is no thread changing one of these owners?
  { above.are_heaps_quiet() } -> std::same_as<bool>;
};

// Policy names the parts: Platform, Sizes, Reporter, and the level of checks. Above is the class
// that derives from this one, heaps::Heap.
// One object, constant-initialised; all functions but start() are thread-safe as
// long as each thread passes its own domain.
template <class Policy, class Above>
class Engine {
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
  static constexpr ClassIndex kClasses = Sizes::kCount;

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

  // Bytes that the block at `address` offers, for a fast path: false for all but blocks in slabs of
  // domains.
  [[nodiscard]] bool fast_usable_size(const void* address, std::size_t* bytes) const noexcept;
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
  [[nodiscard]] const Space& space() const noexcept { return space_; }
  // False when the system gave no addresses: then there is no memory.
  [[nodiscard]] bool is_usable() const noexcept { return usable_; }
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
  // While no other thread uses the heap: walks and checks everything that is a domain's.
  void check_invariants() noexcept;

 protected:
  // --- for the class above: slabs with other owners -----------------------------------

  // A slab of class `c` for the owner with this id, which keeps it in `bin`; or null.
  [[nodiscard]] ALLOD_HOT Slab* fresh_slab(Bin& bin, ClassIndex c, slab::Owner* owner,
                                           std::uint32_t id, space::PageSource* source = nullptr,
                                           bool is_hardened = false) noexcept;
  // Has a slab that had `free_before` free blocks to go to another place in its bin? Then settle()
  // puts it there, or calls `retire` for one that is empty.
  [[nodiscard]] static bool must_settle(const Slab& slab, std::uint32_t free_before) noexcept;
  template <class Retire>
  static void settle(Bin& bin, Slab& slab, std::uint32_t free_before, Retire&& retire) noexcept;
  // Before an owner goes: its slabs have none any more, and its inbox is closed.
  template <class D>
  static ALLOD_HOT void disown_slabs(D& domain) noexcept;
  // With the registry's lock held: a slab in no list and without owner becomes an orphan, or free.
  // `*doubled` is set to a block that was freed twice, if there is one.
  ALLOD_HOT void abandon(Slab& slab, const void** doubled) noexcept;
  // Marks blocks of a slab that somebody else owns as free.
  ALLOD_HOT void mark_remote(Slab& slab, std::uint32_t word, Word bits) noexcept;
  // As resize_in_place(), for a block that is a span; its tag stays this one.
  [[nodiscard]] ALLOD_HOT void* resize_huge(Domain* own, void* address, std::size_t size,
                                            space::Tag tag) noexcept;
  // Within a slow path of the domain: everything that is free in it becomes free spans.
  void give_up_stocks(Domain& domain) noexcept;
  // What domains keep goes: of all; of those that have not kept or taken anything since the last
  // look; or of those that have more than their share.
  enum class Keepers : std::uint8_t { all, resting, greedy };
  ALLOD_HOT void give_back_kept_of(Keepers which) noexcept;
  // After something was freed.
  ALLOD_HOT void maybe_purge() noexcept;
  // Part of check_invariants().
  void check_slab(const Slab& slab, ClassIndex c, space::Tag tag) const noexcept;
  // The caller holds no lock.
  ALLOD_COLD void report(MisuseKind kind, const void* address) noexcept {
    Reporter::report(describe(kind, address));
  }

 private:
  // Only that class makes an engine.
  friend Above;
  constexpr Engine() noexcept = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] Above& above() noexcept {
    static_assert(HeapsAbove<Above>);
    return static_cast<Above&>(*this);
  }

  using DomainList = List<Domain, &Domain::links>;
  using DomainPool = List<Domain, &Domain::pool_links>;

  // allocate.hpp
  [[nodiscard]] ALLOD_HOT void* refill(Domain& domain, ClassIndex c, bool* zero) noexcept;
  [[nodiscard]] static void* take_one(Slab& slab, bool* virgin) noexcept;
  static void take_some(Slab& slab, void** out, std::uint32_t count) noexcept;
  [[nodiscard]] ALLOD_HOT Slab* slab_with_free_block(Domain& domain, ClassIndex c) noexcept;
  [[nodiscard]] ALLOD_HOT Slab* new_slab(Domain& domain, ClassIndex c) noexcept;
  [[nodiscard]] ALLOD_HOT space::Filling filling_for(Bin& bin, ClassIndex c) noexcept;
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
  ALLOD_HOT void retire(Domain& domain, Bin& bin, Slab& slab) noexcept;
  ALLOD_HOT void remove(Domain& domain, Bin& bin, Slab& slab) noexcept;
  ALLOD_HOT void release_huge(Domain* own, void* address) noexcept;
  ALLOD_HOT void drop_magazine(Domain& domain, Magazine& magazine, ClassIndex c) noexcept;

  // remote.hpp
  ALLOD_HOT void release_others(Domain& domain, void* address) noexcept;
  [[nodiscard]] bool join_batch(Domain& domain, const Slab& slab, const void* address) noexcept;
  ALLOD_HOT void release_anything(Domain& domain, void* address) noexcept;
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
  ALLOD_HOT void look_at_kept() noexcept;
  void give_up_everything(Domain& domain) noexcept;

  // resize.hpp
  [[nodiscard]] bool grow(Domain* own, space::Span& span, Slices to) noexcept;

  // lifetime.hpp
  [[nodiscard]] ALLOD_HOT Domain* new_domain(DomainState state) noexcept;
  ALLOD_HOT void strip(Domain& domain) noexcept;
  [[nodiscard]] ALLOD_HOT Slab* adopt(Domain& domain, ClassIndex c) noexcept;
  [[nodiscard]] ALLOD_HOT Slab* adopt_locked(Domain& domain, ClassIndex c,
                                             const void** doubled) noexcept;
  bool collect_quietly(Slab& slab, const void** doubled) noexcept;
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

  // purge.hpp
  ALLOD_HOT void look_around(Domain& domain) noexcept;
  enum class Shrink : std::uint8_t { idle, spare };
  ALLOD_HOT void shrink_magazines(Domain& domain, Shrink which) noexcept;
  ALLOD_HOT void retire_last(Domain& domain, Bin& bin) noexcept;
  ALLOD_HOT void ask_for_look(Domain& domain) noexcept;
  void purge_delayed() noexcept;
  [[nodiscard]] std::size_t purge_budget() const noexcept;
  [[nodiscard]] std::size_t dirty_bytes() const noexcept;
  ALLOD_HOT void return_stocks(Domain& domain) noexcept;
  ALLOD_HOT void start_helper() noexcept;
  [[nodiscard]] ALLOD_HOT bool has_work_for_helper() const noexcept;
  static ALLOD_HOT void purge_on_helper(void* engine) noexcept;
  ALLOD_HOT void purge_until_done() noexcept;

  // rest.hpp
  [[nodiscard]] ALLOD_HOT bool pause() noexcept;
  [[nodiscard]] bool pause_within(int tries) noexcept;
  [[nodiscard]] ALLOD_HOT bool pause_in_turn() noexcept;
  ALLOD_HOT bool resume() noexcept;
  [[nodiscard]] ALLOD_HOT bool collect_resting() noexcept;
  enum class Owners : std::uint8_t { resting, loose, all };
  [[nodiscard]] ALLOD_HOT bool collect_for(Owners which) noexcept;
  [[nodiscard]] ALLOD_HOT bool collect_at_rest(Domain& domain, std::uint32_t* looks) noexcept;
  ALLOD_HOT void reap_at_rest() noexcept;
  [[nodiscard]] ALLOD_HOT bool purge_resting() noexcept;
  void purge_holes() noexcept;
  [[nodiscard]] bool grows_beside_holes() const noexcept {
    const std::size_t loose = loosened_.load(std::memory_order_relaxed);
    if (loose < kMuchLoose || !helper_.is_running()) return false;
    return space_.fresh_bytes() - fresh_before_.load(std::memory_order_relaxed) >= loose / 8;
  }
  [[nodiscard]] ALLOD_HOT RestStep purge_resting_in(Address at, Address end, Owners which) noexcept;

  Space space_;
  HeapOptions options_;
  ForkGate<Platform> gate_;
  bool usable_ = false;
  std::atomic<bool> ending_{false};
  Lock fork_lock_{LockRank::fork};  // of a fork, a pause, or who takes what others keep
  Lock registry_lock_{LockRank::registry};
  DomainList domains_;
  DomainPool pool_;
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
  std::atomic<bool> look_is_wanted_{false};   // much has become free within slabs
  std::atomic<std::size_t> loosened_{0};      // about so much, since the helper looked last
  std::atomic<std::size_t> fresh_before_{0};  // memory had been fresh when that was said last
  std::atomic<bool> holes_are_wanted_{false};
  RestWalk rest_walk_;  // the helper's
};

}  // namespace allod::heap

#include "allod/heap/allocate.hpp"
#include "allod/heap/inspect.hpp"
#include "allod/heap/kept.hpp"
#include "allod/heap/lifetime.hpp"
#include "allod/heap/purge.hpp"
#include "allod/heap/release.hpp"
#include "allod/heap/remote.hpp"
#include "allod/heap/resize.hpp"
#include "allod/heap/rest.hpp"
#include "allod/heap/thread_cache.hpp"

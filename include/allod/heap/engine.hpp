// Layer 5: domains over one space. Serves empty and full magazines, blocks of other domains and
// huge blocks, and the start and end of domains.
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
#include "allod/heap/written.hpp"

namespace allod::heap {

// From this size on, a class keeps a magazine only while its blocks are reused: one block holds
// more memory than a magazine of small ones.
inline constexpr std::size_t kLargeBlock = std::size_t{32} << 10;
// From this size on, realloc moves a block to a span of its own.
inline constexpr std::size_t kGrowable = kSliceBytes;

// The engine's calls into the class above it. That class has owners of slabs and spans that are not
// domains. Tags mark their blocks (space::is_heaps).
template <class A>
concept HeapsAbove = requires(A& above, typename A::Domain* own, space::Tag tag, void* address) {
  // Frees a block of a heap, whose tag the caller has read. `own`: the caller's domain, or null.
  above.release_to_heap(own, tag, address);
  // Engine::resize_in_place() for a block of a heap.
  { above.resize_in_heap(address, std::size_t{}) } -> std::same_as<void*>;
  // Whether no thread changes a heap. The gate is closed, and the registry's lock held.
  { above.are_heaps_quiet() } -> std::same_as<bool>;
};

// Policy names the parts: Platform, Sizes, Reporter, and the level of checks. Above is the derived
// class, heaps::Heap. Constant-initialised. Unless stated otherwise, functions other than start()
// are thread-safe if each thread passes its own domain.
template <class Policy, class Above>
class Engine {
 public:
  using Platform = typename Policy::Platform;
  using Sizes = typename Policy::Sizes;
  using Reporter = typename Policy::Reporter;
  static constexpr CheckLevel kChecks = Policy::kChecks;
  // Policy may keep a state for each block, see slab/block_state.hpp. It may change the order of
  // allocation: by shuffle(blocks, count), and for fewer than kGroup blocks by choice(count), the
  // index of one of `count` neighbours.
  static constexpr bool kBlockStates = requires { requires Policy::kBlockStates; };
  static constexpr bool kShuffles =
      requires(void** blocks, std::uint32_t count) { Policy::shuffle(blocks, count); };
  using Space = space::Space<Platform, kChecks>;
  using Lock = typename Space::Lock;
  using Domain = heap::Domain<Sizes, Lock>;
  using Cache = heap::ThreadCache<Sizes, Lock>;
  using Turn = heap::Turn<Domain, ForkGate<Platform>>;
  static constexpr ClassIndex kClasses = Sizes::kCount;

  // Called once, before anything else. If the system refuses addresses, allocations fail.
  ALLOD_HOT void start(const HeapOptions& options) noexcept;

  // --- domains; see heap/lifetime.hpp -----------------------------------------

  // A domain for the calling thread, or null.
  [[nodiscard]] ALLOD_HOT Domain* attach() noexcept;
  // A domain that threads share, or null. Calls with it, except detach(), need a turn (turn.hpp).
  [[nodiscard]] ALLOD_HOT Domain* attach_shared() noexcept;
  // Gives up the domain and all its memory. Slabs with blocks in use become orphans, which other
  // domains adopt.
  ALLOD_HOT void detach(Domain& domain) noexcept;
  // Gives up the slabs of a shared domain that stays in use, unless they are too many to be adopted
  // soon. The caller has a turn.
  ALLOD_HOT void pass_on(Domain& shared) noexcept;

  // --- caches of threads over a shared domain; see heap/thread_cache.hpp ----------

  // A cache for the calling thread, or null.
  [[nodiscard]] ALLOD_HOT Cache* attach_cache(Domain& home) noexcept;
  // Returns its blocks to the domain, which may reuse the cache.
  ALLOD_HOT void detach_cache(Cache& cache) noexcept;
  // Gives the cache room for `bytes` of blocks of every class, for its whole life. It then belongs
  // to no thread; see thread/processor_caches.hpp.
  ALLOD_HOT void equip_cache(Cache& cache, std::size_t bytes) noexcept;
  // Returns the cache's blocks to its domain. The cache stays in use.
  void empty_cache(Cache& cache, typename Turn::Wait wait = Turn::Wait::yes) noexcept;
  // allocate_class() for a cache whose magazine is empty.
  [[nodiscard]] ALLOD_HOT void* allocate_cached(Cache& cache, ClassIndex c, bool* zero) noexcept;
  // Frees a block of the cache's domain when the cache's magazine is full.
  ALLOD_HOT void release_cached(Cache& cache, ClassIndex c, void* address) noexcept;
  template <class Visit>
  static void for_each_cache(const Domain& domain, Visit&& visit) noexcept;

  // --- slow paths of malloc; see heap/allocate.hpp ------------------------------

  // Allocates `size` bytes when the magazine is empty or no class is large enough. Sets `*zero` if
  // all bytes are known to be zero. Null if the system refuses.
  [[nodiscard]] ALLOD_HOT void* allocate(Domain& domain, std::size_t size, bool* zero) noexcept;
  // The same with an alignment above 16, a power of two.
  [[nodiscard]] ALLOD_HOT void* allocate_aligned(Domain& domain, std::size_t size,
                                                 std::size_t alignment, bool* zero) noexcept;
  // The same for a class, from the magazine if possible.
  [[nodiscard]] void* allocate_class(Domain& domain, ClassIndex c, bool* zero) noexcept {
    if (void* const block = domain.magazines[c].pop()) return block;
    return refill(domain, c, zero);
  }

  // While allocations are counted: whether enough blocks were freed to be reused. Otherwise the
  // magazine is filled from a slab, until half of its usual capacity has been freed.
  [[nodiscard]] bool can_reuse(const Front<Sizes>& front, ClassIndex c) const noexcept;
  [[nodiscard]] std::uint32_t worth_reuse(ClassIndex c) const noexcept;

  // --- slow paths of free; see heap/release.hpp and heap/remote.hpp --------------

  // Frees any block: the magazine is full, or it is of another domain, huge, or no block at all.
  ALLOD_HOT void release(Domain& domain, void* address) noexcept;
  // For a thread that has no domain and shall not get one.
  void release_detached(void* address) noexcept;
  // Whether the caller is a signal handler that would wait for ever for a lock of the space.
  [[nodiscard]] ALLOD_INLINE bool is_interrupting() const noexcept {
    return __builtin_expect(HeldLocks::any_of_space(), 0) && !gate_.lets_pass();
  }
  // Frees for it, or for one that would wait for a fork: marks blocks of slabs, leaks all others.
  ALLOD_COLD void release_interrupting(void* address) noexcept;

  // --- questions; see heap/inspect.hpp ------------------------------------------

  // The usable bytes of a block, for a fast path. False for all but blocks in slabs of domains.
  [[nodiscard]] bool fast_usable_size(const void* address, std::size_t* bytes) const noexcept;
  // Describes the address, and whether it is the start of a block in use. Stops no thread, so the
  // answer may be out of date.
  [[nodiscard]] ALLOD_HOT Misuse describe(MisuseKind kind, const void* address) const noexcept;
  // Describes an address behind the last block of a slab as if it were in that block. False, and
  // no change, for other addresses.
  [[nodiscard]] bool describe_behind(const void* address, Misuse* misuse) const noexcept;
  // Whether the address is in a guard behind a slab or a block.
  [[nodiscard]] bool is_guarded(const void* address) const noexcept;
  // Whether a domain keeps the span, in whole or in part present, for its next request. For the
  // space it is used.
  [[nodiscard]] ALLOD_HOT static bool is_kept(const space::Span& span) noexcept;
  [[nodiscard]] std::size_t present_in_kept(const space::Span& span) noexcept;
  // The misuse if an address in a span, but not in its first slice, is freed.
  [[nodiscard]] MisuseKind kind_of_interior(const void* address) const noexcept;
  // The bytes from an address in a slab to the end of its block, free or used; behind the last
  // block, to the end of the slab. SIZE_MAX for other addresses. Takes no lock and never faults.
  [[nodiscard]] ALLOD_COLD std::size_t room_in_place(const void* address) const noexcept;

  // --- realloc; see heap/resize.hpp ----------------------------------------------

  // Whether realloc has nothing to do: `address` is an own block of the class of `size`, or a huge
  // block of as many slices. May be false although it holds.
  [[nodiscard]] ALLOD_HOT bool fits(const Front<Sizes>& front, const void* address,
                                    std::size_t size) const noexcept;
  // Resizes a block in place or by moving its pages. Null, and no change, if neither is possible.
  // `own`: the caller's domain, or null.
  [[nodiscard]] ALLOD_HOT void* resize_in_place(Domain* own, void* address,
                                                std::size_t size) noexcept;
  // A new place for a block that grows to `size` and cannot be resized. Null if the size is too
  // small or the system refuses: then allocate it as usual. `own`: as above.
  [[nodiscard]] ALLOD_HOT void* allocate_growing(Domain* own, std::size_t size) noexcept;

  // --- memory back to the system; see heap/purge.hpp ------------------------------

  // Empties the domain's magazines into slabs, and retires empty slabs. trim() also purges, and
  // returns how much.
  void give_up(Domain& domain) noexcept;
  std::size_t trim(Domain& domain) noexcept;
  // Frees the huge blocks that domains keep, except of domains in a slow path.
  void give_up_kept() noexcept { give_back_kept_of(Keepers::all); }
  // Purges free pages within slabs, and returns their bytes. Not within slow paths.
  std::size_t purge_slabs() noexcept;
  // Collects remote frees for all domains, and frees empty slabs. Gives up, as purge_slabs() does,
  // if a thread stays in a slow path for a second. Not within slow paths.
  void collect_for_others() noexcept;
  // Shrinks the page map for a new address-space limit that would leave the process too little; see
  // PageMap::narrow. Thread-safe; no thread is in a slow path meanwhile. Does nothing if one stays
  // there for long. In a child made by a bare system call, a thread of the parent may seem to.
  template <class Mappings>
  void narrow_map(std::size_t limit, bool is_alone, Mappings&& each_mapping) noexcept;
  // give_up(), with one step of the usual purge.
  ALLOD_HOT void collect(Domain& domain) noexcept;
  // Empties shared domains at rest, from time to time, if there is no helper to do it. The caller
  // holds no lock.
  ALLOD_HOT void empty_resting_if_due() noexcept;
  // Counts a burst: freed blocks that waited elsewhere have returned together. A program that
  // mostly reuses these rarely takes slow paths; part of their maintenance runs once in many
  // bursts.
  ALLOD_HOT void note_burst(Domain& domain) noexcept;
  // At the end of the process: returns the domain's cached blocks to their slabs, which detects
  // double and invalid frees. Takes no lock. From then on, no slab is freed.
  ALLOD_HOT void check_stocks(Domain& domain) noexcept;

  // --- the helper; see heap/purge.hpp ----------------------------------------------

  // Ends the helper, and keeps it away until a matching let_helper_come(), so that the process has
  // only its own threads. Unless calls are frequent, the caller then frees kept blocks and purges
  // in its place. True if a helper ran and has ended. Waits for at most 0.1 s; not at all with
  // Wait::no, or if the caller has interrupted a holder of a lock. Not for a child of vfork.
  // Thread-safe.
  enum class Wait : bool { no, yes };
  bool send_helper_away(Wait wait = Wait::yes) noexcept;
  void let_helper_come() noexcept { helper_.let_come(); }

  // --- fork; see heap/lifetime.hpp -------------------------------------------------

  // Waits until all threads have left their slow paths, and keeps them out. `own`: the forking
  // thread's domain, or null.
  void before_fork(const Domain* own) noexcept;
  void after_fork_in_parent() noexcept;
  // `own` and `cache` are those of the remaining thread, or null.
  void after_fork_in_child(Domain* own, const Cache* cache = nullptr) noexcept;

  [[nodiscard]] Space& space() noexcept { return space_; }
  [[nodiscard]] const Space& space() const noexcept { return space_; }
  // False if the system gave no addresses: then all allocations fail.
  [[nodiscard]] bool is_usable() const noexcept { return usable_; }
  // The processors to prepare for, at least 1. Asks the system unless the options say.
  [[nodiscard]] std::uint32_t processors() noexcept {
    return options_.processors != 0 ? options_.processors : space_.platform().processors();
  }
  [[nodiscard]] const HeapOptions& options() const noexcept { return options_; }
  [[nodiscard]] HeapOptions& options() noexcept { return options_; }
  [[nodiscard]] Lock& registry_lock() noexcept { return registry_lock_; }
  [[nodiscard]] ForkGate<Platform>& gate() noexcept { return gate_; }

  // Every domain ever made. With the registry's lock held.
  template <class Visit>
  void for_each_domain(Visit&& visit) noexcept {
    for (Domain* d = domains_.first(); d != nullptr; d = DomainList::next(d)) visit(*d);
  }
  // The domain made after this one, or the first for null. With the registry's lock held. Domains
  // are never freed, so the lock may be released between two calls.
  [[nodiscard]] Domain* next_domain(Domain* domain) noexcept {
    return domain == nullptr ? domains_.first() : DomainList::next(domain);
  }
  // Slabs without a domain. With the registry's lock held.
  template <class Visit>
  void for_each_orphan(Visit&& visit) noexcept;
  // Checks all that domains own. No other thread may use the heap meanwhile.
  void check_invariants() noexcept;

 protected:
  // --- for the class above: slabs with other owners -----------------------------------

  // A slab of class `c` for the owner with this id, in its `bin`; or null.
  [[nodiscard]] ALLOD_HOT Slab* fresh_slab(Bin& bin, ClassIndex c, slab::Owner* owner,
                                           std::uint32_t id, space::PageSource* source = nullptr,
                                           bool is_hardened = false) noexcept;
  // Whether a slab that had `free_before` free blocks changes its place in its bin. If so, settle()
  // moves it, or calls `retire` for an empty slab.
  [[nodiscard]] static bool must_settle(const Slab& slab, std::uint32_t free_before) noexcept;
  template <class Retire>
  static void settle(Bin& bin, Slab& slab, std::uint32_t free_before, Retire&& retire) noexcept;
  // Before an owner ends: removes it from its slabs, and closes its inbox.
  template <class D>
  static ALLOD_HOT void disown_slabs(D& domain) noexcept;
  // Makes a slab without owner or list an orphan, or frees it. With the registry's lock held. Sets
  // `*doubled` to a block that was freed twice, if any.
  ALLOD_HOT void abandon(Slab& slab, const void** doubled) noexcept;
  // Marks blocks of another owner's slab as free.
  ALLOD_HOT void mark_remote(Slab& slab, std::uint32_t word, Word bits) noexcept;
  // resize_in_place() for a block that is a span. Its tag stays `tag`.
  [[nodiscard]] ALLOD_HOT void* resize_huge(Domain* own, void* address, std::size_t size,
                                            space::Tag tag) noexcept;
  // Frees all free memory of the domain. Within a slow path of it.
  void give_up_stocks(Domain& domain) noexcept;
  // Frees kept blocks: of all domains; of those that have neither kept nor reused one since the
  // last look; or of those above their share.
  enum class Keepers : std::uint8_t { all, resting, greedy };
  ALLOD_HOT void give_back_kept_of(Keepers which) noexcept;
  // Called after frees.
  ALLOD_HOT void maybe_purge() noexcept;
  void check_slab(const Slab& slab, ClassIndex c, space::Tag tag) const noexcept;
  // The caller holds no lock.
  ALLOD_COLD void report(MisuseKind kind, const void* address) noexcept;

 private:
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
  [[nodiscard]] ALLOD_COLD Slab* take_present(Bin& bin, void** out, std::uint32_t* count) noexcept;
  [[nodiscard]] ALLOD_HOT Slab* new_slab(Domain& domain, ClassIndex c) noexcept;
  [[nodiscard]] ALLOD_HOT space::Filling filling_for(Bin& bin, ClassIndex c) noexcept;
  ALLOD_HOT void populate(const space::Span& span, bool will_be_full) noexcept;
  ALLOD_HOT void widen_magazine(Domain& domain, Magazine& magazine, ClassIndex c,
                                std::uint32_t most) noexcept;
  ALLOD_HOT void activate_large(Domain& domain, ClassIndex c) noexcept;
  ALLOD_HOT void resize_magazine(Domain& domain, Magazine& magazine, ClassIndex c,
                                 std::uint32_t capacity) noexcept;
  ALLOD_HOT void replace_cells(Domain& domain, Magazine& magazine, std::uint32_t capacity) noexcept;
  static constexpr std::size_t kUsualBytes = std::size_t{32} << 10;
  static constexpr std::uint32_t kUsualBlocks = 256;
  static constexpr std::uint32_t kMostBlocks = 4096;
  // The blocks of a class in `bytes`, below 4 GiB; at least one.
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
  // The bytes in a magazine beyond the usual capacity, whatever the options say.
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
  template <class Refuse>
  void put_back(Domain& domain, ClassIndex c, void** blocks, std::uint32_t count,
                Refuse&& refuse) noexcept;
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
  [[nodiscard]] bool may_keep() const noexcept;
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
  ALLOD_INLINE void put_aside(Domain& domain) noexcept;
  ALLOD_NOINLINE void put_last_aside(Domain& domain) noexcept;
  void add_sparse(Kept& kept, space::Span& span, std::size_t present) noexcept;
  static space::Span* remove_sparse(Kept& kept, std::uint32_t index) noexcept;
  void note_written(const space::Span& span, std::size_t present) noexcept;
  void free_present(space::Span& span, std::size_t present) noexcept;
  void free_oldest_sparse(Kept& kept) noexcept;
  [[nodiscard]] bool moves_pages() const noexcept { return !kBlockStates && options_.move_pages; }
  [[nodiscard]] bool fill(space::Span& span) noexcept;
  void end_old_sparse(Kept& kept) noexcept;
  ALLOD_INLINE void give_back_kept(Kept& kept, std::uint32_t age_ms = 0) noexcept;
  ALLOD_NOINLINE void give_back_all_kept(Kept& kept, std::uint32_t age_ms) noexcept;
  ALLOD_HOT void look_at_kept() noexcept;
  void give_up_everything(Domain& domain) noexcept;

  // resize.hpp
  [[nodiscard]] bool grow(Domain* own, space::Span& span, Slices to) noexcept;

  // lifetime.hpp
  [[nodiscard]] ALLOD_HOT Domain* new_domain(DomainState state) noexcept;
  ALLOD_HOT void strip(Domain& domain) noexcept;
  [[nodiscard]] ALLOD_HOT Slab* adopt(Domain& domain, ClassIndex c, bool far = false) noexcept;
  [[nodiscard]] ALLOD_HOT Slab* adopt_locked(Domain& domain, ClassIndex c, bool far,
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
  template <class Step>
  void in_pauses(Step&& step) noexcept;
  [[nodiscard]] ALLOD_HOT bool collect_resting() noexcept;
  enum class Owners : std::uint8_t { resting, loose, all };
  [[nodiscard]] ALLOD_HOT bool collect_for(Owners which) noexcept;
  [[nodiscard]] ALLOD_HOT bool collect_at_rest(Domain& domain, std::uint32_t* looks) noexcept;
  ALLOD_HOT void reap_at_rest() noexcept;
  template <class GoesOn>
  [[nodiscard]] ALLOD_HOT WalkEnd walk_slabs(Address* at, Owners which, GoesOn&& goes_on) noexcept;
  [[nodiscard]] ALLOD_HOT bool purge_resting() noexcept;
  void purge_holes() noexcept;
  [[nodiscard]] ALLOD_HOT bool grows_beside_holes() const noexcept;
  [[nodiscard]] ALLOD_HOT RestStep purge_resting_in(Address at, Address end, Owners which) noexcept;

  // stocks.hpp
  ALLOD_INLINE void note_stock(Domain& domain) noexcept;
  ALLOD_NOINLINE ALLOD_HOT void add_stock(Domain& domain) noexcept;
  [[nodiscard]] ALLOD_HOT bool empty_resting() noexcept;
  [[nodiscard]] ALLOD_HOT bool empty_if_at_rest(Domain& domain) noexcept;
  [[nodiscard]] ALLOD_HOT bool empty_caches_at_rest(Domain& domain) noexcept;
  ALLOD_HOT void empty_quietly(Cache& cache) noexcept;
  ALLOD_HOT void return_quietly(Domain& domain, Front<Sizes>& front, Magazine& magazine,
                                ClassIndex c) noexcept;
  [[nodiscard]] ALLOD_HOT bool return_elsewhere(const Domain& domain, void* block) noexcept;
  ALLOD_HOT void retire_last_quietly(Domain& domain, Bin& bin) noexcept;

  Space space_;
  HeapOptions options_;
  ForkGate<Platform> gate_;
  bool usable_ = false;
  std::atomic<bool> ending_{false};
  Lock fork_lock_{LockRank::fork};  // of a fork, a pause, or give_back_kept_of()
  Lock registry_lock_{LockRank::registry};
  DomainList domains_;
  DomainPool pool_;
  std::uint32_t next_id_ = 2;
  std::atomic<std::uint32_t> cache_count_{0};
  SpanList orphans_[kClasses] = {};
  std::atomic<std::uint32_t> orphan_count_[kClasses] = {};
  std::atomic<ClassIndex> last_reaped_{0};                // where the last look at orphans ended
  std::atomic<std::size_t> kept_bytes_{0};                // reserved by domains
  std::atomic<std::uint32_t> keepers_{0};                 // domains that reserve some
  std::atomic<std::size_t> kept_share_{~std::size_t{0}};  // the most that one domain may reserve
  Written written_;
  std::atomic<bool> kept_short_{false};  // a domain has less than its share, and was refused
  HelperState helper_;  // kept blocks need a running helper, which frees them later
  ForkPause fork_pause_;
  std::atomic<bool> look_is_wanted_{false};    // many bytes within slabs have become free
  std::atomic<std::size_t> loosened_{0};       // their number since the helper's last look, roughly
  std::atomic<std::size_t> fresh_before_{0};   // fresh_bytes() when that grew last
  std::atomic<bool> holes_are_wanted_{false};  // the program takes fresh memory meanwhile
  std::uint64_t signals_in_pause_ = 0;         // the mask before it; guarded by fork_lock_
  RestWalk rest_walk_;
  std::atomic<std::uint32_t> stocks_{0};      // shared domains that are stocked
  std::atomic<std::uint32_t> emptied_ms_{0};  // when threads without a helper did it last
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
#include "allod/heap/stocks.hpp"
#include "allod/heap/thread_cache.hpp"

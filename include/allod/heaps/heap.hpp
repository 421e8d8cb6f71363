// Layer 6: the engine, and heaps that a program makes: first-class heaps, owners of slabs that are
// bound to no thread. All higher layers use this class.
#pragma once

#include "allod/heap/engine.hpp"
#include "allod/heaps/domain.hpp"

namespace allod::heaps {

// Policy: as for heap::Engine; it may name kKeptHeaps. All functions but start() are thread-safe if
// each thread passes its own domain as `own`, or null if it has none. A heap must not be deleted or
// destroyed while another thread uses it; freeing its blocks by release() is not such a use.
template <class Policy>
class Heap : public heap::Engine<Policy, Heap<Policy>> {
  using Engine = heap::Engine<Policy, Heap>;
  using Gate = heap::ForkGate<typename Engine::Platform>;

 public:
  using typename Engine::Cache;
  using typename Engine::Domain;
  using typename Engine::Lock;
  using typename Engine::Platform;
  using typename Engine::Reporter;
  using typename Engine::Sizes;
  using typename Engine::Space;
  using HeapDomain = heaps::HeapDomain<Sizes, Lock>;
  using HeapTurn = heaps::HeapTurn<HeapTurns<Lock>, Gate>;
  using LeaningTurn = heaps::LeaningTurn<HeapTurns<Lock>, Gate>;
  using Engine::kChecks;
  using Engine::kClasses;

  constexpr Heap() noexcept = default;

  // Functions of the engine that this class uses. Its public functions are public here, too.
  using Engine::describe;
  using Engine::fast_usable_size;
  using Engine::gate;
  using Engine::is_usable;
  using Engine::registry_lock;
  using Engine::release_detached;
  using Engine::space;

  // --- starts and ends of heaps; see heaps/lifetime.hpp --------------------------------

  // An empty heap without limit, or null and `*error`. The name is copied, cut if it is too long.
  [[nodiscard]] HeapDomain* create_heap(const char* name, const space::PageWishes& wishes,
                                        int* error, bool hardened = false) noexcept;
  [[nodiscard]] HeapDomain* create_heap(const char* name) noexcept {
    int error;
    return create_heap(name, {}, &error);
  }
  // Blocks in use stay valid, as orphans. False, and no change, if the heap has memory of its own
  // and blocks in use.
  bool delete_heap(HeapDomain& heap) noexcept;
  // Frees all blocks. Visits slabs and huge blocks, not single blocks.
  void destroy_heap(HeapDomain& heap) noexcept;

  // Lets heaps lean to the calling thread, see heaps/turn.hpp, until its leave_seat(). False
  // without memory for this: the thread then takes the locks of heaps.
  bool take_seat() noexcept;
  ALLOD_HOT void leave_seat() noexcept;
  // Whether the calling thread, or the code that a signal interrupted on it, is in a turn on a heap
  // that leans to it.
  [[nodiscard]] static bool is_in_leaning_turn() noexcept {
    const Seat* const seat = own_seat<Gate>();
    if (seat == nullptr || seat == &nobodys_seat) return false;
    return seat->on.load(std::memory_order_relaxed) != nullptr;
  }

  // --- malloc and free in a heap; see heaps/allocate.hpp and heaps/release.hpp ---------

  // Null if the heap's limit or the system refuses.
  [[nodiscard]] void* allocate_in(Domain* own, HeapDomain& heap, HeapRequest& request) noexcept;
  // The same in few steps, for the thread that the heap leans to. Null if it needs more.
  [[nodiscard]] void* allocate_at_once(HeapDomain& heap, std::size_t size) noexcept;
  // The same for release_in(). False, and no change, if it needs more.
  [[nodiscard]] bool release_at_once(HeapDomain& heap, void* address) noexcept;
  // The same in the heap that owns `block`, a block in use. Sets `*owned` to whether one does.
  [[nodiscard]] ALLOD_HOT void* allocate_beside(Domain* own, const void* block,
                                                HeapRequest& request, bool* owned) noexcept;
  // Frees any address. Reports addresses that are not blocks of this heap.
  void release_in(Domain* own, HeapDomain& heap, void* address) noexcept;

  // --- called by the engine: heap::HeapsAbove ------------------------------------------

  // Frees a block of a first-class heap. The caller has read `tag` of it, and is in no turn on a
  // domain. While another thread uses the heap, the block is only marked, and collected later.
  void release_to_heap(Domain* own, space::Tag tag, void* address) noexcept;
  [[nodiscard]] void* resize_in_heap(void* address, std::size_t size) noexcept;
  [[nodiscard]] ALLOD_HOT bool are_heaps_quiet() noexcept;

  // --- questions about any block; see heaps/inspect.hpp -------------------------------

  // The usable bytes of the block at `address`; 0 if there is none.
  [[nodiscard]] ALLOD_HOT std::size_t usable_size(const void* address) const noexcept;
  // Whether it is a block of no bytes in a hardened heap. Other blocks have usable bytes.
  [[nodiscard]] bool is_block_of_no_bytes(const void* address) const noexcept;
  // The block in use around any address. Blocks in magazines count as used. Takes no lock, and
  // never faults.
  [[nodiscard]] Bounds bounds_of(const void* address) const noexcept;
  // The heap that owns `block`, a block in use, or null. Out of date if the heap is deleted
  // meanwhile.
  [[nodiscard]] ALLOD_HOT HeapDomain* heap_of(const void* block) const noexcept;
  // Checks everything. No other thread may use the heap meanwhile.
  void check_invariants() noexcept;

  // --- questions about heaps; see heaps/lifetime.hpp ----------------------------------

  // Whether the heap owns the block that begins at `address`, and it is in use.
  [[nodiscard]] bool contains(HeapDomain& heap, const void* address) noexcept;
  // Collects remote frees and frees empty slabs. Returns the bytes of these.
  std::size_t collect_heap(HeapDomain& heap) noexcept;
  [[nodiscard]] HeapFigures figures_of(HeapDomain& heap) noexcept;
  // A limit below figures.live refuses all requests until enough was freed.
  void limit_heap(HeapDomain& heap, std::size_t bytes) noexcept;

  // Calls `visit(block, bytes)` for the blocks in use, in any order, until it returns false. It may
  // use this heap: blocks allocated or freed meanwhile may be missed or visited. False without
  // memory.
  template <class Visit>
  [[nodiscard]] bool walk_heap(HeapDomain& heap, Visit&& visit) noexcept;

  // The heap made after this one, or the first for null; it may be inactive. With the registry's
  // lock held. Objects are never freed, so the lock may be released between two calls.
  [[nodiscard]] HeapDomain* next_heap(HeapDomain* heap) noexcept {
    return heap == nullptr ? heaps_.first() : HeapList::next(heap);
  }

  // Extends and calls the engine's. before_fork() is the engine's alone.
  void after_fork_in_child(Domain* own, const Cache* cache = nullptr) noexcept;

 private:
  using HeapList = List<HeapDomain, &HeapDomain::links>;
  using HeapPool = List<HeapDomain, &HeapDomain::pool_links>;
  using SeatList = List<Seat, &Seat::links>;
  using FreeSeats = List<Seat, &Seat::free_links>;

  using Engine::abandon;
  using Engine::check_slab;
  using Engine::disown_slabs;
  using Engine::fresh_slab;
  using Engine::give_back_kept_of;
  using Engine::give_up_stocks;
  using Engine::mark_remote;
  using Engine::maybe_purge;
  using Engine::must_settle;
  using Engine::report;
  using Engine::resize_huge;
  using Engine::settle;
  using typename Engine::Keepers;

  // lifetime.hpp
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

  // allocate.hpp
  [[nodiscard]] void* serve(Domain* own, HeapDomain& heap, const void* beside,
                            HeapRequest& request) noexcept;
  [[nodiscard]] void* take_from(HeapDomain& heap, HeapRequest& request) noexcept;
  [[nodiscard]] void* take_class(HeapDomain& heap, ClassIndex c, HeapRequest& request) noexcept;
  [[nodiscard]] static void* take_newest(HeapDomain& heap, ClassIndex c) noexcept;
  [[nodiscard]] Slab* at_hand(HeapDomain& heap, ClassIndex c) noexcept;
  [[nodiscard]] static Slab* first_with_room(HeapDomain& heap, ClassIndex c) noexcept;
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

  // release.hpp
  [[nodiscard]] bool release_small(HeapDomain& heap, Slab& slab, void* address,
                                   LeaningTurn& turn) noexcept;
  void release_behind_newest(HeapDomain& heap, Slab& slab, void* address) noexcept;
  void settle_and_leave(HeapDomain& heap, Slab& slab, std::uint32_t free_before) noexcept;
  void release_in_turn(HeapDomain& heap, void* address, HeapRelease& outcome) noexcept;
  void tell(HeapDomain& heap, const HeapRelease& outcome, const void* address) noexcept;
  void mark_for_heap(Domain* own, Slab& slab, void* address) noexcept;
  [[nodiscard]] bool release_small_at_once(space::Tag tag, void* address) noexcept;
  void release_to_heap_in_turn(Domain* own, void* address, bool interrupts) noexcept;
  void free_huge_of_heap(space::Span* span, void* address) noexcept;
  [[nodiscard]] HugeRelease free_huge_in_turn(HeapDomain& heap, space::Span* span, void* address,
                                              bool reported) noexcept;
  [[nodiscard]] static bool is_newest(const HeapDomain& heap, const Slab& slab,
                                      const void* address) noexcept;
  void put_newest_back(HeapDomain& heap) noexcept;
  void settle_in_heap(HeapDomain& heap, Slab& slab, std::uint32_t free_before) noexcept;
  void retire_from_heap(HeapDomain& heap, Bin& bin, Slab& slab) noexcept;
  void collect_in_heap(HeapDomain& heap, const void** doubled) noexcept;
  void give_up_empty(HeapDomain& heap) noexcept;

  // hardened.hpp
  [[nodiscard]] bool open_hardening(HeapDomain& heap) noexcept;
  void close_hardening(HeapDomain& heap) noexcept;
  [[nodiscard]] void* take_hardened(HeapDomain& heap, HeapRequest& request) noexcept;
  [[nodiscard]] void* take_at_random(HeapDomain& heap, Slab& slab, std::size_t size) noexcept;
  void seal_huge(HeapDomain& heap, void* block, std::size_t size, std::size_t guard) noexcept;
  [[nodiscard]] static bool is_huge_intact(const HeapDomain& heap,
                                           const space::Span& span) noexcept;
  void report_huge(const space::Span& span) const noexcept;
  // The bytes of a span up to the end of its canary.
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
  [[nodiscard]] static std::size_t canary_end(const space::Span& span, std::size_t step) noexcept {
    return span.home == nullptr ? sealed_bytes(static_cast<std::size_t>(span.block_state)) : step;
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

  // buffer.hpp
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

  // inspect.hpp
  [[nodiscard]] Bounds bounds_elsewhere(Address at, space::Tag tag) const noexcept;
  [[nodiscard]] HeapFigures count_blocks(HeapDomain& heap) noexcept;
  void check_heap(HeapDomain& heap) noexcept;

  HeapList heaps_;
  HeapPool heap_pool_;
  SeatList seats_;
  FreeSeats free_seats_;
  std::uint32_t pooled_heaps_ = 0;
  // To detect uses of heaps that have ended, this many objects are not reused.
  static constexpr std::uint32_t kKeptHeaps = [] {
    if constexpr (requires { Policy::kKeptHeaps; }) return Policy::kKeptHeaps;
    return 0U;
  }();
  std::uint32_t next_heap_id_ = space::kMaxOwner;
};

}  // namespace allod::heaps

#include "allod/heaps/allocate.hpp"
#include "allod/heaps/buffer.hpp"
#include "allod/heaps/hardened.hpp"
#include "allod/heaps/inspect.hpp"
#include "allod/heaps/lifetime.hpp"
#include "allod/heaps/release.hpp"

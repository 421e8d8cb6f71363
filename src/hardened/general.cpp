#include "hardened/hardened.hpp"

#include <string.h>

#include "allod/os/posix/at_fork.hpp"
#include "hardened/large.hpp"
#include "hardened/neighbours.hpp"
#include "hardened/reports.hpp"
#include "hardened/sweep.hpp"
#include "hardened/waiting.hpp"
#include "report/tracker.hpp"
#include "settings/options.hpp"
#include "text/text.hpp"

namespace allod {

// Shuffles within groups, since programs often use blocks in the order of their allocation, and the
// processor prefetches ahead of it.
ALLOD_HOT void HardenedPolicy::shuffle(void** blocks, std::uint32_t count) noexcept {
  if (!hardened::active().has(Mitigation::shuffle)) return;
  for (; count > kGroup; blocks += kGroup, count -= kGroup) random::shuffle(blocks, kGroup);
  random::shuffle(blocks, count);
}
ALLOD_HOT unsigned HardenedPolicy::choice(unsigned count) noexcept {
  return hardened::active().has(Mitigation::shuffle) ? random::own().below(count) : 0;
}

namespace hardened {

constinit Canary canary;
constinit Mitigations chosen = HardenedPolicy::kMitigations & Mitigations::all();
constinit EmptyBlocks<HardenedLinux> empty_blocks;

Mitigations active() noexcept { return HardenedPolicy::kMitigations & chosen; }

// --- allocation --------------------------------------------------------------------------------

namespace {

// A narrow state can hold the block's slack only if it is small, as it is unless the alignment is
// large.
constexpr std::size_t kMinAlignment = 16;
[[nodiscard]] bool fits_narrow_state(std::size_t size, std::size_t room,
                                     std::size_t alignment) noexcept {
  using States = slab::BlockStates;
  if (room > States::kLargestNarrow) return true;
  const std::size_t bytes = Sizes::size_of(Sizes::of_aligned(room, alignment));
  return bytes > States::kLargestNarrow || bytes - size < slab::BlockStateCell::kMostNarrowSlack;
}

}  // namespace

// No block has 8 bytes, since these have no room for a state. A large block gets a page for its
// guard, which takes only addresses, or at least room for its canary. Other blocks with large
// alignments, whose sizes are usually multiples of these, must not double for a canary.
std::size_t room_for(std::size_t size, std::size_t alignment, Guarded guarded) noexcept {
  constexpr std::size_t kLargestUnguarded = Sizes::size_of(Sizes::of(kDiscarded) - 1);
  if (size > kMaxBlock) return size;
  const std::size_t room = size + Canary::kBytes;
  const std::size_t wanted = on<Mitigation::canary>() ? room : size;
  if (__builtin_expect(room > kLargestUnguarded, 0) && alignment <= kSliceBytes) {
    const bool is_guarded = on<Mitigation::guards>() && guarded == Guarded::if_large;
    return is_guarded ? room + platform().page_size() : wanted;
  }
  if (alignment >= 4096) return size > 8 ? size : 9;
  if (alignment > kMinAlignment && !fits_narrow_state(size, wanted, alignment)) {
    return slab::BlockStates::kLargestNarrow + 1;
  }
  return wanted > 8 ? wanted : 9;
}

namespace {

struct GiveUp {
  static constexpr bool kNoexcept = true;
  static void* out_of_memory(std::size_t) noexcept { return nullptr; }
};

constexpr auto kVisitAny = [](Address from, std::size_t bytes, auto&& visit) noexcept {
  bytes <= Block::kSmall ? visit_small(from, bytes, visit) : visit_medium(from, bytes, visit);
};

// Reports a write to a block that is about to be handed out, and erases it. `end` is what was in
// its last word.
[[gnu::cold, gnu::noinline]] void report_new(Address at, std::uint64_t end) noexcept {
  const Block block = find(reinterpret_cast<const void*>(at));
  const BlockState state = block.cell.load();
  if (state.was_freed()) {
    report_written(block, state);
  } else {
    __builtin_memcpy(reinterpret_cast<void*>(at + block.bytes - sizeof end), &end, sizeof end);
    report_stray_write(at, block.bytes);
  }
  memset(reinterpret_cast<void*>(at), 0, block.bytes);
}

// Of blocks above 1 KiB, only those that were in use are looked at, as far as they were used; of
// larger ones none, whose pages may be absent.
template <class Any>
ALLOD_INLINE void look_at_new(const Any& block, BlockState before) noexcept {
  std::uint64_t end = 0;
  if (block.bytes <= kErasedWhole) {
    if (is_untouched(block.address, block.bytes, before, &end, kVisitAny)) return;
  } else {
    if (block.bytes >= heaps::kAsked || !before.was_freed()) return;
    if (heaps::is_zero(block.address, erased_bytes(block, before))) return;
  }
  report_new(block.address, end);
}

// A block that is resized in its place is busy before. Returns the pointer for the program. Null,
// and the block is lost, if the kernel refuses to open its closed pages.
template <class Any>
ALLOD_INLINE void* seal_found(const Any& block, std::size_t size, Origin origin) noexcept {
  const std::size_t most = block.cell.most_slack();
  const std::size_t slack = block.bytes - size < most ? block.bytes - size : most;
  const BlockState state = BlockState::live(origin, slack);
  always_check(block.bytes != 0 && block.bytes >= size, "what is handed out is no block");
  const BlockState before = block.cell.load();
  always_check(!before.is_live(), "a block is handed out that is in use");
  if (on<Mitigation::written>() && before != BlockState::busy() && !block.is_heaps) {
    look_at_new(block, before);
  }
  if (__builtin_expect(block.is_large(), 0) && !set_guard(block, before, size)) return nullptr;
  if (has_canary(state)) {
    block.cell.store(BlockState::busy());
    // Orders `busy` before the writes below, so that a thread which sees them also sees the state
    // change.
    std::atomic_thread_fence(std::memory_order_release);
    canary.write(block.address, block.bytes - slack, block.bytes);
  }
  void* const pointer = has_tag(block) ? put_tag(block, block.requested(state))
                                       : reinterpret_cast<void*>(block.address);
  block.cell.store(state);
  if (on<Mitigation::history>()) track_allocation(reinterpret_cast<void*>(block.address), size);
  return pointer;
}
[[gnu::noinline]] ALLOD_HOT void* seal_medium(const slab::Slab& slab, std::uint32_t index,
                                              Address at, std::size_t size,
                                              Origin origin) noexcept {
  return seal_found(MediumBlock{slab, index, at}, size, origin);
}
[[gnu::noinline]] ALLOD_HOT void* seal_other(void* address, std::size_t size,
                                             Origin origin) noexcept {
  const Block block = find(address);
  return block.is_unwatched ? address : seal_found(block, size, origin);
}
ALLOD_INLINE void* seal_block(void* address, std::size_t size, Origin origin) noexcept {
  if (__builtin_expect(address == nullptr, 0)) return nullptr;
  const Address at = address_of(address);
  const space::PageMap& map = Process::heap().space().map();
  if (__builtin_expect(!space::is_domains(map.tag_of(at)), 0)) {
    return seal_other(address, size, origin);
  }
  const slab::Slab& slab = *slab::as_slab(map.span_at(at));
  const std::uint32_t index = slab.index_of(at);
  if (__builtin_expect(index == slab::Slab::kNoBlock, 0)) return seal_other(address, size, origin);
  if (__builtin_expect(slab.block_bytes() > Block::kSmall, 0)) {
    return MediumBlock::is_one_of(slab) ? seal_medium(slab, index, at, size, origin)
                                        : seal_other(address, size, origin);
  }
  return seal_found(SmallBlock{slab, index, at}, size, origin);
}

// Allocates and seals a block. Makes room when the heap refuses.
template <class Take>
[[nodiscard]] ALLOD_INLINE void* allocate_by(std::size_t size, Origin origin,
                                             Take&& take) noexcept {
  for (bool may_sweep = true;;) {
    if (void* const block = take(); __builtin_expect(block != nullptr, 1)) {
      void* const sealed = seal_block(block, size, origin);
      if (__builtin_expect(sealed != nullptr, 1)) return sealed;
      continue;  // with another block
    }
    const Room room = size > kMaxBlock ? Room::none : make_room(size, may_sweep);
    if (room == Room::none) return nullptr;
    may_sweep = may_sweep && room != Room::made_by_sweep;
  }
}

}  // namespace

void* seal(void* block, std::size_t size, Origin origin) noexcept {
  return seal_block(block, size, origin);
}

void* allocate_general(std::size_t size, Origin origin) noexcept {
  if (__builtin_expect(size == 0, 0) && on<Mitigation::empty>()) {
    if (void* const empty = empty_blocks.allocate(origin)) {
      if (on<Mitigation::history>()) track_allocation(empty, size);
      return empty;
    }
  }
  const std::size_t room = room_for(size);
  return allocate_by(size, origin, [&]() noexcept { return Process::allocate<GiveUp>(room); });
}

namespace {

[[nodiscard]] bool is_closed_since_erased(const void* address) noexcept {
  const Block block = find(address);
  return on<Mitigation::zero>() && block.bytes != 0 && block.cell.load().is_closed();
}

[[nodiscard, gnu::noinline]] ALLOD_HOT void* allocate_zeroed_general(std::size_t bytes) noexcept {
  if (bytes == 0) return allocate_general(bytes, Origin::c);
  const std::size_t room = room_for(bytes);
  bool zero = false;
  bool is_closed = false;
  void* const block = allocate_by(bytes, Origin::c, [&]() noexcept {
    zero = false;
    void* const found = Process::allocate_zeroable(room, &zero);
    is_closed = found != nullptr && bytes >= kDiscarded && is_closed_since_erased(found);
    return found;
  });
  if (block == nullptr || zero) return block;
  if (bytes < heaps::kAsked) {
    clear_contents(block, bytes);
    return block;
  }
  if (bytes < kDiscarded) {
    clear_part(find(block), address_of(block), bytes);
    return block;
  }
  // lend() may have opened the first page.
  if (is_closed) return memset(block, 0, platform().page_size());
  clear_large(address_of(block), bytes);
  return block;
}

}  // namespace

void* allocate_aligned(std::size_t size, std::size_t alignment, Origin origin) noexcept {
  const std::size_t room = room_for(size, alignment);
  return allocate_by(size, origin,
                     [&]() noexcept { return Process::allocate_aligned(room, alignment); });
}

void* allocate_zeroed(std::size_t bytes) noexcept {
  void* block = allocate_short<Small>(bytes, Origin::c);
  if (block == nullptr) block = way().allocate(bytes, Origin::c);
  if (block == nullptr) return allocate_zeroed_general(bytes);
  // Otherwise it was looked at, and is zero.
  if (!on<Mitigation::written>()) clear_contents(block, bytes);
  return block;
}

// --- free --------------------------------------------------------------------------------------

namespace {

// Checks size and family that the caller claims. False after a report. Without measure "origin",
// every claim is accepted.
[[nodiscard]] ALLOD_INLINE bool is_as_claimed(const Block& block, BlockState state,
                                              std::size_t claimed_bytes, Origin claimed) noexcept {
  if (!on<Mitigation::origin>()) return true;
  if (claimed_bytes != heap::kUnknownBytes) {
    const bool exact = state.slack() < block.cell.most_slack();
    const std::size_t requested = block.requested(state);
    if (exact ? claimed_bytes != requested : claimed_bytes > requested) {
      report_wrong_size(misuse_of(MisuseKind::size_mismatch, block, state), claimed_bytes);
      return false;
    }
  }
  if (is_wrong_family(state.origin(), claimed)) {
    report_wrong_function(misuse_of(MisuseKind::wrong_function, block, state), claimed);
    return false;
  }
  return true;
}

template <class Any>
[[nodiscard]] ALLOD_INLINE bool is_intact(const Any& block, BlockState state) noexcept {
  if (has_canary(state) && !canary.is_intact(block.address, block.requested(state), block.bytes)) {
    return false;
  }
  return is_rest_clear(block, state);
}

// For a span of its own, the span records how it was closed.
[[nodiscard]] ALLOD_INLINE BlockState state_after_free(const Block& block, std::uint64_t slack,
                                                       Access access) noexcept {
  static_assert(Sizes::kMaxSize < BlockState::kMostShutSlack);
  if (access == Access::open) return BlockState::freed(slack);
  if (access == Access::shut && block.slab != nullptr) return BlockState::shut(slack);
  return BlockState::closed(slack);
}

template <class Any>
ALLOD_INLINE bool take_back_found(const Any& block, const void* pointer, std::size_t claimed_bytes,
                                  Origin claimed) noexcept {
  const BlockState state = block.cell.load();
  if (__builtin_expect(!state.is_live() || is_stale(block, state, pointer), 0)) {
    report_not_in_use(block, state);
    return false;
  }
  if (!is_as_claimed(block, state, claimed_bytes, claimed)) return false;
  // A concurrent free of the same block loses this race.
  if (__builtin_expect(!block.cell.replace(state, BlockState::busy()), 0)) {
    report_not_in_use(block, BlockState::freed(state.slack()));
    return false;
  }
  std::atomic_thread_fence(std::memory_order_release);  // as in seal_found()
  if (has_tag(block)) take_tag(block, block.requested(state));
  if (__builtin_expect(!is_intact(block, state), 0)) report_overflow(block, state);
  check_neighbours(block);
  if (on<Mitigation::history>()) track_end(reinterpret_cast<void*>(block.address));
  const Left left = erase(block, state);
  block.cell.store(state_after_free(block, state.slack(), left.access));
  return !detain(block, left);
}
[[gnu::noinline]] ALLOD_HOT bool take_back_medium(const slab::Slab& slab, std::uint32_t index,
                                                  void* pointer, std::size_t claimed_bytes,
                                                  Origin claimed) noexcept {
  const Address at = memory_tags::bare(address_of(pointer));
  return take_back_found(MediumBlock{slab, index, at}, pointer, claimed_bytes, claimed);
}
[[gnu::noinline]] void take_back_empty(void* address, std::size_t claimed_bytes,
                                       Origin claimed) noexcept {
  const Origin origin = empty_blocks.origin_of(address);
  if (origin == Origin::any) return report_stray(address);
  if (on<Mitigation::origin>() && claimed_bytes != heap::kUnknownBytes && claimed_bytes != 0) {
    return report_wrong_size(misuse_of_empty(MisuseKind::size_mismatch, address, origin),
                             claimed_bytes);
  }
  if (is_wrong_family(origin, claimed)) {
    return report_wrong_function(misuse_of_empty(MisuseKind::wrong_function, address, origin),
                                 claimed);
  }
  if (!empty_blocks.release(address, origin)) return report_stray(address);
  if (on<Mitigation::history>()) track_end(address);
}
// Blocks that are neither small nor medium, addresses without a block, and blocks of first-class
// heaps.
[[gnu::noinline]] ALLOD_HOT bool take_back_other(void* address, std::size_t claimed_bytes,
                                                 Origin claimed) noexcept {
  const Block block = find(address);
  if (block.bytes != 0) return take_back_found(block, address, claimed_bytes, claimed);
  if (block.is_unwatched) return true;
  empty_blocks.holds(address) ? take_back_empty(address, claimed_bytes, claimed)
                              : report_stray(address);
  return false;
}
ALLOD_INLINE bool take_back_any(void* address, std::size_t claimed_bytes, Origin claimed) noexcept {
  if (address == nullptr) return false;
  const space::PageMap& map = Process::heap().space().map();
  const Address at = memory_tags::bare(address_of(address));
  if (__builtin_expect(!space::is_domains(map.tag_of(at)), 0)) {
    return take_back_other(address, claimed_bytes, claimed);
  }
  const slab::Slab& slab = *slab::as_slab(map.span_at(at));
  const std::uint32_t index = slab.index_of(at);
  if (__builtin_expect(index == slab::Slab::kNoBlock, 0)) {
    return take_back_other(address, claimed_bytes, claimed);
  }
  if (__builtin_expect(slab.block_bytes() > Block::kSmall, 0)) {
    return MediumBlock::is_one_of(slab)
               ? take_back_medium(slab, index, address, claimed_bytes, claimed)
               : take_back_other(address, claimed_bytes, claimed);
  }
  return take_back_found(SmallBlock{slab, index, at}, address, claimed_bytes, claimed);
}

}  // namespace

bool take_back(void* address, std::size_t claimed_bytes, Origin claimed) noexcept {
  return take_back_any(address, claimed_bytes, claimed);
}

void release(void* address, std::size_t claimed_bytes, Origin claimed) noexcept {
  if (take_back_any(address, claimed_bytes, claimed)) Process::release(memory_tags::bare(address));
}

// --- sets of measures ----------------------------------------------------------------------------

namespace {

// With all measures: the callers have tried small blocks.
[[nodiscard]] ALLOD_HOT void* allocate_medium(std::size_t size, Origin origin) noexcept {
  return allocate_short<Medium>(size, origin);
}
[[nodiscard]] ALLOD_HOT bool release_medium(Address at, ShortPlace place, std::size_t claimed_bytes,
                                            Origin claimed) noexcept {
  return Medium::has(place.stride) && release_short<Medium>(at, place, claimed_bytes, claimed);
}
// With fewer. Code that most processes do not run is not ALLOD_HOT.
template <class Set>
[[nodiscard]] void* allocate_with(std::size_t size, Origin origin) noexcept {
  void* const block = allocate_short<SmallOf<Set>>(size, origin);
  return block != nullptr ? block : allocate_short<MediumOf<Set>>(size, origin);
}
template <class Set>
[[nodiscard]] bool release_with(Address at, ShortPlace place, std::size_t claimed_bytes,
                                Origin claimed) noexcept {
  if (SmallOf<Set>::has(place.stride)) {
    return release_short<SmallOf<Set>>(at, place, claimed_bytes, claimed);
  }
  return MediumOf<Set>::has(place.stride) &&
         release_short<MediumOf<Set>>(at, place, claimed_bytes, claimed);
}
template <class Set>
constexpr Way kWayOf{&allocate_with<Set>, &release_with<Set>};

}  // namespace

const Way kWays[kWayCount]{{&allocate_medium, &release_medium},
                           kWayOf<MeasuresOf<Level::light>>,
                           kWayOf<MeasuresOf<Level::balanced>>,
                           kWayOf<ChosenMeasures>};
constinit std::uint8_t chosen_way = 0;

// --- the process ---------------------------------------------------------------------------------

namespace {

// Its classes assume this page size, and the page map must be whole.
void open_short_path() noexcept {
  const bool is_whole_map = Process::heap().space().map().fast_slices() != 0;
  if (platform().page_size() != ShortClass::kPageBytes || !is_whole_map) return;
  if (on<Mitigation::tags>() || on<Mitigation::history>()) return;
  chosen_way = AnyMeasures::find([]<class Set>() noexcept {
    if (!Set::are_chosen()) return false;
    SmallOf<Set>::open();
    MediumOf<Set>::open();
    return true;
  });
}
// Warns about a measure that the user named. The program runs without it.
[[gnu::cold]] void tell_no_effect(std::string_view name, std::string_view reason) noexcept {
  Message{} << "warning: ALLOD_HARDENED=" << name << " has no effect: " << reason;
}

}  // namespace

bool has_faults() noexcept {
  return on<Mitigation::guards>() || on<Mitigation::empty>() || on<Mitigation::tags>();
}

void start() noexcept {
  if (on<Mitigation::empty>()) empty_blocks.start(platform());
  if (on<Mitigation::sweep>() && !(on<Mitigation::quarantine>() && on<Mitigation::zero>())) {
    chosen = chosen.without(Mitigation::sweep);
    tell_no_effect("sweep", "it needs quarantine and zero");
  }
  watch_threads();
  os::at_fork(nullptr, nullptr, &random::reseed);
  if (on<Mitigation::sweep>() && !sweep::start()) {
    chosen = chosen.without(Mitigation::sweep);
    tell_no_effect("sweep", "the system does not let a process read its own memory");
  }
  if (settings().mitigations.has(Mitigation::tags) && !on<Mitigation::tags>()) {
    tell_no_effect("tags", "the processor or the kernel does not support memory tagging");
  }
  // Registered last, so its lock is taken first at a fork, as its rank demands.
  if (on<Mitigation::history>()) {
    os::at_fork(&lock_records, &unlock_records, &reset_records_lock_after_fork);
  }
  open_short_path();
}

namespace {

// Disables measures whose prerequisites are off, without a warning: excluding `zero` implies them.
ALLOD_HOT void leave_out_dependent() noexcept {
  if (!on<Mitigation::zero>()) chosen = chosen.without(Mitigation::written);
  if (!on<Mitigation::canary>() && !on<Mitigation::zero>()) {
    chosen = chosen.without(Mitigation::neighbours);
  }
}

}  // namespace

}  // namespace hardened

heap::HeapOptions HardenedPolicy::options() noexcept {
  const heap::HeapOptions options = LibraryPolicy::options();
  hardened::chosen = kMitigations & settings().mitigations;
  if (hardened::on<Mitigation::tags>() && !memory_tags::start()) {
    hardened::chosen = hardened::chosen.without(Mitigation::tags);
  }
  hardened::leave_out_dependent();
  hardened::canary.start();
  HardenedLinux::addresses = hardened::on<Mitigation::addresses>();
  HardenedLinux::positions = hardened::on<Mitigation::positions>();
  HardenedLinux::guards = hardened::on<Mitigation::guards>();
  HardenedLinux::erases = hardened::on<Mitigation::zero>();
  return options;
}

}  // namespace allod

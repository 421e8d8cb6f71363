#include "hardened.hpp"

#include <string.h>

#include "allod/os/at_fork.hpp"
#include "empty_blocks.hpp"
#include "faults.hpp"
#include "hardened_short.hpp"
#include "memory_tags.hpp"
#include "options.hpp"
#include "sweep.hpp"
#include "text.hpp"

namespace allod {

// In groups: what a program allocates together it often uses together, in that order, and the
// processor reads ahead of it.
ALLOD_HOT void HardenedPolicy::shuffle(void** blocks, std::uint32_t count) noexcept {
  if (!hardened::active().has(Mitigation::shuffle)) return;
  constexpr std::uint32_t kGroup = 16;
  for (; count > kGroup; blocks += kGroup, count -= kGroup) random::shuffle(blocks, kGroup);
  random::shuffle(blocks, count);
}

namespace hardened {

constinit Canary canary;
[[gnu::tls_model("initial-exec")]] constinit thread_local heap::Quarantine* own_quarantine =
    nullptr;

namespace {

using heap::is_zero;
using heap::kDiscarded;
using heap::Misuse;
using heap::MisuseKind;
using heap::Quarantine;
using slab::BlockState;
using slab::BlockStateCell;
using Sizes = Process::Sizes;

// The heap's first options are read before anything is allocated; until then, the usual ones.
constinit Mitigations chosen = HardenedPolicy::kMitigations & Mitigations::all();
constinit EmptyBlocks<HardenedLinux> empty_blocks;
constinit pthread_key_t key = 0;
constinit bool has_key = false;
// Of threads that have ended as far as we know: what they free goes to the heap at once.
constinit Quarantine gone{true};

template <Mitigation kMitigation>
[[nodiscard]] ALLOD_INLINE bool on() noexcept {
  if constexpr (!HardenedPolicy::kMitigations.has(kMitigation)) return false;
  return chosen.has(kMitigation);
}

[[nodiscard]] HardenedLinux& platform() noexcept { return Process::heap().space().platform(); }

// --- blocks and their states -------------------------------------------------------------

struct Block {
  BlockStateCell cell;
  Address address;
  std::size_t bytes;
  const slab::Slab* slab;  // null: a span of its own
  std::uint32_t index;     // in the slab
  bool is_heaps;           // of a first-class heap
  // Of a heap with blocks of all sizes in one slab, which keeps no states. Nothing else is known.
  bool is_unwatched = false;

  [[nodiscard]] std::size_t requested(BlockState state) const noexcept {
    return bytes - state.slack();
  }
  [[nodiscard]] bool is_in_slab() const noexcept { return slab != nullptr; }
  [[nodiscard]] bool is_large() const noexcept { return bytes >= kDiscarded || !is_in_slab(); }
  [[nodiscard]] bool is_small() const noexcept { return bytes <= kSmall && is_in_slab(); }

  static constexpr std::size_t kSmall = slab::BlockStates::kLargestNarrow;
};

// Most blocks are small or medium, and of a thread's domain. What is done to these is compiled for
// each of the two apart.
struct SmallBlock : Block {
  ALLOD_INLINE SmallBlock(const slab::Slab& of, std::uint32_t number, Address at) noexcept
      : Block{slab::BlockStates::narrow_of(of, number), at, of.block_bytes(), &of, number, false} {
    // Those of 8 bytes do not exist.
    if (bytes - 16 > kSmall - 16) __builtin_unreachable();
  }
  [[nodiscard]] static constexpr bool is_in_slab() noexcept { return true; }
  [[nodiscard]] static constexpr bool is_large() noexcept { return false; }
  [[nodiscard]] static constexpr bool is_small() noexcept { return true; }
};
struct MediumBlock : Block {
  ALLOD_INLINE MediumBlock(const slab::Slab& of, std::uint32_t number, Address at) noexcept
      : Block{slab::BlockStates::wide_of(of, number), at, of.block_bytes(), &of, number, false} {
    if (bytes - kSmall > kMost - kSmall) __builtin_unreachable();
  }
  [[nodiscard]] static bool is_one_of(const slab::Slab& of) noexcept {
    return of.block_bytes() <= kMost;
  }
  [[nodiscard]] static constexpr bool is_in_slab() noexcept { return true; }
  [[nodiscard]] static constexpr bool is_large() noexcept { return false; }
  [[nodiscard]] static constexpr bool is_small() noexcept { return false; }

  static constexpr std::size_t kMost = Canary::kEnds - 1;
};

// Not a block, in use or free, begins at the address.
[[nodiscard]] ALLOD_INLINE Block no_block() noexcept {
  return {{nullptr, BlockStateCell::Width::huge}, 0, 0, nullptr, 0, false};
}
[[nodiscard]] inline Block unwatched_block() noexcept {
  Block block = no_block();
  block.is_unwatched = true;
  return block;
}

[[nodiscard]] ALLOD_INLINE Block block_in(const slab::Slab& slab, std::uint32_t index, Address at,
                                          bool is_heaps) noexcept {
  return {slab::BlockStates::of(slab, index), at, slab.block_bytes(), &slab, index, is_heaps};
}
[[nodiscard]] ALLOD_INLINE Block find_in(const slab::Slab& slab, Address at,
                                         bool is_heaps) noexcept {
  const std::uint32_t index = slab.index_of(at);
  if (__builtin_expect(index == slab::Slab::kNoBlock, 0)) return no_block();
  return block_in(slab, index, at, is_heaps);
}
[[nodiscard, gnu::noinline]] ALLOD_HOT Block find_elsewhere(Address at, space::Tag tag) noexcept {
  const space::PageMap& map = Process::heap().space().map();
  if (space::is_slab(tag)) {
    if (space::class_of(tag) == space::kMixedClass) return unwatched_block();
    return find_in(*slab::as_slab(map.span_at(at)), at, space::is_heaps(tag));
  }
  if (tag != space::kHugeTag && !space::is_heaps(tag)) return no_block();
  space::Span& span = *map.span_at(at);
  if (span.base != at) return no_block();
  return {slab::BlockStates::of(span), at, span.size.bytes(), nullptr, 0, space::is_heaps(tag)};
}
[[nodiscard]] ALLOD_INLINE Block find(const void* address) noexcept {
  const space::PageMap& map = Process::heap().space().map();
  const Address at = memory_tags::bare(address_of(address));
  const space::Tag tag = map.tag_of(at);
  if (__builtin_expect(!space::is_domains(tag), 0)) return find_elsewhere(at, tag);
  return find_in(*slab::as_slab(map.span_at(at)), at, false);
}

// Is there a canary behind the block? It fits when there is room for one.
[[nodiscard]] ALLOD_INLINE bool has_canary(BlockState state) noexcept {
  return on<Mitigation::canary>() && state.slack() >= Canary::kBytes;
}

// --- tags of memory -----------------------------------------------------------------------------

// In the program's hands, as far as it has asked for it, a block has a random tag, which the
// pointer has that it is given. All other memory has tag 0, which no pointer has that the program
// was given, and which those have that are used here.

// Heaps can be destroyed with blocks in use, and would leave their tags behind.
template <class Any>
[[nodiscard]] ALLOD_INLINE bool has_tag(const Any& block) noexcept {
  return memory_tags::are_on() && !block.is_heaps && !block.is_large();
}
// A pointer for the program. Two neighbours never have the same tag.
[[nodiscard, gnu::noinline]] void* put_tag(Block block, std::size_t requested) noexcept {
  if (requested == 0) return reinterpret_cast<void*>(block.address);
  const bool is_first = block.index == 0;
  const bool is_last = block.index + 1 == block.slab->capacity();
  const Address before = is_first ? 0 : memory_tags::tag_at(block.address - block.bytes);
  const Address behind = is_last ? 0 : memory_tags::tag_at(block.address + block.bytes);
  const Address pointer = memory_tags::draw(block.address, before, behind);
  memory_tags::set(pointer, requested);
  return reinterpret_cast<void*>(pointer);
}
[[gnu::noinline]] void take_tag(Block block, std::size_t requested) noexcept {
  memory_tags::set(block.address, requested);
}
// Is it a pointer to what was here before?
template <class Any>
[[nodiscard]] ALLOD_INLINE bool is_stale(const Any& block, BlockState state,
                                         const void* pointer) noexcept {
  if (!has_tag(block) || block.requested(state) == 0) return false;
  return memory_tags::tag_at(block.address) != memory_tags::tag_in(address_of(pointer));
}

// --- guards behind large blocks -------------------------------------------------------------

struct Pages {
  Address from;
  std::size_t bytes;

  [[nodiscard]] bool hold(const void* address) const noexcept {
    return address_of(address) - from < bytes;
  }
};
[[nodiscard]] Pages whole_pages(Address from, Address to) noexcept {
  const std::size_t page = platform().page_size();
  const Address first = align_up(from, page);
  const Address last = align_down(to, page);
  return {first, last > first ? last - first : 0};
}

void close(Pages pages) noexcept {
  if (pages.bytes != 0) platform().close(reinterpret_cast<void*>(pages.from), pages.bytes);
}
[[nodiscard]] bool open(Pages pages) noexcept {
  return pages.bytes == 0 || platform().open(reinterpret_cast<void*>(pages.from), pages.bytes);
}

// First-class heaps give all their blocks back at once, and would not know of guards.
[[nodiscard]] bool may_have_guard(const Block& block) noexcept {
  return block.is_large() && !block.is_heaps && on<Mitigation::guards>();
}
// Is it to be closed at its free? The system may refuse: what became of it is in its state.
[[nodiscard]] bool is_closed_while_free(const Block& block) noexcept {
  return may_have_guard(block) && on<Mitigation::zero>();
}
// The pages of a large block that were not asked for.
[[nodiscard]] Pages spare_pages_of(const Block& block, std::size_t requested) noexcept {
  return whole_pages(block.address + requested + Canary::kBytes, block.address + block.bytes);
}
[[nodiscard]] space::Span& span_of(const Block& block) noexcept {
  return *Process::heap().space().map().span_of(block.address);
}
[[nodiscard]] Pages pages_of(const Block& block) noexcept {
  return whole_pages(block.address, block.address + block.bytes);
}
// Of a block that had a guard behind `before` bytes. False, and it stays, when the system does not
// open what is behind these.
[[nodiscard]] bool move_guard(const Block& block, std::size_t before, std::size_t now) noexcept {
  if (!may_have_guard(block)) return true;
  const Pages old = spare_pages_of(block, before);
  const Pages spare = spare_pages_of(block, now);
  if (old.from == spare.from) return true;
  if (block.slab == nullptr) return Process::heap().space().move_guard(span_of(block), spare.from);
  if (old.from < spare.from) return open({old.from, old.bytes - spare.bytes});
  close({spare.from, spare.bytes - old.bytes});
  return true;
}
// A span that the heap has kept since it was shut has its guard still.
[[nodiscard]] bool set_guard_of_span(const Block& block, Address from) noexcept {
  auto& in = Process::heap().space();
  space::Span& span = span_of(block);
  if (span.guarded_from != 0 && platform().closes()) {
    if (span.has_shut && !in.reopen(span.base, span.size.bytes())) return false;
    return in.move_guard(span, from);
  }
  if (!in.unguard(span)) return false;
  if (may_have_guard(block)) in.guard(span, from);
  return true;
}
// A block that is a span of its own has its guard at the end of that; in a slab, which may have a
// guard besides, only where that needs no mapping. Of a block that is closed, all but the guard is
// opened: false, and it stays closed, when the system refuses.
[[nodiscard, gnu::noinline]] bool set_guard(Block block, BlockState before,
                                            std::size_t requested) noexcept {
  const Pages pages = spare_pages_of(block, requested);
  if (block.slab == nullptr) return set_guard_of_span(block, pages.from);
  if (before.is_closed()) {
    if (before.is_shut()) {
      const Pages all = pages_of(block);
      return Process::heap().space().reopen(all.from, all.bytes) &&
             move_guard(block, block.requested(before), requested);
    }
    const Address end = block.address + block.bytes;
    return open(whole_pages(block.address, pages.from < end ? pages.from : end));
  }
  if (may_have_guard(block)) close(pages);
  return true;
}
// False, and it stays, when the system refuses.
[[gnu::noinline]] bool clear_guard(Block block, std::size_t requested) noexcept {
  if (!may_have_guard(block)) return true;
  if (block.slab == nullptr) return Process::heap().space().unguard(span_of(block));
  return open(spare_pages_of(block, requested));
}

// --- reports -----------------------------------------------------------------------------

[[nodiscard]] Misuse misuse_of(MisuseKind kind, const void* address) noexcept {
  return Process::heap().describe(kind, memory_tags::bare(address));
}
[[nodiscard, gnu::cold, gnu::noinline]] Misuse misuse_of(MisuseKind kind, Block block,
                                                         BlockState state) noexcept {
  Misuse misuse = misuse_of(kind, reinterpret_cast<const void*>(block.address));
  misuse.state = state;
  if (state.is_live() || state.was_freed()) misuse.requested = block.requested(state);
  return misuse;
}

// What begins no block, or one that the program does not have.
[[gnu::cold]] void report_stray(const void* address) noexcept {
  const Address at = memory_tags::bare(address_of(address));
  const space::Tag tag = Process::heap().space().map().tag_of(at);
  auto kind = MisuseKind::invalid_free;
  if (empty_blocks.holds(address)) {
    if (empty_blocks.is_block(address)) kind = MisuseKind::double_free;
  } else if (tag == space::kForeignTag) {
    kind = MisuseKind::foreign_free;
    if (!settings().heap.report_foreign) return;
  } else if (tag == space::kFreeTag) {
    kind = MisuseKind::double_free;
  }
  Misuse misuse = misuse_of(kind, address);
  if (misuse.block != nullptr) {
    const Block around = find(misuse.block);
    if (around.bytes != 0) misuse.state = around.cell.load();
    if (misuse.state.is_live()) misuse.requested = around.requested(misuse.state);
  }
  ReportToUser::report(misuse);
}
[[gnu::cold]] void report_not_in_use(Block block, BlockState state) noexcept {
  ReportToUser::report(misuse_of(MisuseKind::double_free, block, state));
}
[[gnu::cold]] void report_overflow(Block block, BlockState state) noexcept {
  ReportToUser::report(misuse_of(MisuseKind::overflow, block, state));
}
[[gnu::cold]] void report_written(Block block, BlockState state) noexcept {
  Misuse misuse = misuse_of(MisuseKind::write_after_free, block, state);
  const auto* byte = reinterpret_cast<const unsigned char*>(block.address);
  const auto* const end = byte + block.bytes;
  while (byte != end && *byte == 0) ++byte;
  if (byte != end) misuse.address = byte;
  ReportToUser::report(misuse);
}

// --- checks ------------------------------------------------------------------------------

[[nodiscard]] ALLOD_INLINE bool ends_with_zero(const Block& block) noexcept {
  std::uint64_t end;
  __builtin_memcpy(&end, reinterpret_cast<const void*>(block.address + block.bytes - sizeof end),
                   sizeof end);
  return end == 0;
}

// The end of the block before: what belongs to somebody else now may be changing, so what is
// wrong must stay so while the state stays what it is.
[[gnu::cold, gnu::noinline]] void examine_neighbour(Block before) noexcept {
  BlockState state;
  for (int look = 0; look < 8; ++look) {
    state = before.cell.load();
    const bool intact =
        state.is_live() ? !has_canary(state) || canary.is_end_intact(before.address, before.bytes)
        : state.was_freed() ? !on<Mitigation::zero>() || ends_with_zero(before)
                            : true;
    // What was read is of that state only if the state is the same afterwards.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (intact || before.cell.load() != state) return;
    cpu_relax();
  }
  state.is_live() ? report_overflow(before, state) : report_written(before, state);
}

template <class Any>
ALLOD_INLINE void check_neighbour(const Any& block) noexcept {
  if (!on<Mitigation::neighbours>() || !block.is_in_slab() || block.index == 0) return;
  if (!Canary::has_end(block.bytes)) return;
  const Block before{block.cell.before(), block.address - block.bytes,
                     block.bytes,         block.slab,
                     block.index - 1,     block.is_heaps};
  const memory_tags::Unchecked unchecked;
  const BlockState state = before.cell.load();
  if (state.is_live()) {
    if (!has_canary(state) || canary.is_end_intact(before.address, before.bytes)) return;
  } else if (!state.was_freed() || !on<Mitigation::zero>() || ends_with_zero(before)) {
    return;
  }
  examine_neighbour(before);
}

// What the caller of a free function says of the block. False when that was reported.
[[nodiscard]] ALLOD_INLINE bool is_as_claimed(const Block& block, BlockState state,
                                              std::size_t claimed_bytes, Origin claimed) noexcept {
  if (claimed_bytes != heap::kUnknownBytes) {
    const bool exact = state.slack() < block.cell.most_slack();
    const std::size_t requested = block.requested(state);
    if (exact ? claimed_bytes != requested : claimed_bytes > requested) {
      Misuse misuse = misuse_of(MisuseKind::size_mismatch, block, state);
      misuse.claimed_bytes = claimed_bytes;
      ReportToUser::report(misuse);
      return false;
    }
  }
  if (on<Mitigation::origin>() && state.origin() != claimed && state.origin() != Origin::any &&
      claimed != Origin::any) {
    Misuse misuse = misuse_of(MisuseKind::wrong_function, block, state);
    misuse.claimed_origin = claimed;
    ReportToUser::report(misuse);
    return false;
  }
  return true;
}

// --- the end of a block ------------------------------------------------------------------------

// How much of a block that is not large, from its start, is zero when it is free; the end is, too.
// What lies between, the program had no business with.
constexpr std::size_t kErasedWhole = ShortClass::kMostBytes;
[[nodiscard]] ALLOD_INLINE std::size_t erased_bytes(const Block& block, BlockState state) noexcept {
  if (block.bytes <= kErasedWhole) return block.bytes;
  const std::size_t used = align_up(block.requested(state) + Canary::kBytes, 8);
  return used < block.bytes ? used : block.bytes;
}

// May a block be touched?
enum class Access : std::uint8_t {
  open,
  closed,  // no: its pages were taken by guards
  shut,    // no: its pages are a mapping of their own
};
// What is left of a block when it has been erased.
struct Left {
  Access access = Access::open;
  // Of a large block.
  std::size_t bytes_in_memory = 0;
};

// Closed pages have entries in page tables, touched or not: of a block that is larger than this,
// the rest is only given back.
[[nodiscard]] Pages closed_part(const Block& block) noexcept {
  constexpr std::size_t kMost = std::size_t{64} << 20;
  const Pages pages = pages_of(block);
  return {pages.from, pages.bytes < kMost ? pages.bytes : kMost};
}

// Gives pages back, or fills those before `open_end` with zeros: those behind may be closed. How
// many bytes are in memory?
std::size_t empty(Pages pages, Address open_end) noexcept {
  void* const memory = reinterpret_cast<void*>(pages.from);
  if (pages.bytes == 0 || platform().purge(memory, pages.bytes)) return 0;
  const Address end = pages.from + pages.bytes < open_end ? pages.from + pages.bytes : open_end;
  if (end > pages.from) memset(memory, 0, end - pages.from);
  return pages.bytes;
}
// Of a large block, or a part of it, what whole pages do not hold.
void clear_edges(Address from, std::size_t bytes, Pages pages) noexcept {
  const Address end = pages.from + pages.bytes;
  memset(reinterpret_cast<void*>(from), 0, pages.from - from);
  memset(reinterpret_cast<void*>(end), 0, from + bytes - end);
}

// Runs of pages that are in memory are filled with zeros and stay, for to let them go and come anew
// takes many times as long. What lies between is given back, as it may have been swapped out; where
// there are many runs, so is the rest. How many bytes stay?
std::size_t wipe(Pages pages) noexcept {
  constexpr std::size_t kReach = std::size_t{4} << 20;
  constexpr std::size_t kGap = 8;    // a run may lack one page of so many, and few in a row
  constexpr std::size_t kShort = 4;  // pages that are not worth a call of the system
  constexpr int kMostRuns = 8;
  const std::size_t page = platform().page_size();
  const Address end = pages.from + pages.bytes;
  Address done = pages.from;  // to here
  Address first = done;       // of the run that is being looked at
  Address last = done;
  std::size_t kept = 0;
  const auto end_run = [&]() noexcept {
    if (last - first < kShort * page) return false;
    kept += empty({done, first - done}, first) + (last - first);
    memset(reinterpret_cast<void*>(first), 0, last - first);
    done = last;
    return true;
  };
  int runs = 0;
  for (Address at = pages.from; at < end && runs < kMostRuns; at += kReach) {
    unsigned char seen[kReach / 4096] = {};
    const std::size_t reach = end - at < kReach ? end - at : kReach;
    if (!platform().look(reinterpret_cast<void*>(at), reach, seen)) break;
    for (std::size_t i = 0; i < reach / page && runs < kMostRuns; ++i) {
      if ((seen[i] & 1U) == 0) continue;
      const Address here = at + i * page;
      const std::size_t gap = (last - first) / kGap;
      if (here - last > (gap < kShort * page ? gap : kShort * page)) {
        runs += end_run() ? 1 : 0;
        first = here;
      }
      last = here + page;
    }
  }
  end_run();
  return kept + empty({done, end - done}, end);
}
constexpr std::size_t kBetterShut = std::size_t{512} << 10;
[[nodiscard]] bool is_hardly_in_memory(Pages pages) noexcept {
  constexpr std::size_t kFew = 8;
  unsigned char seen[kBetterShut / 4096] = {};
  if (pages.bytes > kBetterShut ||
      !platform().look(reinterpret_cast<void*>(pages.from), pages.bytes, seen))
    return false;
  std::size_t count = 0;
  for (std::size_t i = 0; i < pages.bytes / platform().page_size(); ++i) count += seen[i] & 1U;
  return count <= kFew;
}

// As long as it is free, nothing of it can be touched, and its guard stays where it is. To shut it
// takes as long for many pages as for few, unlike to close it, but needs a mapping. False when it
// is to be closed, or can only be.
[[nodiscard]] bool shut(const Block& block, BlockState state, Left* left) noexcept {
  constexpr std::size_t kMostKept = std::size_t{32} << 20;
  const Pages pages = pages_of(block);
  const Address spare = spare_pages_of(block, block.requested(state)).from;
  const Address end = pages.from + pages.bytes;
  const Pages open{pages.from, (spare < end ? spare : end) - pages.from};
  // What a sweep holds for long is to have no memory.
  const bool keeps = block.bytes <= kMostKept && !on<Mitigation::sweep>();
  if (platform().closes() && (keeps ? is_hardly_in_memory(open) : block.bytes < kBetterShut)) {
    return false;
  }
  clear_edges(block.address, block.bytes, pages);
  *left = {Access::shut, keeps ? wipe(open) : empty(open, spare)};
  space::Span& span = span_of(block);
  if (block.is_in_slab() && platform().closes()) Process::heap().space().note_closed(span);
  return Process::heap().space().shut(span, pages.from, pages.bytes);
}

[[gnu::noinline]] Left discard(Block block, BlockState state) noexcept {
  const bool is_zero = on<Mitigation::zero>();
  if (block.is_heaps) {
    // Its memory may be the program's, and not the system's to take back.
    if (is_zero) memset(reinterpret_cast<void*>(block.address), 0, erased_bytes(block, state));
    return {Access::open, block.bytes};
  }
  if (Left left; is_closed_while_free(block) && shut(block, state, &left)) return left;
  const Pages pages = pages_of(block);
  const Address end = pages.from + pages.bytes;
  if (is_zero) clear_edges(block.address, block.bytes, pages);
  const Address spare = spare_pages_of(block, block.requested(state)).from;
  const Pages closed = closed_part(block);
  const Address closed_end = closed.from + closed.bytes;
  // What is closed as a whole need not be opened before.
  if (is_closed_while_free(block) &&
      platform().close(reinterpret_cast<void*>(closed.from), closed.bytes)) {
    Process::heap().space().note_closed(span_of(block));
    empty({closed_end, end - closed_end}, spare);
    return {Access::closed};
  }
  const bool is_open = clear_guard(block, block.requested(state));
  // Part of it is, and the system does not open it: nobody is to have it before it does.
  if (!is_open) Process::heap().space().note_closed(span_of(block));
  const std::size_t in_memory = is_zero ? empty(pages, is_open ? end : spare) : block.bytes;
  return {is_open ? Access::open : Access::closed, in_memory};
}

// Nothing of what the program has written stays.
template <class Any>
ALLOD_INLINE Left erase(const Any& block, BlockState state) noexcept {
  if (__builtin_expect(block.is_large(), 0)) return discard(block, state);
  if (!on<Mitigation::zero>()) return {};
  if (block.is_small()) {
    visit_small(block.address, block.bytes, kErase);
    return {};
  }
  memset(reinterpret_cast<void*>(block.address), 0, erased_bytes(block, state));
  if (block.bytes > kErasedWhole) Canary::clear_end(block.address, block.bytes);
  return {};
}

// Of one that is erased as a whole.
[[nodiscard]] ALLOD_INLINE bool is_whole_zero(Address from, std::size_t bytes) noexcept {
  Pair seen{};
  const auto look = [&](const Pair& pair) noexcept { seen |= pair; };
  bytes <= slab::BlockStates::kLargestNarrow ? visit_small(from, bytes, look)
                                             : visit_medium(from, bytes, look);
  return (seen[0] | seen[1]) == 0;
}
[[nodiscard]] ALLOD_INLINE bool was_written(const Block& block) noexcept {
  if (!on<Mitigation::written>() || !on<Mitigation::zero>()) return false;
  if (block.is_large()) return false;
  if (block.bytes <= kErasedWhole) return !is_whole_zero(block.address, block.bytes);
  return !is_zero(block.address, erased_bytes(block, block.cell.load())) || !ends_with_zero(block);
}

// Of those that are zero as a whole, the ticket says how large they are.
template <class Any>
[[nodiscard]] ALLOD_INLINE Ticket ticket_for(const Any& block) noexcept {
  static_assert(kErasedWhole >> (64 - kAddressBits) == 0);
  return Ticket{block.address, block.bytes <= kErasedWhole ? block.bytes : 0};
}

// What a block weighs in quarantine, where many large ones have no memory, and few that have are to
// wait.
template <class Any>
[[nodiscard]] ALLOD_INLINE std::size_t weight_of(const Any& block, Left left) noexcept {
  constexpr std::size_t kShutShare = 8;
  if (!block.is_large()) return block.bytes;
  const std::size_t least = block.bytes / heap::kEmptyShare;
  const std::size_t in_memory =
      left.bytes_in_memory / (left.access == Access::shut ? kShutShare : 1);
  return least < in_memory ? in_memory : least;
}

[[nodiscard]] ALLOD_HOT Block find_waiting(void* address) noexcept {
  const Block block = find(address);
  // It cannot be anything else, unless records have been overwritten.
  always_check(block.bytes != 0, "a block in quarantine is gone");
  if (__builtin_expect(was_written(block), 0)) {
    report_written(block, block.cell.load());
    erase(block, block.cell.load());
  }
  return block;
}
// After a sweep has held it.
[[gnu::noinline]] void let_go(void* address) noexcept {
  static_cast<void>(find_waiting(address));
  Process::release(address);
}
[[gnu::noinline]] ALLOD_HOT void leave_after_look(Ticket ticket) noexcept {
  void* const address = ticket.address();
  const Block block = find_waiting(address);
  const Left left{.bytes_in_memory = on<Mitigation::zero>() ? 0 : block.bytes};
  if (on<Mitigation::sweep>() && sweep::hold(address, weight_of(block, left), &let_go)) return;
  Process::release(address);
}
// A block's time in quarantine is over.
class Leave {
 public:
  void operator()(void* word) const noexcept {
    const Ticket ticket{word};
    if (__builtin_expect(!ticket.is_simple(), 0)) return leave_after_look(ticket);
    const std::size_t bytes = ticket.bytes();
    if (looks_ && __builtin_expect(!is_whole_zero(address_of(ticket.address()), bytes), 0)) {
      return leave_after_look(ticket);
    }
    if (sweeps_ && sweep::hold(ticket.address(), bytes, &let_go)) return;
    Process::release(ticket.address());
  }
  void end() const noexcept { Process::note_burst(); }

 private:
  const bool looks_ = on<Mitigation::written>() && on<Mitigation::zero>();
  const bool sweeps_ = on<Mitigation::sweep>();
};

[[gnu::cold, gnu::noinline]] Quarantine* new_quarantine() noexcept {
  void* const memory = Process::heap().space().allocate_metadata(sizeof(Quarantine));
  if (memory == nullptr) return &gone;
  own_quarantine = new (memory) Quarantine;
  // May allocate.
  if (has_key) pthread_setspecific(key, own_quarantine);
  return own_quarantine;
}

template <class Any>
[[nodiscard]] ALLOD_INLINE bool detain(const Any& block, Left left) noexcept {
  if (!on<Mitigation::quarantine>() || block.is_heaps) return false;
  Quarantine* quarantine = own_quarantine;
  if (__builtin_expect(quarantine == nullptr, 0)) quarantine = new_quarantine();
  return quarantine->take(ticket_for(block).word(), weight_of(block, left), random::own, Leave{});
}

// When a thread ends.
ALLOD_HOT void close_quarantine(void* quarantine) noexcept {
  own_quarantine = &gone;
  auto* const own = static_cast<Quarantine*>(quarantine);
  own->clear(random::own, Leave{});
  Process::heap().space().metadata().free(own, sizeof *own);
}

}  // namespace

Mitigations active() noexcept { return HardenedPolicy::kMitigations & chosen; }

// --- on the way out ----------------------------------------------------------------------------

namespace {

// A narrow state tells where a block's canary is only if little of the block is spare, as it is but
// for large alignments.
constexpr std::size_t kMinAlignment = 16;
[[nodiscard]] bool fits_narrow_state(std::size_t size, std::size_t room,
                                     std::size_t alignment) noexcept {
  using States = slab::BlockStates;
  if (room > States::kLargestNarrow) return true;
  const std::size_t bytes = Sizes::size_of(Sizes::of_aligned(room, alignment));
  return bytes > States::kLargestNarrow || bytes - size < slab::BlockStateCell::kMostNarrowSlack;
}

}  // namespace

// Blocks of 8 bytes have no room for a state: all are larger. Behind large blocks there is a page
// for a guard, which takes addresses only. Other blocks of large alignments are asked for with
// sizes that are multiples of these, and must not double.
std::size_t room_for(std::size_t size, std::size_t alignment, Guarded guarded) noexcept {
  constexpr std::size_t kLargestUnguarded = Sizes::size_of(Sizes::of(kDiscarded) - 1);
  if (size > kMaxBlock) return size;
  const std::size_t room = size + Canary::kBytes;
  if (__builtin_expect(room > kLargestUnguarded, 0) && on<Mitigation::guards>() &&
      guarded == Guarded::if_large && alignment <= kSliceBytes) {
    return room + platform().page_size();
  }
  if (!on<Mitigation::canary>() || alignment >= 4096) return size > 8 ? size : 9;
  if (alignment > kMinAlignment && !fits_narrow_state(size, room, alignment)) {
    return slab::BlockStates::kLargestNarrow + 1;
  }
  return room > 8 ? room : 9;
}

namespace {

struct GiveUp {
  static constexpr bool kNoexcept = true;
  static void* out_of_memory(std::size_t) noexcept { return nullptr; }
};

// The pointer to the block that the program gets. Null, and the block is lost, when it was closed
// and the system does not open it.
template <class Any>
ALLOD_INLINE void* seal_found(const Any& block, std::size_t size, Origin origin) noexcept {
  const std::size_t most = block.cell.most_slack();
  const std::size_t slack = block.bytes - size < most ? block.bytes - size : most;
  const BlockState state = BlockState::live(origin, slack);
  always_check(block.bytes != 0 && block.bytes >= size, "what is handed out is no block");
  const BlockState before = block.cell.load();
  always_check(!before.is_live(), "a block is handed out that is in use");
  if (__builtin_expect(block.is_large(), 0) && !set_guard(block, before, size)) return nullptr;
  if (has_canary(state)) {
    block.cell.store(BlockState::busy());
    // Nobody is to take what follows for a change in the state before.
    std::atomic_thread_fence(std::memory_order_release);
    canary.write(block.address, block.bytes - slack, block.bytes);
  }
  void* const pointer = has_tag(block) ? put_tag(block, block.requested(state))
                                       : reinterpret_cast<void*>(block.address);
  block.cell.store(state);
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

// Of what waits to be used again: what the thread has in quarantine, and then what a sweep finds
// nothing to point to. False when there was nothing.
[[nodiscard, gnu::cold, gnu::noinline]] bool make_room() noexcept {
  Quarantine* const quarantine = own_quarantine;
  if (quarantine != nullptr && quarantine->clear(random::own, Leave{})) return true;
  return on<Mitigation::sweep>() && !Process::is_interrupted() && sweep::make_room(&let_go);
}

// A block of the heap, sealed. When the system refuses, room is made.
template <class Take>
[[nodiscard]] ALLOD_INLINE void* allocate_by(std::size_t size, Origin origin,
                                             Take&& take) noexcept {
  for (;;) {
    if (void* const block = take(); __builtin_expect(block != nullptr, 1)) {
      void* const sealed = seal_block(block, size, origin);
      if (__builtin_expect(sealed != nullptr, 1)) return sealed;
      continue;  // with another one
    }
    if (size > kMaxBlock || !make_room()) return nullptr;
  }
}

}  // namespace

void* seal(void* block, std::size_t size, Origin origin) noexcept {
  return seal_block(block, size, origin);
}

namespace {

[[nodiscard]] bool is_closed_since_erased(const void* address) noexcept {
  const Block block = find(address);
  return on<Mitigation::zero>() && block.bytes != 0 && block.cell.load().is_closed();
}

[[nodiscard, gnu::noinline]] ALLOD_HOT void* allocate_general(std::size_t size,
                                                              Origin origin) noexcept {
  if (__builtin_expect(size == 0, 0) && on<Mitigation::empty>()) {
    if (void* const empty = empty_blocks.allocate()) return empty;
  }
  const std::size_t room = room_for(size);
  return allocate_by(size, origin, [&]() noexcept { return Process::allocate<GiveUp>(room); });
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
  if (bytes < kDiscarded) return memset(block, 0, bytes);
  // It may have been lent.
  if (is_closed) return memset(block, 0, platform().page_size());
  const Pages pages = whole_pages(address_of(block), address_of(block) + bytes);
  void* const first = reinterpret_cast<void*>(pages.from);
  if (platform().present_bytes(first, pages.bytes) > bytes / 2) return memset(block, 0, bytes);
  clear_edges(address_of(block), bytes, pages);
  wipe(pages);
  return block;
}

}  // namespace

void* allocate(std::size_t size, Origin origin) noexcept {
  void* const block = allocate_short<Medium>(size, origin);
  return __builtin_expect(block != nullptr, 1) ? block : allocate_general(size, origin);
}

void* allocate_aligned(std::size_t size, std::size_t alignment, Origin origin) noexcept {
  const std::size_t room = room_for(size, alignment);
  return allocate_by(size, origin,
                     [&]() noexcept { return Process::allocate_aligned(room, alignment); });
}

void* allocate_zeroed(std::size_t bytes) noexcept {
  void* small = allocate_short<Small>(bytes, Origin::c);
  if (small == nullptr) small = allocate_short<Medium>(bytes, Origin::c);
  return small != nullptr ? memset(small, 0, bytes) : allocate_zeroed_general(bytes);
}

// --- on the way back ---------------------------------------------------------------------------

namespace {

// Of one that is a span of its own, the span tells how it was closed.
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
  // Of two threads that free it at the same instant, one is late.
  if (__builtin_expect(!block.cell.replace(state, BlockState::busy()), 0)) {
    report_not_in_use(block, BlockState::freed(state.slack()));
    return false;
  }
  std::atomic_thread_fence(std::memory_order_release);  // as in seal_found()
  if (has_tag(block)) take_tag(block, block.requested(state));
  if (has_canary(state) &&
      __builtin_expect(!canary.is_intact(block.address, block.requested(state), block.bytes), 0)) {
    report_overflow(block, state);
  }
  check_neighbour(block);
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
// What is neither small nor medium, or no block, or a heap's.
[[gnu::noinline]] ALLOD_HOT bool take_back_other(void* address, std::size_t claimed_bytes,
                                                 Origin claimed) noexcept {
  const Block block = find(address);
  if (block.bytes != 0) return take_back_found(block, address, claimed_bytes, claimed);
  if (block.is_unwatched) return true;
  const bool known = empty_blocks.holds(address) && empty_blocks.is_block(address);
  if (!known || !empty_blocks.release(address)) report_stray(address);
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

void release_medium(void* block, ShortPlace place, std::size_t claimed_bytes,
                    Origin claimed) noexcept {
  const Address at = address_of(block);
  if (__builtin_expect(release_short<Medium>(at, place, claimed_bytes, claimed), 1)) return;
  release(block, claimed_bytes, claimed);
}

// --- in between ----------------------------------------------------------------------------------

namespace {

// Of a block in use. False when that was reported.
bool check_canary(const Block& block, BlockState state) noexcept {
  bool is_intact = true;
  if (has_canary(state)) {
    const memory_tags::Unchecked unchecked;
    is_intact = canary.is_intact(block.address, block.requested(state), block.bytes);
  }
  if (!is_intact) report_overflow(block, state);
  return is_intact;
}

}  // namespace

bool inspect(const void* address, std::size_t* bytes) noexcept {
  const Block block = find(address);
  *bytes = 0;
  if (block.is_unwatched) *bytes = Process::heap().usable_size(address);
  if (*bytes != 0) return true;
  if (block.bytes == 0) {
    if (empty_blocks.holds(address) && empty_blocks.is_in_use(address)) return true;
    report_stray(address);
    return false;
  }
  const BlockState state = block.cell.load();
  if (!state.is_live() || is_stale(block, state, address)) {
    report_not_in_use(block, state);
    return false;
  }
  *bytes = block.requested(state);
  if (!check_canary(block, state)) {
    // A block that has to move is freed: once is enough.
    const memory_tags::Unchecked unchecked;
    canary.write(block.address, block.requested(state), block.bytes);
  }
  return true;
}

std::size_t size_of(const void* address) noexcept {
  const Block block = find(address);
  if (block.is_unwatched) return Process::heap().usable_size(address);
  const BlockState state = block.bytes == 0 ? BlockState{} : block.cell.load();
  return state.is_live() ? block.requested(state) : 0;
}

std::size_t readable_bytes(const void* address) noexcept {
  const Block block = find(address);
  if (block.is_unwatched) return Process::heap().usable_size(address);
  const BlockState state = block.bytes == 0 ? BlockState{} : block.cell.load();
  if (!state.is_live()) return 0;
  if (!may_have_guard(block)) return block.bytes;
  const std::size_t open = spare_pages_of(block, block.requested(state)).from - block.address;
  return open < block.bytes ? open : block.bytes;
}

std::size_t usable_size(const void* address) noexcept {
  const Block block = find(address);
  if (block.is_unwatched) return Process::heap().usable_size(address);
  if (block.bytes == 0) return 0;
  const BlockState state = block.cell.load();
  if (!state.is_live()) return 0;
  static_cast<void>(check_canary(block, state));
  return block.requested(state);
}

namespace {

[[nodiscard]] ALLOD_INLINE heap::Bounds bounds_in(const Block& block) noexcept {
  const BlockState state = block.cell.load();
  if (!state.is_live() && !state.was_freed()) return {};
  return {reinterpret_cast<const void*>(block.address),
          state.was_freed() ? heap::Bounds::kFreed : block.requested(state)};
}
[[nodiscard]] heap::Bounds bounds_elsewhere(const void* address) noexcept {
  const heap::Bounds whole = Process::heap().bounds_of(address);
  if (whole.start == nullptr) return {};
  const Block block = find(whole.start);
  if (block.is_unwatched) return whole;
  return block.bytes != 0 ? bounds_in(block) : heap::Bounds{};
}
[[nodiscard]] heap::Bounds bounds_of_nothing(const void* address) noexcept {
  const bool is_block = empty_blocks.is_block(address) && empty_blocks.is_in_use(address);
  return is_block ? heap::Bounds{address} : heap::Bounds{};
}

ALLOD_INLINE heap::Bounds bounds_at(Address at) noexcept {
  const auto* const address = reinterpret_cast<const void*>(at);
  const space::PageMap& map = Process::heap().space().map();
  const space::Tag tag = map.tag_of(at);
  if (tag == space::kForeignTag) {
    return empty_blocks.holds(address) ? bounds_of_nothing(address) : heap::Bounds{};
  }
  if (__builtin_expect(!space::is_domains(tag), 0)) return bounds_elsewhere(address);
  const slab::Slab& slab = *slab::as_slab(map.span_at(at));
  const std::uint32_t index = slab.index_around(at);
  if (index >= slab.capacity()) return {};
  const Address start = address_of(slab.block_at(index));
  return bounds_in(block_in(slab, index, start, false));
}

}  // namespace

heap::Bounds bounds_of(const void* address) noexcept {
  heap::Bounds bounds = bounds_at(memory_tags::bare(address_of(address)));
  if (memory_tags::are_on() && bounds.start != nullptr) {
    const Address start = address_of(bounds.start) | memory_tags::tag_in(address_of(address));
    bounds.start = reinterpret_cast<const void*>(start);
  }
  return bounds;
}

namespace {

// What to ask for when it is to have another size.
[[nodiscard]] std::size_t room_again(const Block& block, std::size_t size) noexcept {
  return room_for(size, 1, block.is_heaps ? Guarded::never : Guarded::if_large);
}

// Can a large block stay as it is but for its guard? On older systems that of a span stays, too.
[[nodiscard]] bool keeps_place(const Block& block, std::size_t before, std::size_t size) noexcept {
  if (block.slab != nullptr) return block.is_large();
  if (Slices::covering(room_again(block, size)).bytes() != block.bytes) return false;
  return platform().closes() ||
         spare_pages_of(block, before).from == spare_pages_of(block, size).from;
}
// What is behind the block goes, and so does what it loses.
void clear_end(const Block& block, BlockState from, std::size_t size) noexcept {
  const std::size_t before = block.requested(from);
  if (has_canary(from)) Canary::clear(block.address, before, block.bytes);
  if (size < before && on<Mitigation::zero>()) {
    memset(reinterpret_cast<void*>(block.address + size), 0, before - size);
  }
}
// It keeps its place. `from` is not live.
void* resize_large(const Block& block, BlockState from, std::size_t size) noexcept {
  const std::size_t before = block.requested(from);
  // What it loses may be closed.
  const bool is_less = size < before;
  if (is_less) clear_end(block, from, size);
  if (!move_guard(block, before, size)) {
    block.cell.store(from);
    return nullptr;
  }
  if (!is_less) clear_end(block, from, size);
  const BlockState state = BlockState::live(from.origin(), block.bytes - size);
  if (has_canary(state)) canary.write(block.address, size, block.bytes);
  block.cell.store(state);
  return reinterpret_cast<void*>(block.address);
}
// Within its class. `from` is not live.
void* resize_in_slab(const Block& block, BlockState from, std::size_t size) noexcept {
  if (has_tag(block)) take_tag(block, block.requested(from));
  clear_end(block, from, size);
  block.cell.store(BlockState{});
  return seal(reinterpret_cast<void*>(block.address), size, from.origin());
}

void* resize_span(const Block& block, BlockState from, std::size_t size) noexcept {
  const std::size_t before = block.requested(from);
  void* const old = reinterpret_cast<void*>(block.address);
  if (!clear_guard(block, before)) {
    block.cell.store(from);
    return nullptr;
  }
  if (has_canary(from)) Canary::clear(block.address, before, block.bytes);
  void* const same = Process::resize_in_place(old, room_again(block, size));
  if (same == nullptr) {
    block.cell.store(BlockState{});
    static_cast<void>(seal(old, before, from.origin()));
    return nullptr;
  }
  const Block now = find(same);
  if (size < before && on<Mitigation::zero>()) {
    // The platform has erased what was cut off.
    const std::size_t kept = before < now.bytes ? before : now.bytes;
    memset(reinterpret_cast<void*>(now.address + size), 0, kept - size);
  }
  now.cell.store(BlockState{});
  return seal(same, size, from.origin());
}

template <class Range>
[[nodiscard]] ALLOD_INLINE Resized resize_in(Address at, ShortPlace place, std::size_t size,
                                             std::size_t* before) noexcept {
  ShortLook<Range> look;
  if (!look_at<Range>(at, place, Origin::c, &look) || look.damage != 0) return Resized::to_ask;
  *before = look.requested;
  const bool stays = Range::has_size(size) &&
                     Range::bytes_of(Range::class_for(size + Canary::kBytes)) == look.bytes;
  if (!stays) return size < heap::kGrowable ? Resized::to_copy : Resized::to_ask;
  if (!look.seize()) return Resized::to_ask;
  Canary::clear(at, look.requested, look.bytes);
  if (size < look.requested) {
    memset(reinterpret_cast<void*>(at + size), 0, look.requested - size);
  }
  canary.write(at, size, look.bytes);
  look.store(slab::BlockState::live(Origin::c, look.bytes - size));
  return Resized::in_place;
}

}  // namespace

Resized resize_short(void* block, std::size_t size, std::size_t* before) noexcept {
  const Address at = address_of(block);
  ShortPlace place;
  if (!find_short(at, &place)) return Resized::to_ask;
  if (Small::has(place.stride)) return resize_in<Small>(at, place, size, before);
  if (Medium::has(place.stride)) return resize_in<Medium>(at, place, size, before);
  return Resized::to_ask;
}

void* resize(void* address, std::size_t size) noexcept {
  const Block block = find(address);
  if (block.bytes == 0 || size == 0) return nullptr;
  const BlockState state = block.cell.load();
  // By realloc, it has to move: what frees it then is the wrong function, and that is found out.
  const bool is_of_new = state.origin() == Origin::scalar || state.origin() == Origin::array;
  if (is_of_new && on<Mitigation::origin>()) return nullptr;
  const std::size_t room = room_again(block, size);
  if (block.slab != nullptr) {
    if (room > Sizes::kMaxSize || Sizes::size_of(Sizes::of(room)) != block.bytes) return nullptr;
  } else if (room < heap::kGrowable) {
    return nullptr;
  }
  if (!state.is_live() || !block.cell.replace(state, BlockState::busy())) return nullptr;
  std::atomic_thread_fence(std::memory_order_release);  // as in seal_found()
  if (keeps_place(block, block.requested(state), size)) return resize_large(block, state, size);
  return block.slab != nullptr ? resize_in_slab(block, state, size)
                               : resize_span(block, state, size);
}

bool lend(void* address) noexcept {
  const Block block = find(address);
  if (block.bytes == 0 || !block.cell.load().is_closed()) return true;
  const Pages first = whole_pages(block.address, block.address + platform().page_size());
  const bool is_shut = __atomic_load_n(&span_of(block).has_shut, __ATOMIC_RELAXED);
  if (is_shut && !Process::heap().space().reopen(first.from, first.bytes)) return false;
  return open(first);
}

// --- faults --------------------------------------------------------------------------------------

void add_state(Misuse* misuse) noexcept {
  if (misuse->block == nullptr) return;
  const Block block = find(misuse->block);
  if (block.bytes == 0) return;
  misuse->state = block.cell.load();
  // It may never have been handed out.
  if (misuse->state.is_live() || misuse->state.was_freed()) {
    misuse->requested = block.requested(misuse->state);
  }
}

bool explain_wrong_tag(const void* address, Misuse* misuse) noexcept {
  *misuse = misuse_of(MisuseKind::wrong_tag, address);
  if (misuse->block == nullptr && !Process::heap().describe_behind(address, misuse)) {
    const space::Tag tag = Process::heap().space().map().tag_of(address_of(misuse->address));
    misuse->kind = MisuseKind::access_after_free;
    return tag == space::kFreeTag;
  }
  add_state(misuse);
  const std::size_t offset = address_of(misuse->address) - address_of(misuse->block);
  if (misuse->state.was_freed()) {
    misuse->kind = MisuseKind::access_after_free;
  } else if (offset >= misuse->requested) {
    misuse->kind = MisuseKind::access_past_the_end;
  }
  return true;
}

bool is_closed(const void* address) noexcept {
  Misuse misuse{.kind = MisuseKind::access_past_the_end, .address = address};
  return explain_fault(address, &misuse);
}

bool explain_fault(const void* address, Misuse* misuse) noexcept {
  if (empty_blocks.holds(address)) {
    *misuse = Misuse{.kind = MisuseKind::access_to_nothing, .address = address};
    return true;
  }
  *misuse = misuse_of(MisuseKind::access_past_the_end, address);
  const bool is_behind_slab =
      Process::heap().is_guarded(address) && Process::heap().describe_behind(address, misuse);
  if (misuse->block == nullptr) return false;
  const Block block = find(misuse->block);
  if (block.bytes == 0 || !on<Mitigation::guards>()) return false;
  add_state(misuse);
  if (is_behind_slab) return true;
  if (misuse->state.is_live()) {
    return may_have_guard(block) && spare_pages_of(block, misuse->requested).hold(address);
  }
  misuse->kind = MisuseKind::access_after_free;
  // One that is busy may be closed already.
  const BlockState state = misuse->state;
  const bool is_closed = state.was_freed() ? state.is_closed() : is_closed_while_free(block);
  return is_closed && pages_of(block).hold(address);
}

// --- the process ---------------------------------------------------------------------------------

namespace {

// Can blocks go the short way? It does what these measures ask for; the others have no part in it
// but for tags. The classes are chosen for pages of this size, and the map has to be the whole one.
[[nodiscard]] bool can_be_short() noexcept {
  constexpr Mitigations kDone = Mitigations::named("canary,neighbours,zero,quarantine,origin");
  const bool is_whole_map = Process::heap().space().map().fast_slices() != 0;
  return platform().page_size() == ShortClass::kPageBytes && is_whole_map &&
         active().has_all(kDone) && !on<Mitigation::tags>();
}
ALLOD_HOT void look_at_waiting(void* word) noexcept {
  const Block block = find(Ticket{word}.address());
  if (block.bytes != 0 && was_written(block)) report_written(block, block.cell.load());
}
// Of a measure that somebody has named. The program runs without it.
[[gnu::cold]] void tell_no_effect(std::string_view name, std::string_view reason) noexcept {
  Message{} << "warning: ALLOD_HARDENED=" << name << " has no effect: " << reason;
}

}  // namespace

void start() noexcept {
  if (on<Mitigation::empty>()) empty_blocks.start(platform());
  if (on<Mitigation::sweep>() && !(on<Mitigation::quarantine>() && on<Mitigation::zero>())) {
    chosen = chosen.without(Mitigation::sweep);
    tell_no_effect("sweep", "it needs quarantine and zero");
  }
  has_key = pthread_key_create(&key, &close_quarantine) == 0;
  if (has_key && own_quarantine != nullptr) pthread_setspecific(key, own_quarantine);
  os::at_fork(nullptr, nullptr, &random::reseed);
  if (on<Mitigation::sweep>() && !sweep::start()) {
    chosen = chosen.without(Mitigation::sweep);
    tell_no_effect("sweep", "the system does not let a process read its own memory");
  }
  if (settings().mitigations.has(Mitigation::tags) && !on<Mitigation::tags>()) {
    tell_no_effect("tags", "this processor, or this system, has no tags of memory");
  }
  if (on<Mitigation::guards>() || on<Mitigation::empty>() || on<Mitigation::tags>()) {
    faults::watch();
  }
  if (can_be_short()) {
    Small::open();
    Medium::open();
  }
}

void check_at_exit() noexcept {
  Quarantine* const quarantine = own_quarantine;
  if (quarantine == nullptr || !on<Mitigation::written>() || !on<Mitigation::zero>()) return;
  quarantine->for_each(&look_at_waiting);
}

}  // namespace hardened

heap::HeapOptions HardenedPolicy::options() noexcept {
  const heap::HeapOptions options = LibraryPolicy::options();
  hardened::chosen = kMitigations & settings().mitigations;
  if (hardened::on<Mitigation::tags>() && !memory_tags::start()) {
    hardened::chosen = hardened::chosen.without(Mitigation::tags);
  }
  hardened::canary.start();
  HardenedLinux::addresses = hardened::on<Mitigation::addresses>();
  HardenedLinux::positions = hardened::on<Mitigation::positions>();
  HardenedLinux::guards = hardened::on<Mitigation::guards>();
  HardenedLinux::erases = hardened::on<Mitigation::zero>();
  return options;
}

}  // namespace allod

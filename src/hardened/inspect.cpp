// Queries about blocks.
#include <algorithm>

#include "hardened/large.hpp"
#include "hardened/reports.hpp"

namespace allod::hardened {

namespace {

// False after a report. Tolerates a concurrent resize or free, which is another mistake: the state
// has changed then, or the next look finds the canary of a block that is back at its old size.
bool check_canary(const Block& block, BlockState state) noexcept {
  if (!has_canary(state)) return true;
  constexpr int kLooks = 4;
  for (int look = 0; look < kLooks; ++look) {
    const memory_tags::Unchecked unchecked;
    if (canary.is_intact(block.address, block.requested(state), block.bytes)) return true;
    if (block.cell.load() != state) return true;
  }
  report_overflow(block, state);
  return false;
}

}  // namespace

bool inspect(const void* address, std::size_t* bytes) noexcept {
  const Block block = find(address);
  *bytes = 0;
  if (block.is_unwatched) *bytes = Process::heap().usable_size(address);
  if (*bytes != 0) return true;
  if (block.bytes == 0) {
    const Origin origin =
        empty_blocks.holds(address) ? empty_blocks.origin_of(address) : Origin::any;
    if (origin == Origin::any) {
      report_stray(address);
      return false;
    }
    if (!is_wrong_family(origin, Origin::c)) return true;
    report_wrong_function(misuse_of_empty(MisuseKind::wrong_function, address, origin), Origin::c);
    return false;
  }
  const BlockState state = block.cell.load();
  if (!state.is_live() || is_stale(block, state, address)) {
    report_not_in_use(block, state);
    return false;
  }
  if (is_wrong_family(state.origin(), Origin::c)) {
    report_wrong_function(misuse_of(MisuseKind::wrong_function, block, state), Origin::c);
    return false;
  }
  *bytes = block.requested(state);
  if (!check_canary(block, state)) {
    // Restores the canary, since a block that moves is freed: one report is enough.
    const memory_tags::Unchecked unchecked;
    canary.write(block.address, block.requested(state), block.bytes);
  }
  return true;
}

bool is_in_use(const void* address) noexcept {
  const Block block = find(address);
  if (block.bytes != 0) return block.cell.load().is_live();
  return empty_blocks.holds(address) && empty_blocks.is_in_use(address);
}

namespace {

// For any thread and any address with a slab's tag, while others may free the slab. Null if its
// descriptor no longer serves it, as the map tells. A descriptor that is reused right afterwards is
// read with care.
[[nodiscard]] ALLOD_INLINE const slab::Slab* find_slab(Address at) noexcept {
  const space::PageMap& map = Process::heap().space().map();
  space::Span* const span = map.span_at(at);
  if (__builtin_expect(span == nullptr || span->home == nullptr, 0)) return nullptr;
  return __builtin_expect(map.span_of(span->base) == span, 1) ? slab::as_slab(span) : nullptr;
}

}  // namespace

bool may_be_in_use(Address from, Address to) noexcept {
  const space::PageMap& map = Process::heap().space().map();
  const space::Tag tag = map.tag_of(from);
  if (tag == space::kFreeTag) return false;
  // Held blocks keep slabs of ended threads in use.
  if (!space::is_domains(tag) && space::owner_of(tag) != space::kOrphanOwner) return true;
  const slab::Slab* const slab = find_slab(from);
  if (slab == nullptr) return true;
  // Counts the rest behind the last block as part of it, since that block may just be growing.
  const std::uint32_t most = slab->capacity() - 1;
  const std::uint32_t last = std::min(slab->index_around(to - 1), most);
  for (std::uint32_t i = std::min(slab->index_around(from), last); i <= last; ++i) {
    const BlockState state = slab::BlockStates::look_at(*slab, i);
    if (!state.was_freed() && state != BlockState{}) return true;
  }
  return false;
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

// Inconsistent values belong to a block that is being freed.
[[nodiscard]] ALLOD_INLINE heap::Bounds bounds_by(Address start, std::size_t bytes,
                                                  BlockState state) noexcept {
  const auto* const block = reinterpret_cast<const void*>(start);
  if (state.was_freed()) return {block, heap::Bounds::kFreed};
  if (!state.is_live() || state.slack() > bytes) return {};
  return {block, bytes - state.slack()};
}
[[nodiscard]] ALLOD_INLINE heap::Bounds bounds_in_slab(Address at) noexcept {
  const slab::Slab* const slab = find_slab(at);
  if (slab == nullptr) return {};
  const std::uint32_t index = slab->index_around(at);
  if (index >= slab->capacity()) return {};
  const std::size_t bytes = slab->block_bytes();
  const Address start = address_of(slab->block_at(index));
  if (__builtin_expect(start > at, 0)) return {};
  return bounds_by(start, bytes, slab::BlockStates::look_at(*slab, index));
}
[[nodiscard]] heap::Bounds bounds_elsewhere(const void* address) noexcept {
  const heap::Bounds whole = Process::heap().bounds_of(address);
  if (whole.start == nullptr) return {};
  const space::PageMap& map = Process::heap().space().map();
  const Address start = address_of(whole.start);
  const space::Tag tag = map.tag_of(start);
  if (space::is_slab(tag)) {
    return space::class_of(tag) == space::kMixedClass ? whole : bounds_in_slab(start);
  }
  space::Span* const span = map.span_of(start);
  if (span == nullptr) return {};
  return bounds_by(start, whole.bytes, slab::BlockStates::of(*span).load());
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
  return __builtin_expect(space::is_domains(tag), 1) ? bounds_in_slab(at)
                                                     : bounds_elsewhere(address);
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

}  // namespace allod::hardened

// A block of the hardened library: address, size, state and pages.
#pragma once

#include "allod/heaps/present.hpp"
#include "hardened/empty_blocks.hpp"
#include "hardened/short.hpp"
#include "instance/memory_tags.hpp"

namespace allod::hardened {

using heap::Misuse;
using heap::MisuseKind;
using heaps::kDiscarded;
using slab::BlockState;
using slab::BlockStateCell;
using Sizes = Process::Sizes;

extern constinit EmptyBlocks<HardenedLinux> empty_blocks;

[[nodiscard]] inline HardenedLinux& platform() noexcept {
  return Process::heap().space().platform();
}

struct Block {
  BlockStateCell cell;
  Address address;
  std::size_t bytes;
  const slab::Slab* slab;  // null: a span of its own
  std::uint32_t index;     // within the slab
  bool is_heaps;           // belongs to a first-class heap
  // In a slab with blocks of all sizes, which keeps no states. The other members are not set.
  bool is_unwatched = false;

  [[nodiscard]] std::size_t requested(BlockState state) const noexcept {
    return bytes - state.slack();
  }
  [[nodiscard]] bool is_in_slab() const noexcept { return slab != nullptr; }
  [[nodiscard]] bool is_large() const noexcept { return bytes >= kDiscarded || !is_in_slab(); }
  [[nodiscard]] bool is_small() const noexcept { return bytes <= kSmall && is_in_slab(); }

  static constexpr std::size_t kSmall = slab::BlockStates::kLargestNarrow;
};

// Most blocks are small or medium, and of a thread's domain. Code for them is compiled separately
// for each of the two.
struct SmallBlock : Block {
  ALLOD_INLINE SmallBlock(const slab::Slab& of, std::uint32_t number, Address at) noexcept
      : Block{slab::BlockStates::narrow_of(of, number), at, of.block_bytes(), &of, number, false} {
    // Blocks of 8 bytes do not exist.
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

// No block begins at the address, neither in use nor free.
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
[[nodiscard, gnu::noinline]] ALLOD_HOT inline Block find_elsewhere(Address at,
                                                                   space::Tag tag) noexcept {
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

// Whether a canary follows the block, which depends on the room behind it.
[[nodiscard]] ALLOD_INLINE bool has_canary(BlockState state) noexcept {
  return on<Mitigation::canary>() && state.slack() >= Canary::kBytes;
}

// Whether all its pages are known to be present.
[[nodiscard]] ALLOD_INLINE bool is_filled(const Block& block) noexcept {
  return !block.is_large() && block.slab != nullptr && block.slab->is_filled(block.index);
}

// The bytes from the start of a block, not a large one, that are zero while it is free; its last
// word is zero, too. The program never owned the bytes in between.
constexpr std::size_t kErasedWhole = ShortClass::kMostBytes;
[[nodiscard]] ALLOD_INLINE std::size_t erased_bytes(const Block& block, BlockState state) noexcept {
  if (block.bytes <= kErasedWhole) return block.bytes;
  const std::size_t used = align_up(block.requested(state) + Canary::kBytes, 8);
  return used < block.bytes ? used : block.bytes;
}
[[nodiscard]] ALLOD_INLINE bool ends_with_zero(const Block& block) noexcept {
  std::uint64_t end;
  __builtin_memcpy(&end, reinterpret_cast<const void*>(block.address + block.bytes - sizeof end),
                   sizeof end);
  return end == 0;
}
[[nodiscard]] ALLOD_INLINE bool starts_with_zero(const Block& block) noexcept {
  std::uint64_t start;
  __builtin_memcpy(&start, reinterpret_cast<const void*>(block.address), sizeof start);
  return start == 0;
}

// --- pages -------------------------------------------------------------------------------

struct Pages {
  Address from;
  std::size_t bytes;

  [[nodiscard]] bool hold(const void* address) const noexcept {
    return address_of(address) - from < bytes;
  }
};
[[nodiscard]] inline Pages whole_pages(Address from, Address to) noexcept {
  const std::size_t page = platform().page_size();
  const Address first = align_up(from, page);
  const Address last = align_down(to, page);
  return {first, last > first ? last - first : 0};
}

[[nodiscard]] inline space::Span& span_of(const Block& block) noexcept {
  return *Process::heap().space().map().span_of(block.address);
}
[[nodiscard]] inline Pages pages_of(const Block& block) noexcept {
  return whole_pages(block.address, block.address + block.bytes);
}

// --- memory tags -------------------------------------------------------------------------

// A block in use has a random tag on its requested bytes, and so has the pointer that the program
// gets. All other memory has tag 0, and so have the pointers used here; no pointer of the program
// does.

// Blocks of first-class heaps get no tags, since a destroyed heap would leave them behind. Neither
// do large blocks.
template <class Any>
[[nodiscard]] ALLOD_INLINE bool has_tag(const Any& block) noexcept {
  return memory_tags::are_on() && !block.is_heaps && !block.is_large();
}
// Returns the pointer for the program. Two neighbours never have the same tag.
[[nodiscard, gnu::noinline]] inline void* put_tag(Block block, std::size_t requested) noexcept {
  if (requested == 0) return reinterpret_cast<void*>(block.address);
  const bool is_first = block.index == 0;
  const bool is_last = block.index + 1 == block.slab->capacity();
  const Address before = is_first ? 0 : memory_tags::tag_at(block.address - block.bytes);
  const Address behind = is_last ? 0 : memory_tags::tag_at(block.address + block.bytes);
  const Address pointer = memory_tags::draw(block.address, before, behind);
  memory_tags::set(pointer, requested);
  return reinterpret_cast<void*>(pointer);
}
[[gnu::noinline]] inline void take_tag(Block block, std::size_t requested) noexcept {
  memory_tags::set(block.address, requested);
}
// Whether the pointer is to an earlier block at this address.
template <class Any>
[[nodiscard]] ALLOD_INLINE bool is_stale(const Any& block, BlockState state,
                                         const void* pointer) noexcept {
  if (!has_tag(block) || block.requested(state) == 0) return false;
  return memory_tags::tag_at(block.address) != memory_tags::tag_in(address_of(pointer));
}

}  // namespace allod::hardened

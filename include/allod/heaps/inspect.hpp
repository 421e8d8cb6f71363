// Questions about blocks of any owner, and checks of heaps.
#pragma once

#include "allod/heaps/heap.hpp"

namespace allod::heaps {

// May be out of date; is_owned_by() is exact, in a turn on the heap.
template <class Policy>
auto Heap<Policy>::heap_of(const void* block) const noexcept -> HeapDomain* {
  const space::PageMap& map = space().map();
  const Address at = address_of(block);
  const space::Tag tag = map.tag_of(at);
  if (!space::is_heaps(tag)) return nullptr;
  space::Span* const span = map.span_of(at);
  // If the caller does not own the block, its addresses may have been unmapped.
  if (__builtin_expect(span == nullptr, 0)) return nullptr;
  if (space::class_of(tag) == space::kHugeClass) return static_cast<HeapDomain*>(span->heap);
  // A slab that leaves its heap is tagged as an orphan before it is adopted. So if the tag still
  // names a heap, the owner read before is that heap.
  slab::Owner* const owner = slab::as_slab(span)->owner();
  return space::is_heaps(map.tag_of(at)) ? static_cast<HeapDomain*>(owner) : nullptr;
}

template <class Policy>
std::size_t Heap<Policy>::usable_size(const void* address) const noexcept {
  std::size_t bytes;
  if (fast_usable_size(address, &bytes)) return bytes;
  const Misuse found = describe(MisuseKind::invalid_free, address);
  if (found.block != address) return 0;
  const HeapDomain* const heap = heap_of(address);
  if (heap != nullptr && heap->hardening != nullptr) return hardened_size(*heap, found);
  return found.block_bytes;
}

template <class Policy>
bool Heap<Policy>::is_block_of_no_bytes(const void* address) const noexcept {
  const Misuse found = describe(MisuseKind::invalid_free, address);
  if (found.block != address) return false;
  const HeapDomain* const heap = heap_of(address);
  return heap != nullptr && heap->hardening != nullptr && is_sealed_nothing(*heap, found);
}

// For a block in a slab of one class.
[[nodiscard]] ALLOD_INLINE Bounds bounds_in(const Slab& slab, Address at) noexcept {
  const std::uint32_t index = slab.index_around(at);
  if (index >= slab.capacity() || !slab.is_in_use(index)) return {};
  return {slab.block_at(index), slab.block_bytes()};
}
[[nodiscard]] inline Bounds bounds_in(const slab::MixedSlab& slab, Address at) noexcept {
  const std::uint32_t grain = slab.index_around(at);
  const std::uint32_t start = slab.is_usable(grain) ? slab.start_around(grain) : Slab::kNoBlock;
  if (start == Slab::kNoBlock || slab.is_marked_remote(start)) return {};
  const std::size_t bytes = slab.run_at(start) * slab::MixedSlab::kGrain;
  return {slab.block_at(start), bytes};
}

template <class Policy>
ALLOD_INLINE Bounds Heap<Policy>::bounds_of(const void* address) const noexcept {
  const space::PageMap& map = space().map();
  const Address at = address_of(address);
  const space::Tag tag = map.tag_of(at);
  if (tag == space::kForeignTag) return {};
  if (__builtin_expect(!space::is_domains(tag), 0)) return bounds_elsewhere(at, tag);
  return bounds_in(*slab::as_slab(map.span_at(at)), at);
}

// For all but the first slice of a slab of a domain.
template <class Policy>
Bounds Heap<Policy>::bounds_elsewhere(Address at, space::Tag tag) const noexcept {
  if (tag == space::kFreeTag) return {};
  const space::PageMap& map = space().map();
  space::Span* const span = map.span_at(at);
  // The record of a span that is being freed may be another span's by now: the map must lead back
  // to it.
  if (span == nullptr || map.span_of(span->base) != span) return {};
  if (tag == space::kInteriorTag) tag = map.tag_of(span->base);
  Bounds bounds;
  if (space::is_slab(tag)) {
    const Slab& slab = *slab::as_slab(span);
    bounds = space::class_of(tag) == space::kMixedClass ? bounds_in(slab::as_mixed(slab), at)
                                                        : bounds_in(slab, at);
    if (space::is_heaps(tag) && bounds.start != nullptr) {
      // Heaps' records are never freed, so that an outdated owner may be read.
      auto* const heap = static_cast<const HeapDomain*>(slab.owner());
      if (heap != nullptr && is_newest(*heap, slab, bounds.start)) return {};
    }
  } else if ((tag == space::kHugeTag || space::is_heaps(tag)) &&
             at - span->base < span->size.bytes()) {
    bounds = {reinterpret_cast<void*>(span->base), span->size.bytes()};
  }
  if (bounds.start == nullptr || !space::is_heaps(tag)) return bounds;
  return sealed_bounds(*span, tag, bounds);
}

template <class Policy>
void Heap<Policy>::check_invariants() noexcept {
  Engine::check_invariants();
  LockGuard guard{registry_lock()};
  for (HeapDomain* heap = heaps_.first(); heap != nullptr; heap = HeapList::next(heap)) {
    check_heap(*heap);
  }
}

template <class Policy>
void Heap<Policy>::check_heap(HeapDomain& heap) noexcept {
  const HeapFigures seen = count_blocks(heap);
  const HeapFigures& told = heap.figures;
  always_check(heap.active || seen.held == 0, "a heap that is gone holds memory");
  always_check(seen.live == told.live && seen.live_blocks == told.live_blocks &&
                   seen.held == told.held && seen.slabs == told.slabs &&
                   seen.huge_blocks == told.huge_blocks,
               "a heap's blocks are counted wrongly");
}

// Checks the heap's slabs and huge blocks as well.
template <class Policy>
HeapFigures Heap<Policy>::count_blocks(HeapDomain& heap) noexcept {
  HeapFigures seen;
  for (ClassIndex c = 0; c < kClasses; ++c) {
    Bin* const bin = heap.find_bin(c);
    if (bin == nullptr) continue;
    std::uint32_t slabs = 0;
    for_each_slab(*bin, [&](Slab& slab) {
      ++slabs;
      check_slab(slab, c, space::make_tag(heap.id(), c));
      always_check(slab.owner() == &heap, "a slab names another owner");
      seen.live_blocks += slab.capacity() - slab.free_count();
      seen.live += std::size_t{slab.capacity() - slab.free_count()} * slab.block_bytes();
      seen.held += slab.size.bytes();
    });
    always_check(slabs == bin->slab_count, "slabs are counted wrongly");
    seen.slabs += slabs;
  }
  for (space::Span* s = heap.mixed.first(); s != nullptr; s = SpanList::next(s)) {
    const auto& slab = slab::as_mixed(*slab::as_slab(s));
    always_check(slab.free_count() == slab.count_free_bits(), "free grains are counted wrongly");
    always_check(slab.owner() == &heap, "a slab names another owner");
    ++seen.slabs;
    seen.held += slab.usable_bytes();
    seen.live += slab.usable_bytes() - slab.free_count() * slab::MixedSlab::kGrain;
    seen.live_blocks += slab.count_starts();
  }
  for (space::Span* s = heap.huge.first(); s != nullptr; s = SpanList::next(s)) {
    always_check(s->heap == &heap, "a huge block names another heap");
    ++seen.huge_blocks;
    ++seen.live_blocks;
    seen.live += s->size.bytes();
    seen.held += s->size.bytes();
  }
  if (heap.hardening != nullptr) {
    heap.hardening->waiting.for_each([&](const void* block) {
      --seen.live_blocks;
      seen.live -= describe(MisuseKind::invalid_free, block).block_bytes;
    });
  }
  for (ClassIndex c = 0; c < HeapDomain::kQuickClasses; ++c) {
    if (heap.newest[c] == nullptr) continue;
    --seen.live_blocks;
    seen.live -= Sizes::size_of(c);
  }
  return seen;
}

}  // namespace allod::heaps

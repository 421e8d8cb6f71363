// Questions about addresses, and the heap checked against itself.
#pragma once

#include "allod/heap/heap.hpp"

namespace allod::heap {

// Programs that account for their memory, as redis does, ask this twice of every block.
template <class Policy>
ALLOD_INLINE bool Heap<Policy>::fast_usable_size(const void* address,
                                                 std::size_t* bytes) const noexcept {
  space::Tag tag;
  space::Span* span;
  const bool is_found = space_.map().fast_find(address_of(address), &tag, &span);
  if (!__builtin_expect(is_found && space::is_domains(tag), 1)) return false;
  const Slab& slab = *slab::as_slab(span);
  *bytes = slab.block_bytes();
  return slab.index_of(address_of(address)) != Slab::kNoBlock;
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

template <class Policy>
Misuse Heap<Policy>::describe(MisuseKind kind, const void* address) const noexcept {
  Misuse misuse{.kind = kind, .address = address};
  const space::PageMap& map = space_.map();
  const Address at = address_of(address);
  const space::Tag tag = map.tag_of(at);
  if (tag == space::kForeignTag || tag == space::kFreeTag) return misuse;
  const space::Span* const span = map.span_of(at);
  if (span == nullptr || span->state != space::SpanState::used) return misuse;
  // Where blocks have states, that of the block tells.
  if (!kBlockStates && is_kept(*span)) return misuse;
  if (span->home == nullptr) {
    misuse.block = reinterpret_cast<void*>(span->base);
    misuse.block_bytes = span->size.bytes();
    const space::Tag first = map.tag_of(span->base);
    if (space::is_heaps(first)) misuse.owner = space::owner_of(first);
    return misuse;
  }
  const Slab& slab = *static_cast<const Slab*>(span);
  std::uint32_t index = slab.index_around(at);
  if (index >= slab.capacity()) return misuse;
  misuse.owner = space::owner_of(map.tag_of(span->base));
  if (slab::is_mixed(slab)) {
    const auto& mixed = slab::as_mixed(slab);
    index = mixed.is_usable(index) ? mixed.start_around(index) : Slab::kNoBlock;
    if (index == Slab::kNoBlock) return misuse;
    misuse.block_bytes = mixed.run_at(index) * slab::MixedSlab::kGrain;
  } else {
    misuse.block_bytes = slab.block_bytes();
  }
  misuse.block = slab.block_at(index);
  return misuse;
}

template <class Policy>
bool Heap<Policy>::describe_behind(const void* address, Misuse* misuse) const noexcept {
  const space::PageMap& map = space_.map();
  const Address at = address_of(address);
  space::Tag tag = map.tag_of(at);
  if (tag == space::kForeignTag || tag == space::kFreeTag) return false;
  const space::Span* const span = map.span_of(at);
  if (span == nullptr) return false;
  // In all slices of a large slab but the first, the tag says no more than that.
  tag = map.tag_of(span->base);
  if (!space::is_slab(tag)) return false;
  const auto& slab = static_cast<const Slab&>(*span);
  misuse->block = slab.block_at(slab.capacity() - 1);
  misuse->block_bytes = slab.block_bytes();
  misuse->owner = space::owner_of(tag);
  return true;
}

template <class Policy>
bool Heap<Policy>::is_guarded(const void* address) const noexcept {
  // Tags come later than guards. Where the span is an old one, it has no guard there.
  const space::Span* const span = space_.map().span_of(address_of(address));
  return span != nullptr && span->base <= address_of(address) &&
         space::is_guarded_at(*span, address_of(address));
}

// Of a block in a slab of one class.
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
  const space::PageMap& map = space_.map();
  const Address at = address_of(address);
  const space::Tag tag = map.tag_of(at);
  if (tag == space::kForeignTag) return {};
  if (__builtin_expect(!space::is_domains(tag), 0)) return bounds_elsewhere(at, tag);
  return bounds_in(*slab::as_slab(map.span_at(at)), at);
}

// All but the first slice of a slab of a thread.
template <class Policy>
Bounds Heap<Policy>::bounds_elsewhere(Address at, space::Tag tag) const noexcept {
  if (tag == space::kFreeTag) return {};
  const space::PageMap& map = space_.map();
  space::Span* const span = map.span_at(at);
  // A span that is just going may be another record by now: the map must lead back to it.
  if (span == nullptr || map.span_of(span->base) != span) return {};
  if (tag == space::kInteriorTag) tag = map.tag_of(span->base);
  Bounds bounds;
  if (space::is_slab(tag)) {
    const Slab& slab = *slab::as_slab(span);
    bounds = space::class_of(tag) == space::kMixedClass ? bounds_in(slab::as_mixed(slab), at)
                                                        : bounds_in(slab, at);
    if (space::is_heaps(tag) && bounds.start != nullptr) {
      // Records of heaps stay what they are, so that an owner that is just going may be looked at.
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
std::size_t Heap<Policy>::room_in_place(const void* address) const noexcept {
  const space::PageMap& map = space_.map();
  const Address at = address_of(address);
  space::Span* const span = map.span_of(at);
  // As above, it may be another record by now.
  if (span == nullptr || map.span_of(span->base) != span) return SIZE_MAX;
  if (!space::is_slab(map.tag_of(span->base))) return SIZE_MAX;
  const Slab& slab = *slab::as_slab(span);
  const std::uint32_t index = slab.index_around(at);
  // Beside a heap's buffer, the slice is the program's own.
  if (slab::is_mixed(slab) && !slab::as_mixed(slab).is_usable(index)) return SIZE_MAX;
  Address end = span->base + span->size.bytes();
  if (index < slab.capacity()) {
    end = address_of(slab.block_at(index)) + slab.block_bytes();
  }
  return end > at ? end - at : 0;
}

template <class Policy>
void Heap<Policy>::check_invariants() noexcept {
  space_.check_invariants();
  LockGuard guard{registry_lock_};
  const auto check_slab = [&](Slab& slab, ClassIndex c, space::Tag tag) {
    always_check(slab.size_class() == c, "a slab is in the bin of another class");
    always_check(slab.free_count() == slab.count_free_bits(), "free blocks are counted wrongly");
    always_check(space_.map().tag_of(slab.base) == tag, "a slab's tag is not its owner's");
    always_check(space_.map().span_of(slab.base) == &slab, "the map does not lead to the slab");
  };
  const auto check_magazine = [&](const Magazine& magazine) {
    for (void** cell = magazine.bottom; cell != magazine.top; ++cell) {
      void* const block = *cell;
      const Slab& slab = *static_cast<const Slab*>(space_.map().span_of(address_of(block)));
      const std::uint32_t index = slab.index_of(address_of(block));
      always_check(index != Slab::kNoBlock, "a magazine holds what is no block");
      always_check(!slab.is_marked_free(index), "a block is free and in a magazine");
    }
  };
  for_each_domain([&](Domain& domain) {
    if (domain.state == DomainState::pooled) return;
    for (ClassIndex c = 0; c < kClasses; ++c) {
      Bin& bin = domain.bins()[c];
      std::uint32_t slabs = 0;
      for_each_slab(bin, [&](Slab& slab) {
        ++slabs;
        check_slab(slab, c, space::make_tag(domain.id(), c));
        always_check(slab.owner() == &domain, "a slab names another owner");
      });
      always_check(slabs == bin.slab_count, "slabs are counted wrongly");
      for (space::Span* s = bin.full.first(); s != nullptr; s = SpanList::next(s)) {
        always_check(slab::as_slab(s)->is_full(), "a slab with free blocks is listed as full");
      }
      check_magazine(domain.magazines[c]);
      check_magazine(domain.freed[c]);
      for_each_cache(domain, [&](const Cache& cache) {
        check_magazine(cache.magazines[c]);
        check_magazine(cache.freed[c]);
      });
    }
  });
  for (HeapDomain* it = heaps_.first(); it != nullptr; it = HeapList::next(it)) {
    HeapDomain& heap = *it;
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
    const HeapFigures& told = heap.figures;
    always_check(heap.active || seen.held == 0, "a heap that is gone holds memory");
    always_check(seen.live == told.live && seen.live_blocks == told.live_blocks &&
                     seen.held == told.held && seen.slabs == told.slabs &&
                     seen.huge_blocks == told.huge_blocks,
                 "a heap's blocks are counted wrongly");
  }
  for (ClassIndex c = 0; c < kClasses; ++c) {
    std::uint32_t orphans = 0;
    for (space::Span* s = orphans_[c].first(); s != nullptr; s = SpanList::next(s)) {
      ++orphans;
      check_slab(*slab::as_slab(s), c, space::make_tag(space::kOrphanOwner, c));
    }
    always_check(orphans == orphan_count_[c].load(), "orphans are counted wrongly");
  }
}

}  // namespace allod::heap

// free when the fast path does not apply.
#pragma once

#include "allod/heap/heap.hpp"

namespace allod::heap {

template <class Policy>
ALLOD_NOINLINE void Heap<Policy>::release(Domain& domain, void* address) noexcept {
  const space::Tag tag = space_.map().tag_of(address_of(address));
  if (domain.owns(tag)) return release_own(domain, space::class_of(tag), address);
  switch (tag) {
    case space::kForeignTag:
      if (address != nullptr && options_.report_foreign) {
        report(MisuseKind::foreign_free, address);
      }
      return;
    case space::kHugeTag: return release_huge(address);
    case space::kInteriorTag: return report(MisuseKind::invalid_free, address);
    case space::kFreeTag: return report(MisuseKind::double_free, address);
    default: {
      SlowPath<Domain> slow{domain};
      return release_remote(domain, *slab::as_slab(space_.map().span_of(address_of(address))),
                            address);
    }
  }
}

template <class Policy>
void Heap<Policy>::release_own(Domain& domain, ClassIndex c, void* address) noexcept {
  SlowPath<Domain> slow{domain};
  look_around(domain);
  Bin& bin = domain.bins[c];
  if (Sizes::size_of(c) < kLargeBlock) {
    prepare_magazine(domain, c);
    if (domain.magazines[c].push(address)) return;
    if (bin.capacity > 1) {
      flush(domain, c, bin.capacity / 2);
      if (domain.magazines[c].push(address)) return;
    }
  }
  put_back(domain, c, &address, 1);
}

// Returns the `count` blocks that have been in the magazine longest.
template <class Policy>
void Heap<Policy>::flush(Domain& domain, ClassIndex c, std::uint32_t count) noexcept {
  if (count == 0) return;
  Bin& bin = domain.bins[c];
  const std::uint32_t held = domain.cached(c);
  domain.counters.flushes.add(1);
  put_back(domain, c, bin.slots + 1, count);
  __builtin_memmove(bin.slots + 1, bin.slots + 1 + count, (held - count) * sizeof(void*));
  domain.magazines[c].top = bin.slots + (held - count);
}

// Marks blocks of own slabs free. Blocks that were freed together tend to lie
// together, so the slab of the one before is tried first.
template <class Policy>
void Heap<Policy>::put_back(Domain& domain, ClassIndex c, void** blocks,
                            std::uint32_t count) noexcept {
  Bin& bin = domain.bins[c];
  Slab* slab = nullptr;
  std::uint32_t free_before = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Address address = address_of(blocks[i]);
    if (slab == nullptr || address - slab->base >= slab->size.bytes()) {
      if (slab != nullptr) settle(domain, bin, *slab, free_before);
      slab = slab::as_slab(space_.map().span_of(address));
      free_before = slab->free_count();
    }
    const std::uint32_t index = slab->index_of(address);
    if (__builtin_expect(index == Slab::kNoBlock, 0)) {
      report(MisuseKind::invalid_free, blocks[i]);
    } else if (__builtin_expect(!slab->give(index), 0)) {
      report(MisuseKind::double_free, blocks[i]);
    }
  }
  if (slab != nullptr) settle(domain, bin, *slab, free_before);
}

// Puts a slab that has gained free blocks where it belongs. Full slabs come to
// the front, where allocation takes from, and slabs that are mostly free go to
// the back, so that they become empty. An empty slab that is on its way to the
// inbox is looked at again when it arrives.
template <class Policy>
void Heap<Policy>::settle(Domain& domain, Bin& bin, Slab& slab,
                          std::uint32_t free_before) noexcept {
  if (free_before == 0 && !slab.is_full()) {
    bin.full.remove(&slab);
    bin.partial.push_front(&slab);
  }
  const std::uint32_t half = slab.capacity() / 2;
  if (slab.is_empty() && !slab.is_announced()) {
    const bool only = bin.partial.first() == &slab && bin.partial.last() == &slab;
    constexpr Slices kKept{4};
    if (!only || slab.size > kKept) retire(domain, bin, slab);
  } else if (free_before <= half && slab.free_count() > half) {
    bin.partial.remove(&slab);
    bin.partial.push_back(&slab);
  }
}

template <class Policy>
void Heap<Policy>::retire(Domain& domain, Bin& bin, Slab& slab) noexcept {
  bin.partial.remove(&slab);
  --bin.slab_count;
  domain.counters.slabs_retired.add(1);
  slab.set_owner(nullptr);
  space_.free(&slab);
  maybe_purge();
}

// Empties the magazine of a large class and takes its room away.
template <class Policy>
void Heap<Policy>::drop_magazine(Domain& domain, ClassIndex c) noexcept {
  flush(domain, c, domain.cached(c));
  Bin& bin = domain.bins[c];
  space_.metadata().free(bin.slots, (bin.capacity + 1U) * sizeof(void*));
  bin.slots = nullptr;
  bin.capacity = 0;
  domain.magazines[c] = kNoMagazine;
}

template <class Policy>
void Heap<Policy>::release_huge(void* address) noexcept {
  space::Span* const span = space_.map().span_of(address_of(address));
  if (span->base != address_of(address)) return report(MisuseKind::invalid_free, address);
  space_.free(span);
  maybe_purge();
}

}  // namespace allod::heap

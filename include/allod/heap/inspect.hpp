// Questions about addresses, and checks of the heap's invariants.
#pragma once

#include "allod/heap/engine.hpp"

namespace allod::heap {

// Programs that account for their memory, such as redis, ask this twice for every block.
template <class Policy, class Above>
void Engine<Policy, Above>::report(MisuseKind kind, const void* address) noexcept {
  Reporter::report(describe(kind, address));
}

template <class Policy, class Above>
ALLOD_INLINE bool Engine<Policy, Above>::fast_usable_size(const void* address,
                                                          std::size_t* bytes) const noexcept {
  space::Tag tag;
  space::Span* span;
  const bool is_found = space_.map().fast_find(address_of(address), &tag, &span);
  if (!__builtin_expect(is_found && space::is_domains(tag), 1)) return false;
  const Slab& slab = *slab::as_slab(span);
  *bytes = slab.block_bytes();
  return slab.index_of(address_of(address)) != Slab::kNoBlock;
}

template <class Policy, class Above>
Misuse Engine<Policy, Above>::describe(MisuseKind kind, const void* address) const noexcept {
  Misuse misuse{.kind = kind, .address = address};
  const space::PageMap& map = space_.map();
  const Address at = address_of(address);
  const space::Tag tag = map.tag_of(at);
  if (tag == space::kForeignTag || tag == space::kFreeTag) return misuse;
  const space::Span* const span = map.span_of(at);
  if (span == nullptr || span->state != space::SpanState::used) return misuse;
  // Where blocks have states, the block's state tells.
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

template <class Policy, class Above>
bool Engine<Policy, Above>::describe_behind(const void* address, Misuse* misuse) const noexcept {
  const space::PageMap& map = space_.map();
  const Address at = address_of(address);
  space::Tag tag = map.tag_of(at);
  if (tag == space::kForeignTag || tag == space::kFreeTag) return false;
  const space::Span* const span = map.span_of(at);
  if (span == nullptr) return false;
  // All slices of a large slab but the first have the tag of an interior.
  tag = map.tag_of(span->base);
  if (!space::is_slab(tag)) return false;
  const auto& slab = static_cast<const Slab&>(*span);
  misuse->block = slab.block_at(slab.capacity() - 1);
  misuse->block_bytes = slab.block_bytes();
  misuse->owner = space::owner_of(tag);
  return true;
}

template <class Policy, class Above>
bool Engine<Policy, Above>::is_guarded(const void* address) const noexcept {
  // Tags are set later than guards. The span of an old tag has no guard there.
  const space::Span* const span = space_.map().span_of(address_of(address));
  return span != nullptr && span->base <= address_of(address) &&
         space::is_guarded_at(*span, address_of(address));
}

template <class Policy, class Above>
std::size_t Engine<Policy, Above>::room_in_place(const void* address) const noexcept {
  const space::PageMap& map = space_.map();
  const Address at = address_of(address);
  space::Span* const span = map.span_of(at);
  // As above, the record may be that of another span by now.
  if (span == nullptr || map.span_of(span->base) != span) return SIZE_MAX;
  if (!space::is_slab(map.tag_of(span->base))) return SIZE_MAX;
  const Slab& slab = *slab::as_slab(span);
  const std::uint32_t index = slab.index_around(at);
  // Beside a heap's buffer, the slice belongs to the program.
  if (slab::is_mixed(slab) && !slab::as_mixed(slab).is_usable(index)) return SIZE_MAX;
  Address end = span->base + span->size.bytes();
  if (index < slab.capacity()) {
    end = address_of(slab.block_at(index)) + slab.block_bytes();
  }
  return end > at ? end - at : 0;
}

template <class Policy, class Above>
void Engine<Policy, Above>::check_slab(const Slab& slab, ClassIndex c,
                                       space::Tag tag) const noexcept {
  always_check(slab.size_class() == c, "a slab is in the bin of another class");
  always_check(slab.free_count() == slab.count_free_bits(), "free blocks are counted wrongly");
  always_check(space_.map().tag_of(slab.base) == tag, "a slab's tag is not its owner's");
  always_check(space_.map().span_of(slab.base) == &slab, "the map does not lead to the slab");
}

template <class Policy, class Above>
void Engine<Policy, Above>::check_invariants() noexcept {
  space_.check_invariants();
  LockGuard guard{registry_lock_};
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
  for (ClassIndex c = 0; c < kClasses; ++c) {
    std::uint32_t orphans = 0;
    for (space::Span* s = orphans_[c].first(); s != nullptr; s = SpanList::next(s)) {
      ++orphans;
      check_slab(*slab::as_slab(s), c, space::make_tag(space::kOrphanOwner, c));
    }
    always_check(orphans == orphan_count_[c].load(), "orphans are counted wrongly");
  }
}

template <class Policy, class Above>
template <class Visit>
void Engine<Policy, Above>::for_each_orphan(Visit&& visit) noexcept {
  for (SpanList& list : orphans_) {
    for (space::Span* s = list.first(); s != nullptr; s = SpanList::next(s)) {
      visit(*slab::as_slab(s));
    }
  }
}

}  // namespace allod::heap

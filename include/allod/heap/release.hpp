// Frees that the fast path does not serve.
#pragma once

#include "allod/heap/engine.hpp"

namespace allod::heap {

// A full magazine of up to this many blocks gives up its older half. A larger one is in the middle
// of a burst of frees: it gives up its newest blocks, few enough that the caller does not wait.
inline constexpr std::uint32_t kLargestHalved = 512;
inline constexpr std::uint32_t kBurstFlush = 256;

template <class Policy, class Above>
ALLOD_NOINLINE void Engine<Policy, Above>::release(Domain& domain, void* address) noexcept {
  space::Tag tag;
  space::Span* span;
  const bool is_found = space_.map().fast_find(address_of(address), &tag, &span);
  if (__builtin_expect(is_found && space::is_domains(tag) && !domain.owns(tag), 1) &&
      join_batch(domain, *slab::as_slab(span), address)) {
    return;
  }
  release_anything(domain, address);
}

template <class Policy, class Above>
ALLOD_NOINLINE void Engine<Policy, Above>::release_anything(Domain& domain,
                                                            void* address) noexcept {
  if (is_interrupting()) return release_interrupting(address);
  const space::Tag tag = space_.map().tag_of(address_of(address));
  if (domain.owns(tag)) {
    // The fast path has tried this, unless the page map is a window.
    if (domain.push(tag, address)) return;
    return release_own(domain, space::class_of(tag), address);
  }
  if (space::is_domains(tag)) return release_others(domain, address);
  if (space::is_heaps(tag)) return above().release_to_heap(&domain, tag, address);
  switch (tag) {
    case space::kForeignTag:
      if (address != nullptr && options_.report_foreign) {
        report(MisuseKind::foreign_free, address);
      }
      return;
    case space::kHugeTag:
      return release_huge(&domain, address);
    case space::kInteriorTag:
      return report(kind_of_interior(address), address);
    case space::kFreeTag:
      return report(MisuseKind::double_free, address);
    default:
      return release_others(domain, address);
  }
}

template <class Policy, class Above>
void Engine<Policy, Above>::release_own(Domain& domain, ClassIndex c, void* address) noexcept {
  SlowPath slow{domain, gate_};
  look_around(domain);
  if (Sizes::size_of(c) < kLargeBlock) {
    Magazine& magazine = domain.magazine_for_frees(c);
    widen_magazine(domain, magazine, c, max_capacity(c));
    if (magazine.push(address)) return;
    if (magazine.capacity() > kLargestHalved) {
      flush_newest(domain, magazine, c, kBurstFlush);
      if (magazine.push(address)) return;
    } else if (magazine.capacity() > 1) {
      flush(domain, magazine, c, magazine.capacity() / 2);
      if (magazine.push(address)) return;
    }
  } else if (domain.magazine_for_frees(c).holds_only(address)) {
    return report(MisuseKind::double_free, address);
  } else if (domain.is_counting() && domain.magazines[c].capacity() == 1) {
    Magazine& magazine = domain.freed[c];
    if (magazine.capacity() == 0) resize_magazine(domain, magazine, c, 1);
    if (magazine.push(address)) return;
  }
  if (domain.is_counting() && domain.counts != nullptr) domain.counts[c].freed.add(1);
  put_back(domain, c, &address, 1);
}

// Returns the `count` oldest blocks of the magazine to their slabs.
template <class Policy, class Above>
void Engine<Policy, Above>::flush(Domain& domain, Magazine& magazine, ClassIndex c,
                                  std::uint32_t count) noexcept {
  if (count == 0) return;
  domain.counters.flushes.add(1);
  domain.note_given_up(magazine, c, count);
  put_back(domain, c, magazine.bottom, count);
  magazine.drop_oldest(count);
}

// The same for the newest blocks, after which no block has to move.
template <class Policy, class Above>
void Engine<Policy, Above>::flush_newest(Domain& domain, Magazine& magazine, ClassIndex c,
                                         std::uint32_t count) noexcept {
  domain.counters.flushes.add(1);
  domain.note_given_up(magazine, c, count);
  put_back(domain, c, magazine.top - count, count);
  magazine.drop_newest(count);
}

template <class Policy, class Above>
void Engine<Policy, Above>::put_back(Domain& domain, ClassIndex c, void** blocks,
                                     std::uint32_t count) noexcept {
  put_back(domain, c, blocks, count,
           [&](MisuseKind kind, void* block) noexcept { report(kind, block); });
}

// Marks blocks of own slabs as free, and passes others to `refuse`. Blocks freed together tend to
// lie together, so each slab takes a run of its own blocks. One whose successor lies in another
// slice goes back by itself.
template <class Policy, class Above>
template <class Refuse>
ALLOD_INLINE void Engine<Policy, Above>::put_back(Domain& domain, ClassIndex c, void** blocks,
                                                  std::uint32_t count, Refuse&& refuse) noexcept {
  Bin& bin = domain.bins()[c];
  const space::Tag own = space::make_tag(domain.id(), c);
  for (std::uint32_t done = 0; done < count;) {
    const Address block = address_of(blocks[done]);
    if (__builtin_expect(space_.map().tag_of(block) != own, 0)) {
      // A double free. Since the first free, the slab was freed, or has another owner or class.
      refuse(MisuseKind::double_free, blocks[done++]);
      continue;
    }
    Slab& slab = *slab::as_slab(space_.map().span_at(block));
    const std::uint32_t free_before = slab.free_count();
    const bool is_alone =
        done + 1 == count || (block ^ address_of(blocks[done + 1])) >> kSliceShift != 0;
    const std::uint32_t given =
        is_alone ? slab.give_one(blocks[done]) : slab.give(blocks + done, count - done);
    if (__builtin_expect(given == 0, 0)) {
      const bool is_block = slab.index_of(block) != Slab::kNoBlock;
      refuse(is_block ? MisuseKind::double_free : MisuseKind::invalid_free, blocks[done]);
      ++done;
      continue;
    }
    done += given;
    if (must_settle(slab, free_before)) {
      domain.loosened += slab.size.bytes();
      settle(bin, slab, free_before, [&]() noexcept { retire(domain, bin, slab); });
    }
  }
}

template <class Policy, class Above>
ALLOD_INLINE bool Engine<Policy, Above>::must_settle(const Slab& slab,
                                                     std::uint32_t free_before) noexcept {
  const std::uint32_t half = slab.capacity() / 2;
  return free_before == 0 || slab.is_empty() || (free_before <= half && slab.free_count() > half);
}

// Moves a slab that has gained free blocks within its bin. A full one comes to the front, where
// allocation takes from. Mostly free ones go to the back, so that they become empty. An empty slab
// that is announced to the inbox is checked again when it arrives. Other empty slabs go to
// `retire`, but the last of the bin only if it is large.
template <class Policy, class Above>
template <class Retire>
void Engine<Policy, Above>::settle(Bin& bin, Slab& slab, std::uint32_t free_before,
                                   Retire&& retire) noexcept {
  if (slab.is_full()) return;
  if (free_before == 0) {
    bin.full.remove(&slab);
    bin.partial.push_front(&slab);
  }
  if (slab.is_empty() && !slab.is_announced()) {
    const bool only = bin.partial.first() == &slab && bin.partial.last() == &slab;
    constexpr std::size_t kKept = 4 * kSliceBytes;
    if (!only || open_end_of(slab) - slab.base > kKept) retire();
  } else if (slab.free_count() > slab.capacity() / 2) {
    bin.partial.remove(&slab);
    bin.partial.push_back(&slab);
  }
}

template <class Policy, class Above>
void Engine<Policy, Above>::retire(Domain& domain, Bin& bin, Slab& slab) noexcept {
  if (ending_.load(std::memory_order_relaxed)) return;
  remove(domain, bin, slab);
  maybe_purge();
}

template <class Policy, class Above>
void Engine<Policy, Above>::remove(Domain& domain, Bin& bin, Slab& slab) noexcept {
  bin.partial.remove(&slab);
  --bin.slab_count;
  domain.counters.slabs_retired.add(1);
  slab.set_owner(nullptr);
  space_.free(&slab);
}

// Empties a magazine and frees its cells.
template <class Policy, class Above>
void Engine<Policy, Above>::drop_magazine(Domain& domain, Magazine& magazine,
                                          ClassIndex c) noexcept {
  if (magazine.capacity() == 0) return;
  flush(domain, magazine, c, magazine.count());
  domain.cells.put(space_.metadata(), magazine.bottom, magazine.capacity() * sizeof(void*));
  domain.burst_bytes -= burst_bytes(c, magazine.capacity());
  magazine = {};
}

template <class Policy, class Above>
void Engine<Policy, Above>::release_huge(Domain* own, void* address) noexcept {
  space::Span* const span = space_.map().span_of(address_of(address));
  if (span->base != address_of(address)) return report(MisuseKind::invalid_free, address);
  if (own != nullptr) {
    SlowPath slow{*own, gate_};
    if (keep(*own, *span)) return;
  }
  space_.free(span);
  maybe_purge();
}

}  // namespace allod::heap

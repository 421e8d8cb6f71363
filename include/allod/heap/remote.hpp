// Remote frees: blocks of other domains.
#pragma once

#include "allod/heap/engine.hpp"

namespace allod::heap {

// Adds a remote free to the waiting batch of its word, if there is one with room. This is the usual
// case, and no slow path: one store changes the bits, so that the child of a fork finds them with
// the block or without it.
template <class Policy, class Above>
ALLOD_INLINE bool Engine<Policy, Above>::join_batch(Domain& domain, const Slab& slab,
                                                    const void* address) noexcept {
  const std::uint32_t index = slab.index_of(address_of(address));
  if (__builtin_expect(index == Slab::kNoBlock, 0)) return false;
  const std::uint32_t word = index / kWordBits;
  const Address key = RemoteBatch::key_of(slab, word);
  RemoteBatch& batch = domain.remote()[RemoteBatch::place_of(key, word)];
  const Word bits = batch.bits;
  const Word mask = bit(index % kWordBits);
  const std::uint32_t bytes = batch.bytes + slab.block_bytes();
  if (__builtin_expect(batch.key != key || (bits & mask) != 0 || bytes >= kBatchBytes, 0)) {
    return false;
  }
  domain.counters.remote_frees.add(1);
  batch.bytes = bytes;
  batch.bits = bits | mask;
  return true;
}

// A block in a slab of another domain, or of none.
template <class Policy, class Above>
void Engine<Policy, Above>::release_others(Domain& domain, void* address) noexcept {
  SlowPath slow{domain, gate_};
  Slab& slab = *slab::as_slab(space_.map().span_of(address_of(address)));
  const std::uint32_t index = slab.index_of(address_of(address));
  if (index == Slab::kNoBlock) return report(MisuseKind::invalid_free, address);
  const std::uint32_t word = index / kWordBits;
  const Word mask = bit(index % kWordBits);
  const Address key = RemoteBatch::key_of(slab, word);
  RemoteBatch& batch = domain.remote()[RemoteBatch::place_of(key, word)];
  if (batch.key == key) {
    if ((batch.bits & mask) != 0) return report(MisuseKind::double_free, address);
    batch.bits |= mask;
    batch.bytes += slab.block_bytes();
  } else {
    if (batch.key != 0) send(domain, batch);
    batch = {key, mask, &slab, slab.block_bytes()};
  }
  domain.counters.remote_frees.add(1);
  // A shared domain may not be used for long, so its batches do not wait.
  if (batch.bytes >= kBatchBytes || domain.state == DomainState::shared) send(domain, batch);
  ask_for_look(domain);
}

template <class Policy, class Above>
void Engine<Policy, Above>::release_detached(void* address) noexcept {
  const space::Tag tag = space_.map().tag_of(address_of(address));
  switch (tag) {
    case space::kForeignTag:
      if (address != nullptr && options_.report_foreign) {
        report(MisuseKind::foreign_free, address);
      }
      return;
    case space::kHugeTag:
      return release_huge(nullptr, address);
    case space::kInteriorTag:
      return report(kind_of_interior(address), address);
    case space::kFreeTag:
      return report(MisuseKind::double_free, address);
    default:
      break;
  }
  space::Span* const span = space_.map().span_of(address_of(address));
  if (span->home == nullptr) {
    return above().release_to_heap(nullptr, tag, address);
  }
  Slab& slab = *slab::as_slab(span);
  const std::uint32_t index = slab.index_of(address_of(address));
  if (index == Slab::kNoBlock) return report(MisuseKind::invalid_free, address);
  Word doubled;
  {
    // Keeps a fork out, in place of a domain's slow path.
    LockGuard guard{registry_lock_};
    doubled = slab.give_remotely(index / kWordBits, bit(index % kWordBits));
    slab.announce();
  }
  if (doubled != 0) report(MisuseKind::double_free, address);
}

template <class Policy, class Above>
void Engine<Policy, Above>::release_interrupting(void* address) noexcept {
  const space::Tag tag = space_.map().tag_of(address_of(address));
  if (!space::is_slab(tag) || space::is_heaps(tag)) return;
  Slab& slab = *slab::as_slab(space_.map().span_of(address_of(address)));
  const std::uint32_t index = slab.index_of(address_of(address));
  if (index == Slab::kNoBlock) return report(MisuseKind::invalid_free, address);
  mark_remote(slab, index / kWordBits, bit(index % kWordBits));
}

template <class Policy, class Above>
void Engine<Policy, Above>::mark_remote(Slab& slab, std::uint32_t word, Word bits) noexcept {
  const Word doubled = slab.give_remotely(word, bits);
  slab.announce();
  for (Word rest = doubled; rest != 0; rest &= rest - 1) {
    report(MisuseKind::double_free, slab.block_at(word * kWordBits + lowest_bit(rest)));
  }
}

template <class Policy, class Above>
void Engine<Policy, Above>::send(Domain& domain, RemoteBatch& batch) noexcept {
  domain.counters.remote_batches.add(1);
  const RemoteBatch full = batch;
  batch = {};
  domain.loosened += full.bytes;
  mark_remote(*full.slab, full.word(), full.bits);
}

template <class Policy, class Above>
void Engine<Policy, Above>::send_all(Domain& domain) noexcept {
  for (RemoteBatch& batch : domain.remote()) {
    if (batch.key != 0) send(domain, batch);
  }
}

template <class Policy, class Above>
void Engine<Policy, Above>::collect_inbox(Domain& domain) noexcept {
  domain.inbox.take_all([&](Slab* slab) noexcept {
    if (slab->owner() == &domain) {
      collect(domain, *slab);
    } else {
      // Announced to this domain just before the slab, or the domain, changed hands. The present
      // owner may be waiting for it.
      slab->announce();
    }
  });
}

template <class Policy, class Above>
void Engine<Policy, Above>::collect(Domain& domain, Slab& slab) noexcept {
  const std::uint32_t free_before = slab.free_count();
  const std::uint32_t gained = slab.collect(
      [&](std::uint32_t index) { report(MisuseKind::double_free, slab.block_at(index)); });
  domain.counters.collected.add(gained);
  if (must_settle(slab, free_before)) {
    domain.loosened += slab.size.bytes();
    Bin& bin = domain.bins()[slab.size_class()];
    settle(bin, slab, free_before, [&]() noexcept { retire(domain, bin, slab); });
  }
}

}  // namespace allod::heap

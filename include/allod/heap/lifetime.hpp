// Starts and ends domains: attach, detach, adoption of orphans, fork.
#pragma once

#include "allod/heap/engine.hpp"

namespace allod::heap {

template <class Policy, class Above>
void Engine<Policy, Above>::start(const HeapOptions& options) noexcept {
  options_ = options;
  usable_ = space_.start(options.region_bytes, options.huge_pages_from, options.nodes);
  gate_.start(space_.platform());
}

template <class Policy, class Above>
auto Engine<Policy, Above>::attach() noexcept -> Domain* {
  if (!usable_) return nullptr;
  LockGuard guard{registry_lock_};
  Domain* const domain = new_domain(DomainState::active);
  if (domain != nullptr) domain->thread = space_.platform().thread_id();
  return domain;
}

template <class Policy, class Above>
auto Engine<Policy, Above>::attach_shared() noexcept -> Domain* {
  if (!usable_) return nullptr;
  LockGuard guard{registry_lock_};
  return new_domain(DomainState::shared);
}

// Under the registry's lock. The record of a domain stays on the memory node where it was made.
template <class Policy, class Above>
auto Engine<Policy, Above>::new_domain(DomainState state) noexcept -> Domain* {
  const Node node = space_.node();
  Domain* domain = pool_.first();
  while (domain != nullptr && domain->node != node) domain = DomainPool::next(domain);
  if (domain != nullptr) {
    pool_.remove(domain);
  } else {
    void* const memory = space_.allocate_stable(Domain::bytes());
    if (memory == nullptr || next_id_ >= space::kFirstHeapOwner) return nullptr;
    domain = new (memory) Domain{next_id_};
    next_id_ += 2;
    domain->node = node;
    domains_.push_back(domain);
  }
  domain->away = 0;
  domain->count(false);
  domain->inbox.open();
  domain->state = state;
  // Owners do not count; see heap/stocks.hpp.
  domain->is_stocked = state == DomainState::active;
  return domain;
}

// Caches over the domain may keep blocks of these slabs.
template <class Policy, class Above>
void Engine<Policy, Above>::pass_on(Domain& shared) noexcept {
  constexpr std::uint32_t kMost = 2 * kClasses;
  std::uint32_t slabs = 0;
  shared.for_each_bin([&](const Bin& bin) noexcept { slabs += bin.slab_count; });
  if (slabs == 0 || slabs > kMost) return;
  strip(shared);
  shared.inbox.open();
  shared.state = DomainState::shared;
}

template <class Policy, class Above>
void Engine<Policy, Above>::strip(Domain& domain) noexcept {
  send_all(domain);
  collect_inbox(domain);
  for (ClassIndex c = 0; c < kClasses; ++c) {
    drop_magazine(domain, domain.magazines[c], c);
    drop_magazine(domain, domain.freed[c], c);
  }
  domain.cells.clear(space_.metadata());
  give_back_kept(domain.kept);
  set_reserved(domain.kept, 0);
  domain.kept = {};
  domain.large_count = 0;
  domain.large_bytes = 0;
  surrender(domain);
}

template <class Policy, class Above>
void Engine<Policy, Above>::detach(Domain& domain) noexcept {
  {
    Turn turn{domain, gate_};
    strip(domain);
  }
  // From here on, another thread may attach it.
  LockGuard guard{registry_lock_};
  domain.thread = 0;
  pool_.push_front(&domain);
}

// Every slab of a domain or a heap loses its owner before the inbox closes. So a thread that finds
// the inbox closed finds the new owner when it looks again.
template <class Policy, class Above>
template <class D>
void Engine<Policy, Above>::disown_slabs(D& domain) noexcept {
  domain.for_each_bin([](Bin& bin) noexcept {
    for_each_slab(bin, [](Slab& slab) noexcept { slab.set_owner(nullptr); });
  });
  // A slab announced here just before it changed hands must reach its present owner.
  domain.inbox.close([](Slab* slab) noexcept {
    if (slab->owner() != nullptr) slab->announce();
  });
}

// Gives up all slabs of the domain, and ends sharing.
template <class Policy, class Above>
void Engine<Policy, Above>::surrender(Domain& domain) noexcept {
  const void* doubled = nullptr;
  {
    LockGuard guard{registry_lock_};
    surrender_locked(domain, &doubled);
  }
  if (doubled != nullptr) report(MisuseKind::double_free, doubled);
}

template <class Policy, class Above>
void Engine<Policy, Above>::surrender_locked(Domain& domain, const void** doubled) noexcept {
  disown_slabs(domain);
  domain.for_each_bin([&](Bin& bin) noexcept {
    for (SpanList* list : {&bin.partial, &bin.full}) {
      while (space::Span* const span = list->pop_front()) abandon(*slab::as_slab(span), doubled);
    }
    bin = Bin{};
  });
  domain.state = DomainState::pooled;
}

// Under the registry's lock. The slab is in no list and has no owner.
template <class Policy, class Above>
void Engine<Policy, Above>::abandon(Slab& slab, const void** doubled) noexcept {
  collect_quietly(slab, doubled);
  if (slab.is_empty()) {
    space_.free(&slab);
    return;
  }
  const ClassIndex c = slab.size_class();
  set_slab_tags(slab, space::make_tag(space::kOrphanOwner, c));
  orphans_[c].push_front(&slab);
  orphan_count_[c].fetch_add(1, std::memory_order_relaxed);
}

// Collects under a lock, where no report is possible. Sets `*doubled` to a block that was freed
// twice, if any. If `doubled` is null, such a block stays marked for the next collector, and the
// result is false.
template <class Policy, class Above>
bool Engine<Policy, Above>::collect_quietly(Slab& slab, const void** doubled) noexcept {
  bool is_done = true;
  slab.collect([&](std::uint32_t index) noexcept {
    if (doubled != nullptr) {
      *doubled = slab.block_at(index);
    } else {
      is_done = false;
      static_cast<void>(slab.give_remotely(index / kWordBits, bit(index % kWordBits)));
    }
  });
  return is_done;
}

// An orphan of class `c` with a free block, in memory of the caller's node or, if `far`, of any; or
// null.
template <class Policy, class Above>
Slab* Engine<Policy, Above>::adopt(Domain& domain, ClassIndex c, bool far) noexcept {
  if (orphan_count_[c].load(std::memory_order_relaxed) == 0) return nullptr;
  const void* doubled = nullptr;
  Slab* adopted;
  {
    LockGuard guard{registry_lock_};
    adopted = adopt_locked(domain, c, far, &doubled);
  }
  if (doubled != nullptr) report(MisuseKind::double_free, doubled);
  return adopted;
}

template <class Policy, class Above>
Slab* Engine<Policy, Above>::adopt_locked(Domain& domain, ClassIndex c, bool far,
                                          const void** doubled) noexcept {
  constexpr int kLooks = 8;
  for (int look = 0; look < kLooks && !orphans_[c].empty(); ++look) {
    Slab& slab = *slab::as_slab(orphans_[c].pop_front());
    const bool has_none = slab.is_full() && slab.remote_count() == 0;
    if (has_none || (!far && !space_.is_near(slab))) {
      orphans_[c].push_back(&slab);
      continue;
    }
    orphan_count_[c].fetch_sub(1, std::memory_order_relaxed);
    slab.set_owner(&domain);
    set_slab_tags(slab, space::make_tag(domain.id(), c));
    collect_quietly(slab, doubled);
    domain.bins()[c].partial.push_front(&slab);
    ++domain.bins()[c].slab_count;
    domain.counters.slabs_adopted.add(1);
    return &slab;
  }
  return nullptr;
}

// Frees orphans that have become empty. Looks at a bounded number, from the end of the last look.
template <class Policy, class Above>
void Engine<Policy, Above>::reap_orphans(std::uint32_t looks) noexcept {
  ClassIndex c = last_reaped_.load(std::memory_order_relaxed);
  for (ClassIndex step = 0; step < kClasses && looks > 0; ++step) {
    c = c + 1 < kClasses ? c + 1 : 0;
    if (orphan_count_[c].load(std::memory_order_relaxed) == 0) continue;
    const void* doubled = nullptr;
    {
      LockGuard guard{registry_lock_};
      reap_orphans_locked(c, &looks, &doubled);
    }
    if (doubled != nullptr) report(MisuseKind::double_free, doubled);
  }
  last_reaped_.store(c, std::memory_order_relaxed);
}

template <class Policy, class Above>
void Engine<Policy, Above>::reap_orphans_locked(ClassIndex c, std::uint32_t* looks,
                                                const void** doubled) noexcept {
  const std::uint32_t count = orphan_count_[c].load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < count && *looks > 0; ++i, --*looks) {
    Slab& slab = *slab::as_slab(orphans_[c].pop_front());
    if (collect_quietly(slab, doubled) && slab.is_empty()) {
      orphan_count_[c].fetch_sub(1, std::memory_order_relaxed);
      space_.free(&slab);
    } else {
      orphans_[c].push_back(&slab);
    }
  }
}

template <class Policy, class Above>
void Engine<Policy, Above>::set_slab_tags(const Slab& slab, space::Tag tag) noexcept {
  // In a slab of one block, slices behind the first contain no start of a block. The first never
  // has the tag of an interior, since another thread may be freeing the block.
  const bool single = slab.capacity() == 1;
  space_.map().set_tags(slab.base, single ? Slices{1} : slab.size, tag);
  if (!single) return;
  space_.map().set_tags(slab.base + kSliceBytes, slab.size - Slices{1}, space::kInteriorTag);
}

// --- fork -----------------------------------------------------------------------

template <class Policy, class Above>
void Engine<Policy, Above>::before_fork(const Domain* own) noexcept {
  // Before any lock and the gate, since the helper may have to wait for these before it ends.
  const bool is_inside = own != nullptr && own->in_slow_path.load(std::memory_order_relaxed);
  send_helper_away(is_inside ? Wait::no : Wait::yes);
  fork_lock_.lock_for_fork();
  gate_.close(space_.platform());
  while (!is_quiet_but_for(own)) space_.platform().yield();
  registry_lock_.lock_for_fork();
  space_.lock().lock_for_fork();
  space_.metadata().lock().lock_for_fork();
}

template <class Policy, class Above>
bool Engine<Policy, Above>::is_quiet_but_for(const Domain* own) noexcept {
  LockGuard guard{registry_lock_};
  bool quiet = true;
  for_each_domain([&](const Domain& domain) {
    if (&domain == own || !domain.in_slow_path.load(std::memory_order_acquire)) return;
    // A signal handler that forks has interrupted its own thread's turn.
    if (!Turn::is_callers(domain)) quiet = false;
  });
  return quiet && above().are_heaps_quiet();
}

template <class Policy, class Above>
void Engine<Policy, Above>::after_fork_in_parent() noexcept {
  space_.metadata().lock().unlock_in_parent();
  space_.lock().unlock_in_parent();
  registry_lock_.unlock_in_parent();
  gate_.open();
  fork_lock_.unlock_in_parent();
  let_helper_come();
}

// Other threads are gone, and their slabs are orphans. Their fast paths went on while the pages
// were copied, so their magazines cannot be trusted: blocks in them stay in use.
template <class Policy, class Above>
void Engine<Policy, Above>::after_fork_in_child(Domain* own, const Cache* cache) noexcept {
  space_.metadata().lock().reset_in_child();
  space_.lock().reset_in_child();
  registry_lock_.reset_in_child();
  space_.platform().after_fork_in_child();
  helper_.reset_in_child();
  {
    LockGuard guard{space_.lock()};
    space_.repair_after_fork();
  }
  for (Domain* d = domains_.first(); d != nullptr; d = DomainList::next(d)) {
    // The turn of a thread that a forking handler has interrupted goes on behind the handler.
    if (!Turn::is_callers(*d)) {
      d->lock.reset_in_child();
      d->holder.store(nullptr, std::memory_order_relaxed);
    }
    forget_caches(*d, cache);
    if (d == own || d->state != DomainState::active) continue;
    for (Magazine& magazine : d->magazines) magazine = {};
    for (Magazine& magazine : d->freed) magazine = {};
    detach(*d);
  }
  if (own != nullptr) {
    give_back_kept(own->kept);
    set_reserved(own->kept, 0);
  }
  kept_share_.store(~std::size_t{0});
  kept_short_.store(false);
  // While the gate is closed, this thread needs no turns.
  gate_.open();
  fork_lock_.reset_in_child();
}

}  // namespace allod::heap

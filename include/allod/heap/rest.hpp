// What is done while everybody is kept out of slow paths for a moment, as for a fork; fast paths go
// on. Only owners change their slabs, and only in slow paths: in such a pause somebody else can.
//
// Pages inside of slabs on which no block is in use, and which stay so, go back to the system. The
// bits tell which they are, and nobody has to be asked. What was freed for owners that sleep comes
// home. The page map is narrowed. The helper waits for nobody who is in a slow path.
#pragma once

#include "allod/heap/engine.hpp"

namespace allod::heap {

// What callers wait for meanwhile is bounded by these: at about 0.3 us a call and 0.1 us a page.
inline constexpr std::uint32_t kRestLooks = 256;
inline constexpr std::uint32_t kRestCalls = 48;
inline constexpr std::size_t kRestBytes = std::size_t{1} << 20;
// Pauses in one walk through the heap; the next walk goes on where it ended.
inline constexpr std::uint32_t kRestPauses = 64;

// False when somebody is in a slow path, or a fork is under way.
template <class Policy, class Above>
bool Engine<Policy, Above>::pause() noexcept {
  if (!fork_lock_.try_lock()) return false;
  gate_.close(space_.platform());
  constexpr int kTries = 64;
  for (int i = 0; i < kTries; ++i) {
    if (is_quiet_but_for(nullptr)) return true;
    cpu_relax();
  }
  resume();
  return false;
}

// The same for who would rather wait a little, and has no slow path of its own.
template <class Policy, class Above>
bool Engine<Policy, Above>::pause_within(int tries) noexcept {
  for (; tries > 0; --tries) {
    if (pause()) return true;
    gate_.yield();
  }
  return false;
}

template <class Policy, class Above>
void Engine<Policy, Above>::resume() noexcept {
  gate_.open();
  fork_lock_.unlock();
}

// Blocks that others have freed come home to owners that sleep: they have made no slow operation
// since the walk before, and may not for long. Returns whether others have such to look at.
template <class Policy, class Above>
bool Engine<Policy, Above>::collect_resting() noexcept {
  {
    LockGuard guard{registry_lock_};
    bool is_any = false;
    for_each_domain([&](const Domain& domain) noexcept {
      is_any |= domain.state != DomainState::pooled && !domain.inbox.empty();
    });
    if (!is_any) return false;
  }
  for (std::uint32_t i = 0; i < kRestPauses; ++i) {
    if (helper_.is_kept_away() || !pause()) return true;
    const bool is_done = collect_for(Owners::resting);
    bool moving = false;
    if (is_done) {
      LockGuard guard{registry_lock_};
      for_each_domain([&](Domain& domain) noexcept {
        const bool rests =
            std::exchange(domain.seen_operations, domain.slow_operations) == domain.slow_operations;
        if (!rests && domain.state != DomainState::pooled) moving |= !domain.inbox.empty();
      });
    }
    resume();
    if (is_done) return moving;
  }
  return true;
}

template <class Policy, class Above>
void Engine<Policy, Above>::collect_for_others() noexcept {
  constexpr int kTries = 64;
  for (bool is_done = false; !is_done && pause_within(kTries);) {
    is_done = collect_for(Owners::all);
    resume();
  }
}

template <class Policy, class Above>
template <class Mappings>
void Engine<Policy, Above>::narrow_map(std::size_t limit, bool is_alone,
                                       Mappings&& each_mapping) noexcept {
  constexpr int kTries = 4096;
  if (!usable_ || !pause_within(kTries)) return;
  space_.narrow_map(limit, is_alone, each_mapping);
  resume();
}

// In a pause. False when there is more to do than that may take.
template <class Policy, class Above>
bool Engine<Policy, Above>::collect_for(Owners which) noexcept {
  if (ending_.load(std::memory_order_relaxed)) return true;
  std::uint32_t looks = kRestLooks;
  bool is_done = true;
  LockGuard guard{registry_lock_};
  for_each_domain([&](Domain& domain) noexcept {
    if (domain.state == DomainState::pooled) return;
    if (which == Owners::resting && domain.slow_operations != domain.seen_operations) return;
    if (!collect_at_rest(domain, &looks)) is_done = false;
  });
  return is_done;
}

// What was freed twice is left for the owner, who can report it: so is what is announced before.
template <class Policy, class Above>
bool Engine<Policy, Above>::collect_at_rest(Domain& domain, std::uint32_t* looks) noexcept {
  while (*looks > 0) {
    Slab* const slab = domain.inbox.take_last();
    if (slab == nullptr) return true;
    // The 64 words of a slab of small blocks take as long as five slabs of large ones.
    const std::uint32_t price = 1 + slab->capacity() / (16 * kWordBits);
    *looks -= price < *looks ? price : *looks;
    if (slab->owner() != &domain) {
      slab->announce();
      continue;
    }
    const std::uint32_t free_before = slab->free_count();
    const bool is_done = collect_quietly(*slab, nullptr);
    domain.counters.collected.add(slab->free_count() - free_before);
    if (!is_done) slab->announce();
    if (must_settle(*slab, free_before)) {
      Bin& bin = domain.bins()[slab->size_class()];
      settle(bin, *slab, free_before, [&]() noexcept { remove(domain, bin, *slab); });
    }
    if (!is_done) return true;
  }
  return domain.inbox.empty();
}

// The same for slabs that belong to nobody any more.
template <class Policy, class Above>
void Engine<Policy, Above>::reap_at_rest() noexcept {
  for (ClassIndex c = 0; c < kClasses; ++c) {
    std::uint32_t left = orphan_count_[c].load(std::memory_order_relaxed);
    while (left > 0 && !helper_.is_kept_away()) {
      const std::uint32_t most = left < kOrphanLooks ? left : kOrphanLooks;
      std::uint32_t looks = most;
      LockGuard guard{registry_lock_};
      reap_orphans_locked(c, &looks, nullptr);
      left -= most;
    }
  }
}

// Returns whether slabs may come to rest that were not found at rest now.
template <class Policy, class Above>
bool Engine<Policy, Above>::purge_resting() noexcept {
  bool moving = false;
  for (std::uint32_t i = 0; i < kRestPauses; ++i) {
    const auto range = space_.range_from(rest_cursor_);
    if (range.from == range.to) {
      rest_cursor_ = 0;
      return moving;
    }
    if (helper_.is_kept_away() || !pause()) return true;
    rest_cursor_ = purge_resting_in(range.from, range.to, &moving);
    resume();
  }
  return true;
}

// In a pause. Returns how far it came.
template <class Policy, class Above>
Address Engine<Policy, Above>::purge_resting_in(Address at, Address end, bool* moving) noexcept {
  std::uint32_t looks = kRestLooks;
  std::uint32_t calls = kRestCalls;
  std::size_t bytes = kRestBytes;
  while (at < end && looks > 0) {
    const space::Tag tag = space_.map().tag_of(at);
    if (!space::is_slab(tag)) {
      at += kSliceBytes;
      continue;
    }
    --looks;
    Slab& slab = *slab::as_slab(space_.map().span_of(at));
    const auto rest = slab.look_for_rest();
    if (rest == Slab::Rest::moving) *moving = true;
    if (rest == Slab::Rest::resting) {
      const bool done = slab.purge_free_pages(space_.platform().page_size(),
                                              [&](Address from, Address to) noexcept {
                                                if (calls == 0 || bytes == 0) return false;
                                                --calls;
                                                bytes -= to - from < bytes ? to - from : bytes;
                                                return space_.purge_within(slab, from, to);
                                              });
      if (!done) {
        if (space_.refuses_purge()) *moving = false;
        return space_.refuses_purge() ? end : at;
      }
    }
    at = end_of(slab);
  }
  return at;
}

}  // namespace allod::heap

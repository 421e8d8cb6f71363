// Work in pauses: all threads are kept out of slow paths for a moment, as for a fork, while fast
// paths go on. Only owners change their slabs, and only in slow paths; orphans are changed with the
// fork's lock or in slow paths. So in a pause, another thread can change all of them.
//
// Free pages within slabs at rest are purged: the bits of a slab tell which. Remote frees are
// collected for sleeping owners. The page map is narrowed. The helper does not wait for a thread in
// a slow path.
#pragma once

#include "allod/heap/engine.hpp"

namespace allod::heap {

// Addresses in one step: skipping slices that are no slabs is quick, but takes time as well.
inline constexpr std::size_t kRestReach = std::size_t{256} << 20;
// Pauses to collect remote frees in one round of the helper.
inline constexpr std::uint32_t kRestPauses = 64;
// The gate stays open this long between attempts, and after a pause that kept threads waiting.
inline constexpr std::uint64_t kTurnUs = 100;
// Attempts of the helper at one pause, and of malloc_trim at all of its pauses.
inline constexpr std::uint32_t kRestTries = 64;
inline constexpr std::uint32_t kTrimTries = 10'000;
// A round ends after kRoundMs, or after kVainLooks that purge nothing and one more for each
// kBytesPerLook of slabs in which blocks became free.
inline constexpr std::uint64_t kRoundMs = 100;
inline constexpr std::uint32_t kVainLooks = 16384;
inline constexpr std::size_t kBytesPerLook = 1024;

// False if a thread is in a slow path, or a fork is under way. No signal handler runs in the pause:
// the gate would let it pass, as it lets a thread pass that forks.
template <class Policy, class Above>
bool Engine<Policy, Above>::pause() noexcept {
  const std::uint64_t signals = Platform::block_signals();
  if (!fork_lock_.try_lock()) {
    Platform::restore_signals(signals);
    return false;
  }
  signals_in_pause_ = signals;
  gate_.close(space_.platform());
  constexpr int kTries = 64;
  for (int i = 0; i < kTries; ++i) {
    if (is_quiet_but_for(nullptr)) return true;
    cpu_relax();
  }
  resume();
  return false;
}

// The same with some patience, for callers outside of slow paths.
template <class Policy, class Above>
bool Engine<Policy, Above>::pause_within(int tries) noexcept {
  for (; tries > 0; --tries) {
    if (pause()) return true;
    gate_.yield();
  }
  return false;
}

// For the helper: threads that it kept waiting go first. False if it should end or gets no pause.
template <class Policy, class Above>
bool Engine<Policy, Above>::pause_in_turn() noexcept {
  for (std::uint32_t tries = kRestTries; tries > 0 && !helper_.is_kept_away(); --tries) {
    if (pause()) return true;
    helper_.template doze_us<Platform>(kTurnUs);
  }
  return false;
}

// Returns whether a thread was kept waiting.
template <class Policy, class Above>
bool Engine<Policy, Above>::resume() noexcept {
  const std::uint64_t signals = signals_in_pause_;
  const bool waited = gate_.open();
  fork_lock_.unlock();
  Platform::restore_signals(signals);
  return waited;
}

// For malloc_trim, outside of slow paths: calls `step` in pauses until it returns true. Threads
// that a pause kept waiting go first, and so does a fork. Gives up after kTrimTries.
template <class Policy, class Above>
template <class Step>
void Engine<Policy, Above>::in_pauses(Step&& step) noexcept {
  std::uint32_t tries = kTrimTries;
  while (tries > 0) {
    bool waited = true;
    if (pause()) {
      const bool is_done = step();
      waited = resume() || helper_.is_kept_away();
      if (is_done) return;
    }
    if (!waited) continue;
    --tries;
    gate_.sleep_us(kTurnUs);
  }
}

// Collects remote frees for sleeping owners: those without a slow operation since the last walk.
// Returns whether active owners have remote frees, or work is left.
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
    if (!pause_in_turn()) return true;
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
  in_pauses([&]() noexcept { return collect_for(Owners::all); });
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

// In a pause. False if more is left than a pause may take.
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

// A block that was freed twice stays in the inbox for the owner, which can report it; so do slabs
// announced before.
template <class Policy, class Above>
bool Engine<Policy, Above>::collect_at_rest(Domain& domain, std::uint32_t* looks) noexcept {
  while (*looks > 0) {
    Slab* const slab = domain.inbox.take_last();
    if (slab == nullptr) return true;
    // The 64 words of a slab of small blocks take as long as five slabs of large blocks.
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

// The same for orphans. Not while another thread walks through slabs in a pause.
template <class Policy, class Above>
void Engine<Policy, Above>::reap_at_rest() noexcept {
  std::uint32_t tries = kRestTries;
  for (ClassIndex c = 0; c < kClasses; ++c) {
    std::uint32_t left = orphan_count_[c].load(std::memory_order_relaxed);
    while (left > 0 && tries > 0 && !helper_.is_kept_away()) {
      if (!fork_lock_.try_lock()) {
        --tries;
        helper_.template doze_us<Platform>(kTurnUs);
        continue;
      }
      const std::uint32_t most = left < kOrphanLooks ? left : kOrphanLooks;
      std::uint32_t looks = most;
      {
        LockGuard guard{registry_lock_};
        reap_orphans_locked(c, &looks, nullptr);
      }
      fork_lock_.unlock();
      left -= most;
    }
  }
}

// A round of the helper's walk from `*at`, in pauses, while `goes_on` says so after each, for
// kRoundMs at most.
template <class Policy, class Above>
template <class GoesOn>
WalkEnd Engine<Policy, Above>::walk_slabs(Address* at, Owners which, GoesOn&& goes_on) noexcept {
  rest_walk_.wanted += loosened_.exchange(0, std::memory_order_relaxed);
  const std::uint64_t began_ms = space_.platform().now_ms();
  for (;;) {
    const auto range = space_.range_from(*at);
    if (range.from == range.to) return WalkEnd::all;
    if (space_.platform().now_ms() - began_ms > kRoundMs || !pause_in_turn()) return WalkEnd::early;
    const RestStep step = purge_resting_in(range.from, range.to, which);
    const bool waited = resume();
    *at = step.at;
    if (step.is_refused) return WalkEnd::refused;
    if (!goes_on(step)) return WalkEnd::early;
    if (waited) helper_.template doze_us<Platform>(kTurnUs);
  }
}

// A round from the end of the last one: as long as it purges, and a little further. Returns whether
// slabs that are not yet at rest may become so.
template <class Policy, class Above>
bool Engine<Policy, Above>::purge_resting() noexcept {
  std::size_t vain_looks = 0;
  const WalkEnd end =
      walk_slabs(&rest_walk_.at, Owners::resting, [&](const RestStep& step) noexcept {
        rest_walk_.moving |= step.moving;
        if (step.bytes != 0) return true;
        vain_looks += step.looks + 1;
        return vain_looks < kVainLooks + rest_walk_.wanted / kBytesPerLook;
      });
  if (end != WalkEnd::all) return end == WalkEnd::early;
  const bool moving = rest_walk_.moving;
  rest_walk_ = {.wanted = rest_walk_.wanted / 2};
  return moving;
}

// Whether many slabs gained free blocks, and an eighth as much fresh memory was taken since.
template <class Policy, class Above>
bool Engine<Policy, Above>::grows_beside_holes() const noexcept {
  const std::size_t loose = loosened_.load(std::memory_order_relaxed);
  if (loose < kMuchLoose || !helper_.is_running()) return false;
  const std::size_t before = fresh_before_.load(std::memory_order_relaxed);
  const std::size_t fresh = space_.fresh_bytes();
  return loose >= fresh / 16 && fresh > before && fresh - before >= loose / 8;
}

// The helper's, when the program grows beside holes. Purges the free pages of slabs that are mostly
// free, at rest or not. So a program that changes to other sizes does not need the memory of both.
template <class Policy, class Above>
void Engine<Policy, Above>::purge_holes() noexcept {
  Address at = 0;
  const auto goes_on = [](const RestStep&) noexcept { return true; };
  if (walk_slabs(&at, Owners::loose, goes_on) == WalkEnd::early) holes_are_wanted_.store(true);
}

// All slabs at once. Returns the purged bytes.
template <class Policy, class Above>
std::size_t Engine<Policy, Above>::purge_slabs() noexcept {
  std::size_t bytes = 0;
  auto range = space_.range_from(0);
  in_pauses([&]() noexcept {
    const RestStep step = purge_resting_in(range.from, range.to, Owners::all);
    bytes += step.bytes;
    range = space_.range_from(step.at);
    return step.is_refused || range.from == range.to;
  });
  return bytes;
}

// In a pause. Purges whole slabs, so that no piece is purged twice.
template <class Policy, class Above>
RestStep Engine<Policy, Above>::purge_resting_in(Address at, Address end, Owners which) noexcept {
  RestStep step{.at = at};
  os::Piece pieces[kRestPieces];
  std::uint32_t count = 0;
  space::Region* region = nullptr;
  const auto purge = [&]() noexcept {
    step.pieces += count;
    if (count == 0 || space_.purge_within(*region, pieces, std::exchange(count, 0))) return true;
    step.bytes = 0;
    step.is_refused = true;
    return false;
  };
  const auto add = [&](Address from, Address to) noexcept {
    if (count == kRestPieces && !purge()) return false;
    pieces[count++] = {reinterpret_cast<void*>(from), to - from};
    step.bytes += to - from;
    return true;
  };
  end = end - at < kRestReach ? end : at + kRestReach;
  while (step.at < end && !step.is_long(count)) {
    const space::Tag tag = space_.map().tag_of(step.at);
    if (!space::is_slab(tag)) {
      step.at += kSliceBytes;
      continue;
    }
    ++step.looks;
    Slab& slab = *slab::as_slab(space_.map().span_of(step.at));
    region = slab.region;
    bool is_due = which == Owners::loose && slab.is_mostly_free() && !slab.is_settled();
    if (which != Owners::loose) {
      const auto rest = slab.look_for_rest();
      step.moving |= rest == Slab::Rest::moving;
      is_due = rest == Slab::Rest::resting || (rest == Slab::Rest::moving && which == Owners::all);
    }
    if (is_due && !slab.purge_free_pages(space_.platform().page_size(), add)) return step;
    step.at = end_of(slab);
  }
  static_cast<void>(purge());
  return step;
}

}  // namespace allod::heap

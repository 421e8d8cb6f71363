// Stocks of shared domains that rest: blocks in their magazines and in those of their processors,
// and empty slabs. A thread that works elsewhere never comes back to empty them, so the helper does
// it, in a turn on the domain. It does not wait for a thread that has one.
#pragma once

#include <utility>

#include "allod/heap/engine.hpp"

namespace allod::heap {

// So many shared domains keep their stocks until the helper comes for another reason.
inline constexpr std::uint32_t kFewStocks = 2;

// Within a slow path of the domain.
template <class Policy, class Above>
ALLOD_INLINE void Engine<Policy, Above>::note_stock(Domain& domain) noexcept {
  if (__builtin_expect(!domain.is_stocked, 0)) add_stock(domain);
}

template <class Policy, class Above>
void Engine<Policy, Above>::add_stock(Domain& domain) noexcept {
  domain.is_stocked = true;
  if (stocks_.fetch_add(1, std::memory_order_relaxed) < kFewStocks) return;
  look_is_wanted_.store(true, std::memory_order_relaxed);
  start_helper();
}

// Without a helper, threads do its work.
template <class Policy, class Above>
void Engine<Policy, Above>::empty_resting_if_due() noexcept {
  if (stocks_.load(std::memory_order_relaxed) <= kFewStocks || !helper_.is_none()) return;
  if (options_.purge_delay_ms <= 0) return;
  const auto half = static_cast<std::uint32_t>(options_.purge_delay_ms) / 2;
  const auto now_ms = static_cast<std::uint32_t>(space_.platform().now_ms());
  std::uint32_t before = emptied_ms_.load(std::memory_order_relaxed);
  if (now_ms - before < half) return;
  if (emptied_ms_.compare_exchange_strong(before, now_ms)) static_cast<void>(empty_resting());
}

// Empties shared domains that nobody has used since the last call. Returns whether others are in
// use. The caller holds no lock.
template <class Policy, class Above>
bool Engine<Policy, Above>::empty_resting() noexcept {
  if (stocks_.load(std::memory_order_relaxed) == 0) return false;
  bool moving = false;
  const auto next = [&](Domain* domain) noexcept {
    LockGuard guard{registry_lock_};
    return next_domain(domain);
  };
  for (Domain* d = next(nullptr); d != nullptr && !helper_.is_kept_away(); d = next(d)) {
    const auto is_shared = [&]() noexcept {
      return d->state.load(std::memory_order_relaxed) == DomainState::shared;
    };
    if (!is_shared()) continue;
    Turn turn{*d, gate_, Turn::Wait::no};
    if (turn && !is_shared()) continue;
    moving |= !turn || (d->is_stocked && !empty_if_at_rest(*d));
  }
  return moving;
}

// In a turn. False if the domain, or magazines of a processor over it, were used since the last
// call.
template <class Policy, class Above>
bool Engine<Policy, Above>::empty_if_at_rest(Domain& domain) noexcept {
  const bool are_empty = empty_caches_at_rest(domain);
  // The caller's turn is one more.
  const bool is_at_rest = domain.turns == domain.seen_turns + 1;
  domain.seen_turns = domain.turns;
  if (!is_at_rest) return false;
  for (ClassIndex c = 0; c < kClasses; ++c) {
    return_quietly(domain, domain, domain.magazines[c], c);
    return_quietly(domain, domain, domain.freed[c], c);
    retire_last_quietly(domain, domain.bins()[c]);
  }
  if (are_empty && std::exchange(domain.is_stocked, false)) {
    stocks_.fetch_sub(1, std::memory_order_relaxed);
  }
  return are_empty;
}

// In a turn on the domain. Threads empty their own caches. False if any is in use.
template <class Policy, class Above>
bool Engine<Policy, Above>::empty_caches_at_rest(Domain& domain) noexcept {
  bool is_any = false;
  bool is_any_used = false;
  for_each_cache(domain, [&](Cache& cache) noexcept {
    if (!cache.is_processors) return;
    const std::uint32_t now = cache.stamp();
    cache.is_due = std::exchange(cache.seen_stamp, now) == now && now != 0;
    is_any |= cache.is_due;
    is_any_used |= !cache.is_due && now != 0;
  });
  if (!is_any) return !is_any_used;
  if constexpr (os::Restarting<Platform>) {
    if (Platform::Restartable::close()) {
      for_each_cache(domain, [&](Cache& cache) noexcept {
        if (std::exchange(cache.is_due, false)) empty_quietly(cache);
      });
    }
    Platform::Restartable::open();
  }
  return !is_any_used;
}

// In a turn on its domain, while nobody changes the cache.
template <class Policy, class Above>
void Engine<Policy, Above>::empty_quietly(Cache& cache) noexcept {
  for (std::uint32_t word = 0; word < words_for(kClasses); ++word) {
    for (Word rest = cache.classes[word]; rest != 0; rest &= rest - 1) {
      const ClassIndex c = word * kWordBits + lowest_bit(rest);
      return_quietly(cache.home, cache, cache.magazines[c], c);
      return_quietly(cache.home, cache, cache.freed[c], c);
    }
  }
}

// Returns the blocks of a magazine to slabs. The helper cannot report, so blocks that were freed
// twice stay, for a thread.
template <class Policy, class Above>
void Engine<Policy, Above>::return_quietly(Domain& domain, Front<Sizes>& front, Magazine& magazine,
                                           ClassIndex c) noexcept {
  const std::uint32_t count = magazine.count();
  if (count == 0) return;
  domain.counters.flushes.add(1);
  front.note_given_up(magazine, c, count);
  void** kept = magazine.bottom;
  put_back(domain, c, magazine.bottom, count, [&](MisuseKind, void* block) noexcept {
    if (!return_elsewhere(domain, block)) *kept++ = block;
  });
  magazine.top = kept;
}

// A block of a slab that has left the domain. False if it is in the domain, or was freed twice.
template <class Policy, class Above>
bool Engine<Policy, Above>::return_elsewhere(const Domain& domain, void* block) noexcept {
  const space::Tag tag = space_.map().tag_of(address_of(block));
  if (domain.owns(tag) || !space::is_slab(tag) || space::is_heaps(tag)) return false;
  Slab& slab = *slab::as_slab(space_.map().span_of(address_of(block)));
  const std::uint32_t index = slab.index_of(address_of(block));
  if (index == Slab::kNoBlock) return false;
  const Word doubled = slab.give_remotely(index / kWordBits, bit(index % kWordBits));
  slab.announce();
  return doubled == 0;
}

template <class Policy, class Above>
void Engine<Policy, Above>::retire_last_quietly(Domain& domain, Bin& bin) noexcept {
  if (bin.partial.empty() || bin.partial.first() != bin.partial.last()) return;
  Slab& last = *slab::as_slab(bin.partial.first());
  if (last.is_empty() && !last.is_announced()) retire(domain, bin, last);
}

}  // namespace allod::heap

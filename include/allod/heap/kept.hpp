// Huge blocks that a thread has freed stay with its domain, for whoever asks that domain for as
// much again: the one that was freed last, which takes no lock, and nothing along its slices that
// has to be written; and some of those before that are in memory in small part only, as when a
// buffer is made for the worst case. In their place, what is in memory is what the next such block
// needs; in any other, its pages would have to come anew, and would stay behind in whatever block
// has them in its midst.
//
// For the space they are used spans with a mark. Where the policy keeps states of blocks these say
// that nobody uses them, and they may be shut as long; elsewhere the tag of the first slice. Their
// owner changes what is kept in slow paths only, so that the helper, which gives back what has not
// been asked for again, may do so while it keeps everybody out of these, as a fork does.
#pragma once

#include <utility>

#include "allod/heap/engine.hpp"

namespace allod::heap {

// Within a slow path of the domain. False when the block has to go to the space instead.
template <class Policy, class Above>
bool Engine<Policy, Above>::keep(Domain& domain, space::Span& span) noexcept {
  Kept& kept = domain.kept;
  const std::size_t bytes = span.size.bytes();
  // Of another heap once, and not like others; or hardly anybody asks for so little as for a span,
  // but who wants it aligned. Where blocks have states, whoever is given one that is shut opens it.
  const bool is_closed = kBlockStates ? span.has_closed : space::is_partly_closed(span);
  if (span.region->source != nullptr || is_closed) return false;
  if (bytes <= Sizes::kMaxSize && kept.span != nullptr) return false;
  // Somebody has to take care that it goes.
  if (!may_keep() || bytes > options_.purge_budget) return false;
  put_aside(domain);
  if (!make_room_for_kept(kept, bytes)) return false;
  if (__builtin_expect(!helper_.is_running(), 0)) {
    set_reserved(kept, kept.sparse_bytes);
    return false;
  }
  mark_kept(span, true);
  kept.span = &span;
  kept.bytes = bytes;
  kept.rests = false;
  return true;
}

// Reserves what is kept, and so many bytes more; the oldest give way. False when that is too much.
template <class Policy, class Above>
bool Engine<Policy, Above>::make_room_for_kept(Kept& kept, std::size_t bytes) noexcept {
  if (__builtin_expect(bytes > kept_share_.load(std::memory_order_relaxed), 0)) {
    give_back_kept(kept);
    set_reserved(kept, 0);
    return false;
  }
  while (__builtin_expect(!reserve_kept(kept, kept.sparse_bytes + bytes), 0)) {
    if (kept.sparse_count == 0) {
      ask_for_share(kept, bytes);
      return false;
    }
    space_.free(remove_sparse(kept, 0));
  }
  return true;
}

// Together, what domains keep is a part of the budget for dirty memory. A domain goes on having
// what it has reserved, so that threads do not meet at one counter each time. When there is nothing
// left for one of them, none may have more than its share, and the helper takes it from who has
// more and sleeps; from its next usual look on they may have more again.
template <class Policy, class Above>
bool Engine<Policy, Above>::reserve_kept(Kept& kept, std::size_t bytes) noexcept {
  if (__builtin_expect(bytes <= kept.reserved, 1)) return true;
  if (bytes > kept_share_.load(std::memory_order_relaxed)) return false;
  const std::size_t before = kept.reserved;
  if (kept_bytes_.load() + (bytes - before) > options_.purge_budget) return false;
  set_reserved(kept, bytes);
  if (__builtin_expect(kept_bytes_.load() <= options_.purge_budget, 1)) return true;
  set_reserved(kept, before);
  return false;
}

// Nobody need give way to who wants more himself.
template <class Policy, class Above>
void Engine<Policy, Above>::ask_for_share(const Kept& kept, std::size_t bytes) noexcept {
  const std::size_t sharers = keepers_.load() + (kept.reserved == 0 ? 1 : 0);
  const std::size_t even = options_.purge_budget / sharers;
  const std::size_t share = bytes > even ? bytes : even;
  if (share >= kept_share_.load()) return;
  kept_share_.store(share);
  kept_short_.store(true);
  helper_.template wake<Platform>();
}

template <class Policy, class Above>
void Engine<Policy, Above>::set_reserved(Kept& kept, std::size_t bytes) noexcept {
  if (bytes == kept.reserved) return;
  if (kept.reserved == 0) keepers_.fetch_add(1);
  if (bytes == 0) keepers_.fetch_sub(1);
  kept_bytes_.fetch_add(bytes - kept.reserved);
  kept.reserved = bytes;
}

[[nodiscard]] inline bool is_hardly_more(const space::Span& span, Slices size) noexcept {
  constexpr std::uint32_t kSlack = 8;
  return span.size >= size && (span.size - size).count <= size.count / kSlack;
}

// A block of `size` slices at least, and hardly more; or null. The last one is then among the free
// spans, or put aside. Who wants zeros does not want memory that would have to be cleared, most of
// which is not there.
template <class Policy, class Above>
void* Engine<Policy, Above>::take_kept(Domain& domain, Slices size, Slices alignment,
                                       bool wants_zeros) noexcept {
  SlowPath slow{domain, gate_};
  space::Span* const span = domain.kept.span;
  if (span != nullptr && is_hardly_more(*span, size) && span->base % alignment.bytes() == 0) {
    domain.kept.span = nullptr;
    return hand_out_kept(domain, *span);
  }
  put_aside(domain);
  if (wants_zeros && !kBlockStates) return nullptr;
  return take_sparse(domain, size, alignment, !wants_zeros);
}

template <class Policy, class Above>
void* Engine<Policy, Above>::hand_out_kept(Domain& domain, space::Span& span) noexcept {
  domain.kept.rests = false;
  domain.counters.kept_reused.add(1);
  span.zero = false;
  mark_kept(span, false);
  return reinterpret_cast<void*>(span.base);
}

// The smallest that is large enough, and what it has too much is cut off; or one that can be
// lengthened by what is free behind it. What is in memory is mostly at the start.
template <class Policy, class Above>
void* Engine<Policy, Above>::take_sparse(Domain& domain, Slices size, Slices alignment,
                                         bool may_grow) noexcept {
  Kept& kept = domain.kept;
  constexpr std::uint32_t kNone = Kept::kMostSparse;
  std::uint32_t best = kNone;
  for (std::uint32_t i = 0; i < kept.sparse_count; ++i) {
    const space::Span& span = *kept.sparse[i].span;
    if (span.size < size || span.base % alignment.bytes() != 0) continue;
    if (best == kNone || span.size < kept.sparse[best].span->size) best = i;
  }
  for (std::uint32_t i = may_grow ? kept.sparse_count : 0; best == kNone && i-- > 0;) {
    space::Span& span = *kept.sparse[i].span;
    if (span.size.count < size.count / 2 || span.base % alignment.bytes() != 0) continue;
    if (!space_.grow(&span, size)) continue;
    // A guard would lie in its midst now. When the system does not open it, that of the new block
    // cannot be set either, and nobody gets it.
    static_cast<void>(space_.unguard(span));
    space_.map().set_tags(span.base, span.size, space::kInteriorTag);
    best = i;
  }
  if (best == kNone) return nullptr;
  space::Span& span = *remove_sparse(kept, best);
  if (!is_hardly_more(span, size) && space_.unguard(span)) {
    space_.shrink(&span, size);
    maybe_purge();
  }
  return hand_out_kept(domain, span);
}

// Within a slow path of the domain. Whatever it asks the space for next may be cut from the last
// block, but where that is sparse.
template <class Policy, class Above>
void Engine<Policy, Above>::put_last_aside(Domain& domain) noexcept {
  Kept& kept = domain.kept;
  space::Span& span = *std::exchange(kept.span, nullptr);
  const std::size_t present = present_in_kept(span);
  if (present != span.size.bytes()) return add_sparse(kept, span, present);
  space_.free(&span);
  maybe_purge();
}

template <class Policy, class Above>
std::size_t Engine<Policy, Above>::present_in_kept(const space::Span& span) noexcept {
  const std::size_t bytes = span.size.bytes();
  if (bytes <= Sizes::kMaxSize) return bytes;
  void* const memory = reinterpret_cast<void*>(span.base);
  const std::size_t present = space_.platform().present_bytes(memory, bytes);
  return present <= bytes / 2 ? present : bytes;
}

// Much more than it needs is reserved, as long as it was the last.
template <class Policy, class Above>
void Engine<Policy, Above>::add_sparse(Kept& kept, space::Span& span,
                                       std::size_t present) noexcept {
  // Nothing at all would be nobody's to give back.
  if (present < kSliceBytes) present = kSliceBytes;
  end_old_sparse(kept);
  if (kept.sparse_count == Kept::kMostSparse) space_.free(remove_sparse(kept, 0));
  const auto now = static_cast<std::uint32_t>(space_.platform().now_ms());
  kept.sparse[kept.sparse_count++] = {&span, present, now};
  kept.sparse_bytes += present;
}

template <class Policy, class Above>
space::Span* Engine<Policy, Above>::remove_sparse(Kept& kept, std::uint32_t index) noexcept {
  const Kept::Sparse removed = kept.sparse[index];
  --kept.sparse_count;
  kept.sparse_bytes -= removed.present;
  for (std::uint32_t i = index; i < kept.sparse_count; ++i) kept.sparse[i] = kept.sparse[i + 1];
  return removed.span;
}

// Those that nobody has asked for in all of the purge delay.
template <class Policy, class Above>
void Engine<Policy, Above>::end_old_sparse(Kept& kept) noexcept {
  if (kept.sparse_count == 0) return;
  const auto age_ms = static_cast<std::uint32_t>(options_.purge_delay_ms);
  const auto now = static_cast<std::uint32_t>(space_.platform().now_ms());
  while (kept.sparse_count != 0 && now - kept.sparse[0].since_ms >= age_ms) {
    space_.free(remove_sparse(kept, 0), age_ms);
  }
}

// Within a slow path of the domain, or by who keeps it out of these. Nobody has asked for it for
// `age_ms`.
template <class Policy, class Above>
void Engine<Policy, Above>::give_back_all_kept(Kept& kept, std::uint32_t age_ms) noexcept {
  while (kept.sparse_count != 0) space_.free(remove_sparse(kept, 0), age_ms);
  if (kept.span != nullptr) space_.free(std::exchange(kept.span, nullptr), age_ms);
}

// The same for domains that are not in a slow path just now; what they have reserved goes as well.
template <class Policy, class Above>
void Engine<Policy, Above>::give_back_kept_of(Keepers which) noexcept {
  if (kept_bytes_.load() == 0) return;
  // Others hold this lock shortly; but a fork may wait for the caller, who cannot wait for it.
  constexpr int kPatience = 4096;
  for (int i = 0; !fork_lock_.try_lock(); ++i) {
    if (which != Keepers::all || i == kPatience) return;
    gate_.yield();
  }
  // What has been free for half of the delay is purged after the other half.
  const bool is_old = which == Keepers::resting;
  const auto age = is_old ? static_cast<std::uint32_t>(options_.purge_delay_ms) / 2 : 0;
  gate_.close(space_.platform());
  {
    LockGuard guard{registry_lock_};
    for_each_domain([&](Domain& domain) noexcept {
      Kept& kept = domain.kept;
      if (kept.reserved == 0 || domain.in_slow_path.load(std::memory_order_acquire)) return;
      if (which == Keepers::greedy && kept.reserved <= kept_share_.load()) return;
      if (which == Keepers::resting && !kept.rests) {
        kept.rests = true;
        end_old_sparse(kept);
        const std::size_t needed = kept.sparse_bytes + kept.bytes;
        return set_reserved(kept, needed < kept.reserved ? needed : kept.reserved);
      }
      // Who finds nothing reserved can have what was kept from the space.
      give_back_kept(kept, age);
      set_reserved(kept, 0);
    });
  }
  gate_.open();
  fork_lock_.unlock();
}

// From time to time, on the helper.
template <class Policy, class Above>
void Engine<Policy, Above>::look_at_kept() noexcept {
  kept_share_.store(~std::size_t{0});
  const bool is_lower = kept_bytes_.load() > options_.purge_budget;
  give_back_kept_of(is_lower || !may_keep() ? Keepers::all : Keepers::resting);
}

// When the system refuses, within a slow path of the domain: its stocks are all there is, and what
// others keep.
template <class Policy, class Above>
void Engine<Policy, Above>::give_up_everything(Domain& domain) noexcept {
  give_up_stocks(domain);
  give_back_kept_of(Keepers::all);
}

template <class Policy, class Above>
void Engine<Policy, Above>::mark_kept(space::Span& span, bool is_kept) noexcept {
  __atomic_store_n(&span.is_kept, is_kept, __ATOMIC_RELAXED);
  const bool is_free = is_kept && !kBlockStates;
  space_.map().set_tags(span.base, {1}, is_free ? space::kFreeTag : space::kHugeTag);
}

// Right while nobody changes that.
template <class Policy, class Above>
bool Engine<Policy, Above>::is_kept(const space::Span& span) noexcept {
  return span.state == space::SpanState::used && __atomic_load_n(&span.is_kept, __ATOMIC_RELAXED);
}

template <class Policy, class Above>
MisuseKind Engine<Policy, Above>::kind_of_interior(const void* address) const noexcept {
  const bool was_freed = is_kept(*space_.map().span_of(address_of(address)));
  return was_freed ? MisuseKind::double_free : MisuseKind::invalid_free;
}

}  // namespace allod::heap

// The huge block that a thread freed last stays with its domain, for whoever asks that domain for
// as much again: no lock, and nothing along its slices that has to be written.
//
// For the space it is a used span; the tag of its first slice says that nobody uses it. Its owner
// changes what is kept in slow paths only, so that the helper, which gives back what has not been
// asked for again, may do so while it keeps everybody out of these, as a fork does.
#pragma once

#include <utility>

#include "allod/heap/heap.hpp"

namespace allod::heap {

// Within a slow path of the domain. False when the block has to go to the space instead.
template <class Policy>
bool Heap<Policy>::keep(Domain& domain, space::Span& span) noexcept {
  if constexpr (kBlockStates) return false;
  space::Span* const before = domain.kept.span;
  // Of another heap once, and not like others; or hardly anybody asks for so little as for a span,
  // but who wants it aligned.
  if (span.region->source != nullptr || space::is_partly_closed(span)) return false;
  if (span.size.bytes() <= Sizes::kMaxSize && before != nullptr) return false;
  // Somebody has to take care that it goes.
  if (!may_keep() || !reserve_kept(domain, span.size.bytes())) return false;
  if (__builtin_expect(!helper_.is_running(), 0)) {
    set_reserved(domain.kept, before != nullptr ? domain.kept.bytes : 0);
    return false;
  }
  space_.map().set_tags(span.base, {1}, space::kFreeTag);
  domain.kept.span = &span;
  domain.kept.bytes = span.size.bytes();
  domain.kept.rests = false;
  if (before != nullptr) {
    space_.free(before);
    maybe_purge();
  }
  return true;
}

// Together, what domains keep is a part of the budget for dirty memory. A domain goes on having
// what it has reserved, so that threads do not meet at one counter each time. When there is nothing
// left for one of them, none may have more than its share, and the helper takes it from who has
// more and sleeps; from its next usual look on they may have more again.
template <class Policy>
bool Heap<Policy>::reserve_kept(Domain& domain, std::size_t bytes) noexcept {
  Kept& kept = domain.kept;
  if (__builtin_expect(bytes > kept_share_.load(std::memory_order_relaxed), 0)) {
    give_back_kept(domain);
    set_reserved(kept, 0);
    return false;
  }
  if (__builtin_expect(bytes <= kept.reserved, 1)) return true;
  const std::size_t before = kept.reserved;
  if (kept_bytes_.load() + (bytes - before) <= options_.purge_budget) {
    set_reserved(kept, bytes);
    if (__builtin_expect(kept_bytes_.load() <= options_.purge_budget, 1)) return true;
    set_reserved(kept, before);
  }
  if (bytes <= options_.purge_budget) ask_for_share(bytes, keepers_.load() + (before == 0 ? 1 : 0));
  return false;
}

// Nobody need give way to who wants more himself.
template <class Policy>
void Heap<Policy>::ask_for_share(std::size_t bytes, std::size_t sharers) noexcept {
  const std::size_t even = options_.purge_budget / sharers;
  const std::size_t share = bytes > even ? bytes : even;
  if (share >= kept_share_.load()) return;
  kept_share_.store(share);
  kept_short_.store(true);
  helper_.template wake<Platform>();
}

template <class Policy>
void Heap<Policy>::set_reserved(Kept& kept, std::size_t bytes) noexcept {
  if (bytes == kept.reserved) return;
  if (kept.reserved == 0) keepers_.fetch_add(1);
  if (bytes == 0) keepers_.fetch_sub(1);
  kept_bytes_.fetch_add(bytes - kept.reserved);
  kept.reserved = bytes;
}

// A block of `size` slices at least, and hardly more; null when another one is kept, which then is
// among the free spans, or none is.
template <class Policy>
void* Heap<Policy>::take_kept(Domain& domain, Slices size, Slices alignment) noexcept {
  constexpr std::uint32_t kSlack = 8;
  SlowPath slow{domain, gate_};
  space::Span* const span = domain.kept.span;
  if (span == nullptr) return nullptr;
  if (span->size < size || (span->size - size).count > size.count / kSlack ||
      span->base % alignment.bytes() != 0) {
    give_back_kept(domain);
    return nullptr;
  }
  domain.kept.span = nullptr;
  domain.kept.rests = false;
  domain.counters.kept_reused.add(1);
  span->zero = false;
  space_.map().set_tags(span->base, {1}, space::kHugeTag);
  return reinterpret_cast<void*>(span->base);
}

// Within a slow path of the domain. Whatever it asks the space for next may be cut from it.
template <class Policy>
void Heap<Policy>::give_back_kept(Domain& domain) noexcept {
  space::Span* const span = domain.kept.span;
  if (__builtin_expect(span == nullptr, 1)) return;
  domain.kept.span = nullptr;
  space_.free(span);
}

// The same for domains that are not in a slow path just now; what they have reserved goes as well.
template <class Policy>
void Heap<Policy>::give_back_kept_of(Keepers which) noexcept {
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
        return set_reserved(kept, kept.bytes < kept.reserved ? kept.bytes : kept.reserved);
      }
      // Who finds nothing reserved can have what was kept from the space.
      if (kept.span != nullptr) space_.free(std::exchange(kept.span, nullptr), age);
      set_reserved(kept, 0);
    });
  }
  gate_.open();
  fork_lock_.unlock();
}

// From time to time, on the helper.
template <class Policy>
void Heap<Policy>::look_at_kept() noexcept {
  kept_share_.store(~std::size_t{0});
  const bool is_lower = kept_bytes_.load() > options_.purge_budget;
  give_back_kept_of(is_lower || !may_keep() ? Keepers::all : Keepers::resting);
}

// When the system refuses, within a slow path of the domain: its stocks are all there is, and what
// others keep.
template <class Policy>
void Heap<Policy>::give_up_everything(Domain& domain) noexcept {
  give_up_stocks(domain);
  give_back_kept_of(Keepers::all);
}

// In use as far as the space knows, and kept by a domain. (Nor one whose guard could not be taken
// away.) Right while nobody changes that.
template <class Policy>
bool Heap<Policy>::is_kept(const space::Span& span) const noexcept {
  return span.state == space::SpanState::used && span.home == nullptr &&
         !space::is_partly_closed(span) && space_.map().tag_of(span.base) == space::kFreeTag;
}

template <class Policy>
MisuseKind Heap<Policy>::kind_of_interior(const void* address) const noexcept {
  const bool was_freed = is_kept(*space_.map().span_of(address_of(address)));
  return was_freed ? MisuseKind::double_free : MisuseKind::invalid_free;
}

}  // namespace allod::heap

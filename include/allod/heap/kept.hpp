// Huge blocks that a thread has freed stay with its domain, for the domain's next requests of that
// size. The last one takes no lock, and no write along its slices. Of those before it, a few stay
// that are mostly not resident, as when a program allocates a buffer for the worst case. The next
// such buffer reuses their resident pages. In any other block, these would stay resident in its
// middle.
//
// For the space, kept blocks are used spans with a mark. To detect a double free, their state says
// that they are free, or, without states of blocks, the tag of the first slice. With states, kept
// blocks may be closed. A domain changes its kept blocks only in slow paths. So the helper can free
// those that are not reused while it keeps all threads out of slow paths, as a fork does.
#pragma once

#include <utility>

#include "allod/heap/engine.hpp"

namespace allod::heap {

template <class Policy, class Above>
inline bool Engine<Policy, Above>::may_keep() const noexcept {
  return options_.purge_delay_ms > 0 && options_.purge_thread && !space_.refuses_purge();
}

// Within a slow path of the domain. False if the caller has to free the block.
template <class Policy, class Above>
bool Engine<Policy, Above>::keep(Domain& domain, space::Span& span) noexcept {
  Kept& kept = domain.kept;
  const std::size_t bytes = span.size.bytes();
  // Not kept: memory of a heap's own source; closed memory, though where blocks have states, the
  // next owner opens it; and small spans, which only aligned requests need, unless there is no last
  // block.
  const bool is_closed = kBlockStates ? span.has_closed : space::is_partly_closed(span);
  if (span.region->source != nullptr || is_closed) return false;
  if (bytes <= Sizes::kMaxSize && kept.span != nullptr) return false;
  // The helper must free it later.
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

// Reserves `bytes` besides those of the sparse blocks, of which the oldest are freed if needed.
// False if that is too much.
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
    free_oldest_sparse(kept);
  }
  return true;
}

// All domains together may keep a part of the budget for dirty memory. A domain holds on to its
// reserved bytes, so that threads do not contend for one counter each time. Once a domain is
// refused, each may only keep its share: the helper takes more than that from sleeping domains. The
// helper's next usual look lifts this limit.
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

// Only domains that keep more than the caller wants give way to it.
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

// A kept block on the caller's node, of at least `size` slices and hardly more, or null. Afterwards
// the last block is free or put aside. For a request of zeros, a sparse block would only have to be
// cleared, though most of it is not present.
template <class Policy, class Above>
void* Engine<Policy, Above>::take_kept(Domain& domain, Slices size, Slices alignment,
                                       bool wants_zeros) noexcept {
  SlowPath slow{domain, gate_};
  space::Span* const span = domain.kept.span;
  if (span != nullptr && is_hardly_more(*span, size) && span->base % alignment.bytes() == 0 &&
      space_.is_near(*span)) {
    domain.kept.span = nullptr;
    span->absent_from = 0;
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

// Takes the smallest block that is large enough, and cuts off the rest; or one that can grow into
// free slices behind it. Resident pages are mostly at the start.
template <class Policy, class Above>
void* Engine<Policy, Above>::take_sparse(Domain& domain, Slices size, Slices alignment,
                                         bool may_grow) noexcept {
  Kept& kept = domain.kept;
  constexpr std::uint32_t kNone = Kept::kMostSparse;
  std::uint32_t best = kNone;
  for (std::uint32_t i = 0; i < kept.sparse_count; ++i) {
    const space::Span& span = *kept.sparse[i].span;
    if (span.size < size || span.base % alignment.bytes() != 0) continue;
    if (!space_.is_near(span)) continue;
    if (best == kNone || span.size < kept.sparse[best].span->size) best = i;
  }
  for (std::uint32_t i = may_grow ? kept.sparse_count : 0; best == kNone && i-- > 0;) {
    space::Span& span = *kept.sparse[i].span;
    if (span.size.count < size.count / 2 || span.base % alignment.bytes() != 0) continue;
    if (!space_.is_near(span) || !space_.grow(&span, size)) continue;
    // A guard would lie within the new block. If the system refuses to open it, it also refuses the
    // new block's guard, and the block is not handed out.
    static_cast<void>(space_.unguard(span));
    space_.map().set_tags(span.base, span.size, space::kInteriorTag);
    best = i;
  }
  if (best == kNone) {
    // A new block gets the pages of the oldest one, unless few are kept.
    if (moves_pages() && kept.sparse_count >= Kept::kMostSparse / 2) free_oldest_sparse(kept);
    return nullptr;
  }
  const std::size_t present = kept.sparse[best].present;
  space::Span& span = *remove_sparse(kept, best);
  if (!is_hardly_more(span, size) && space_.unguard(span)) {
    space_.shrink(&span, size, moves_pages() ? space::Tail::absent : space::Tail::present);
    maybe_purge();
  }
  span.absent_from = 0;
  span.is_filled = false;
  if (written_.least_of(span.size.bytes()) > present) {
    span.absent_from = span.base + align_down(present, kSliceBytes);
  }
  void* const block = hand_out_kept(domain, span);
  return span.absent_from == 0 || fill(span) ? block : nullptr;
}

// Within a slow path of the domain, whose next request of the space may be cut from the last block,
// unless that is sparse. Mostly the domain keeps no block.
template <class Policy, class Above>
ALLOD_INLINE void Engine<Policy, Above>::put_aside(Domain& domain) noexcept {
  if (__builtin_expect(domain.kept.span != nullptr, 0)) put_last_aside(domain);
}

template <class Policy, class Above>
void Engine<Policy, Above>::put_last_aside(Domain& domain) noexcept {
  Kept& kept = domain.kept;
  space::Span& span = *std::exchange(kept.span, nullptr);
  const std::size_t present = present_in_kept(span);
  if (present <= span.size.bytes() / 2) return add_sparse(kept, span, present);
  free_present(span, present);
  maybe_purge();
}

template <class Policy, class Above>
std::size_t Engine<Policy, Above>::present_in_kept(const space::Span& span) noexcept {
  const std::size_t bytes = span.size.bytes();
  if (bytes <= Sizes::kMaxSize) return bytes;
  void* const memory = reinterpret_cast<void*>(span.base);
  const std::size_t present = space_.platform().present_bytes(memory, bytes, moves_pages());
  if (moves_pages()) note_written(span, present);
  return present;
}

// Of memory that was present when it was handed out, nobody knows whether it was written: only if
// the slice behind it was. If it was not, and the memory came by a guess, that was too much.
template <class Policy, class Above>
void Engine<Policy, Above>::note_written(const space::Span& span, std::size_t present) noexcept {
  const Address from = span.absent_from;
  if (from == 0 || from >= space::end_of(span)) return;
  void* const probe = reinterpret_cast<void*>(from);
  const bool is_more =
      from == span.base || space_.platform().present_bytes(probe, kSliceBytes) != 0;
  if (is_more || span.is_filled) written_.note(is_more ? present : 0, span.size.bytes());
}

// Much more than a sparse block needs is reserved, as it was the last block until now.
template <class Policy, class Above>
void Engine<Policy, Above>::add_sparse(Kept& kept, space::Span& span,
                                       std::size_t present) noexcept {
  // A block of no bytes would never be freed.
  if (present < kSliceBytes) present = kSliceBytes;
  end_old_sparse(kept);
  if (kept.sparse_count == Kept::kMostSparse) free_oldest_sparse(kept);
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

// Frees a block for new ones. Where pages move, only what is resident, mostly at the start, becomes
// dirty.
template <class Policy, class Above>
void Engine<Policy, Above>::free_present(space::Span& span, std::size_t present) noexcept {
  const Slices part = Slices::covering(present);
  const bool is_less = part.count <= span.size.count - span.size.count / 8;
  if (moves_pages() && is_less) space_.shrink(&span, part, space::Tail::absent);
  space_.free(&span);
}

template <class Policy, class Above>
void Engine<Policy, Above>::free_oldest_sparse(Kept& kept) noexcept {
  const std::size_t present = kept.sparse[0].present;
  free_present(*remove_sparse(kept, 0), present);
}

// For a huge block that is handed out: its owner will probably write as large a part of it as of
// the blocks before. The first ones are asked while they live; what their owners have not
// written yet, they may still write. False if the block was lost.
template <class Policy, class Above>
bool Engine<Policy, Above>::fill(space::Span& span) noexcept {
  if (!moves_pages()) return true;
  if (span.absent_from == span.base && written_.may_ask()) {
    const auto [newest, size] = space_.swap_newest(span);
    const std::size_t present = size == 0 ? 0 : space_.platform().present_bytes(newest, size);
    if (present != 0) written_.note(present, size);
  }
  const std::size_t bytes = span.size.bytes();
  const std::size_t part = written_.is_whole() ? bytes : written_.least_of(bytes);
  if (part < kSliceBytes) return true;
  if (span.absent_from == 0 && written_.note_silent()) space_.leave_out_last(span);
  return space_.fill(span, Slices::covering(part), options_.purge_budget / 2);
}

// Frees those that were not reused within the purge delay.
template <class Policy, class Above>
void Engine<Policy, Above>::end_old_sparse(Kept& kept) noexcept {
  if (kept.sparse_count == 0) return;
  const auto age_ms = static_cast<std::uint32_t>(options_.purge_delay_ms);
  const auto now = static_cast<std::uint32_t>(space_.platform().now_ms());
  while (kept.sparse_count != 0 && now - kept.sparse[0].since_ms >= age_ms) {
    space_.free(remove_sparse(kept, 0), age_ms);
  }
}

// Within a slow path of the domain, or while it is kept out of these. The blocks have been kept for
// `age_ms`.
template <class Policy, class Above>
ALLOD_INLINE void Engine<Policy, Above>::give_back_kept(Kept& kept, std::uint32_t age_ms) noexcept {
  if (__builtin_expect(!kept.is_nothing(), 0)) give_back_all_kept(kept, age_ms);
}

template <class Policy, class Above>
void Engine<Policy, Above>::give_back_all_kept(Kept& kept, std::uint32_t age_ms) noexcept {
  while (kept.sparse_count != 0) space_.free(remove_sparse(kept, 0), age_ms);
  if (kept.span != nullptr) space_.free(std::exchange(kept.span, nullptr), age_ms);
}

// The same for domains outside of slow paths. Their reserved bytes are released as well.
template <class Policy, class Above>
void Engine<Policy, Above>::give_back_kept_of(Keepers which) noexcept {
  if (kept_bytes_.load() == 0) return;
  // Others hold this lock briefly. But a fork may wait for the caller, which must not wait for it
  // then.
  constexpr int kPatience = 4096;
  const std::uint64_t signals = Platform::block_signals();  // see pause()
  for (int i = 0; !fork_lock_.try_lock(); ++i) {
    if (which != Keepers::all || i == kPatience) return Platform::restore_signals(signals);
    gate_.yield();
  }
  // Memory kept for half of the delay is purged after the other half.
  const bool is_old = which == Keepers::resting;
  const auto age = is_old ? static_cast<std::uint32_t>(options_.purge_delay_ms) / 2 : 0;
  gate_.close(space_.platform());
  {
    LockGuard guard{registry_lock_};
    for_each_domain([&](Domain& domain) noexcept {
      Kept& kept = domain.kept;
      if (domain.in_slow_path.load(std::memory_order_acquire) || kept.reserved == 0) return;
      if (which == Keepers::greedy && kept.reserved <= kept_share_.load()) return;
      if (which == Keepers::resting && !kept.rests) {
        kept.rests = true;
        end_old_sparse(kept);
        const std::size_t needed = kept.sparse_bytes + kept.bytes;
        return set_reserved(kept, needed < kept.reserved ? needed : kept.reserved);
      }
      // With nothing reserved, a domain gets its blocks from the space again.
      give_back_kept(kept, age);
      set_reserved(kept, 0);
    });
  }
  gate_.open();
  fork_lock_.unlock();
  Platform::restore_signals(signals);
}

// Called by the helper from time to time.
template <class Policy, class Above>
void Engine<Policy, Above>::look_at_kept() noexcept {
  kept_share_.store(~std::size_t{0});
  const bool is_lower = kept_bytes_.load() > options_.purge_budget;
  give_back_kept_of(is_lower || !may_keep() ? Keepers::all : Keepers::resting);
}

// Within a slow path of the domain, when the system refuses memory: its stocks and the kept blocks
// of all domains are all there is.
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

// True only while no thread changes the mark.
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

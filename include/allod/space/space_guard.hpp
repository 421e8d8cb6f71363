// Guards: inaccessible memory behind slabs and large blocks, so that an overflow faults.
//
// A guard is the end of its span, and ends with it: free spans have no guards, and are split,
// merged and purged as usual.
#pragma once

#include "allod/space/space.hpp"

namespace allod::space {

// Huge pages are worth more: a guard would break one. The program's memory, reserved huge pages and
// locked memory get no guard.
template <os::Platform P, CheckLevel kChecks>
std::size_t Space<P, kChecks>::guard_bytes(Filling filling, const PageSource* source,
                                           bool wished) noexcept {
  if constexpr (!os::Guarding<P>) return 0;
  if (source != nullptr && (!source->can_purge() || source->wishes.pages != Pages::usual)) return 0;
  if constexpr (os::Guarding<P>) {
    const std::size_t bytes = platform_.guard_bytes(wished);
    if (bytes == 0) return 0;
    LockGuard guard{lock_};
    const bool is_huge = filling == Filling::dense && counters_.used >= huge_from_;
    return is_huge ? 0 : bytes;
  }
}

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::guard(Span& span, Address from) noexcept {
  if constexpr (os::Guarding<P>) {
    if (from >= end_of(span)) return;
    // Noted before it exists, since a search for leaks may stop this thread in between.
    span.guarded_from = from;
    std::atomic_signal_fence(std::memory_order_release);
    if (!platform_.guard(reinterpret_cast<void*>(from), end_of(span) - from)) span.guarded_from = 0;
  }
}

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::move_guard(Span& span, Address from) noexcept {
  if constexpr (os::Guarding<P>) {
    const Address before = open_end_of(span);
    void* const first = reinterpret_cast<void*>(from < before ? from : before);
    if (from > before && !platform_.unguard(first, from - before)) return false;
    span.guarded_from = from < end_of(span) ? from : 0;
    std::atomic_signal_fence(std::memory_order_release);  // as above
    if (from < before && !platform_.guard(first, before - from)) {
      span.guarded_from = before < end_of(span) ? before : 0;
    }
  }
  return true;
}

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::note_closed(Span& span) noexcept {
  if (!__atomic_load_n(&span.has_closed, __ATOMIC_RELAXED)) {
    __atomic_store_n(&span.has_closed, true, __ATOMIC_RELAXED);
  }
}

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::shut(Span& span, Address from, std::size_t bytes) noexcept {
  if constexpr (os::Shutting<P>) {
    if (refuses_to_reopen_.load(std::memory_order_relaxed)) return false;
    if (!__atomic_load_n(&span.has_shut, __ATOMIC_RELAXED)) {
      const bool is_one_more = shut_spans_.fetch_add(1, std::memory_order_relaxed) < kMostShut;
      // Another thread may have set it meanwhile.
      if (!is_one_more || __atomic_exchange_n(&span.has_shut, true, __ATOMIC_RELAXED)) {
        shut_spans_.fetch_sub(1, std::memory_order_relaxed);
      }
      if (!is_one_more) return false;
    }
    return platform_.shut(reinterpret_cast<void*>(from), bytes);
  }
  return false;
}

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::reopen(Address from, std::size_t bytes) noexcept {
  if constexpr (os::Shutting<P>) {
    if (platform_.reopen(reinterpret_cast<void*>(from), bytes)) return true;
    refuses_to_reopen_.store(true, std::memory_order_relaxed);
  }
  return false;
}

template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::unguard(Span& span) noexcept {
  if constexpr (os::Guarding<P>) {
    if (!is_partly_closed(span)) return true;
    if (span.has_shut) {
      if (!reopen(span.base, span.size.bytes())) return false;
      span.has_shut = false;
      shut_spans_.fetch_sub(1, std::memory_order_relaxed);
    }
    const Address from = span.has_closed ? span.base : span.guarded_from;
    if (from == 0) return true;
    if (!platform_.unguard(reinterpret_cast<void*>(from), end_of(span) - from)) return false;
    span.guarded_from = 0;
    span.has_closed = false;
  }
  return true;
}

// For a request that lacks mappings: memory comes before guards. To their owners and to free(),
// spans look guarded as before. False if nothing was opened.
template <os::Platform P, CheckLevel kChecks>
bool Space<P, kChecks>::give_up_guards() noexcept {
  bool opened = false;
  if constexpr (os::Shutting<P>) {
    if (!platform_.spares_mappings()) return false;
    for_each_region([&](const Region& region) noexcept {
      for (Address at = region.base; at < region.base + region.used.bytes();) {
        const Span& span = *map_.span_of(at);
        at = end_of(span);
        if (span.state != SpanState::used || !is_partly_closed(span)) continue;
        opened |= platform_.reopen(reinterpret_cast<void*>(span.base), span.size.bytes());
      }
    });
  }
  return opened;
}

// A span whose guard cannot be opened is of no use: its memory is purged, and its addresses are
// lost.
template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::abandon(Span& span) noexcept {
  const std::size_t open = open_end_of(span) - span.base;
  if (open != 0) static_cast<void>(platform_.purge(reinterpret_cast<void*>(span.base), open));
  LockGuard guard{lock_};
  span.is_kept = false;
  map_.set_tags(span.base, span.size, kFreeTag);
}

}  // namespace allod::space

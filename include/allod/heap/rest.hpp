// Pages inside of slabs on which no block is in use, and which stay so: they go back to the
// system as well. The bits tell which they are, and nobody has to be asked.
//
// Only owners change their slabs, and only in slow paths. As for a fork, the helper keeps
// everybody out of these for a moment; fast paths go on. It waits for nobody who is in one.
#pragma once

#include "allod/heap/heap.hpp"

namespace allod::heap {

// What callers wait for meanwhile is bounded by these: at about 0.3 us a call and 0.1 us a page.
inline constexpr std::uint32_t kRestLooks = 256;
inline constexpr std::uint32_t kRestCalls = 48;
inline constexpr std::size_t kRestBytes = std::size_t{1} << 20;
// Pauses in one walk through the heap; the next walk goes on where it ended.
inline constexpr std::uint32_t kRestPauses = 64;

// False when somebody is in a slow path, or a fork is under way.
template <class Policy>
bool Heap<Policy>::pause() noexcept {
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

template <class Policy>
void Heap<Policy>::resume() noexcept {
  gate_.open();
  fork_lock_.unlock();
}

// Returns whether slabs may come to rest that were not found at rest now.
template <class Policy>
bool Heap<Policy>::purge_resting() noexcept {
  bool moving = false;
  for (std::uint32_t i = 0; i < kRestPauses; ++i) {
    const auto range = space_.range_from(rest_cursor_);
    if (range.from == range.to) {
      rest_cursor_ = 0;
      return moving;
    }
    if (!pause()) return true;
    rest_cursor_ = purge_resting_in(range.from, range.to, &moving);
    resume();
  }
  return true;
}

// In a pause. Returns how far it came.
template <class Policy>
Address Heap<Policy>::purge_resting_in(Address at, Address end, bool* moving) noexcept {
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

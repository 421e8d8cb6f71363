// Recycling: composed heaps return memory to their page source.
#pragma once

#include "allod/tailored/core.hpp"

namespace allod::tailored {

template <class P>
void Core<P>::settle() noexcept {
  if constexpr (Recycling::kAutomatic) {
    if (dirty_bytes_ <= Recycling::kKeepBytes) return;
    if (Recycling::kDelayMs > 0 && now_ms() - oldest_ms_ < Recycling::kDelayMs) return;
    // To half at least: otherwise the next slab would cause a walk through all chunks again.
    recycle(Recycling::kDelayMs, Recycling::kKeepBytes / 2);
  }
}

template <class P>
std::size_t Core<P>::recycle(std::uint32_t delay_ms, std::size_t keep) noexcept {
  if (refuses_ && (kOnePlace || empty_chunks_ == 0)) return 0;
  const std::size_t before = dirty_bytes_;
  const std::uint32_t now = now_ms();
  oldest_ms_ = now;
  for (Chunk *chunk = chunks_.last(), *previous = nullptr; chunk != nullptr; chunk = previous) {
    previous = chunk->links.previous;
    if (dirty_bytes_ <= keep && keep > 0) break;
    purge(*chunk, delay_ms, now);
    const bool is_clean = next_set(chunk->dirty, 0, chunk->units) == chunk->units;
    if (kOnePlace || !chunk->is_empty() || !(is_clean || refuses_)) continue;
    for (std::uint32_t word = 0; word < words_for(chunk->units); ++word) {
      dirty_bytes_ -= count_bits(chunk->dirty[word]) * kUnit;
    }
    chunks_.remove(chunk);
    --empty_chunks_;
    release(*chunk);
  }
  return before - dirty_bytes_;
}

// Purges one chunk's units that have been free for `delay_ms`.
template <class P>
void Core<P>::purge(Chunk& chunk, std::uint32_t delay_ms, std::uint32_t now) noexcept {
  for (std::uint32_t u = next_set(chunk.dirty, 0, chunk.units); u < chunk.units;) {
    std::uint32_t end = u;
    while (end < chunk.units && test_bit(chunk.dirty, end) &&
           now - chunk.runs[end].freed_ms >= delay_ms) {
      ++end;
    }
    if (end == u) {
      const std::uint32_t age = now - chunk.runs[u].freed_ms;
      if (now - oldest_ms_ < age) oldest_ms_ = chunk.runs[u].freed_ms;
      u = next_set(chunk.dirty, u + 1, chunk.units);
      continue;
    }
    const Address from = align_up(address_of(&chunk) + u * kUnit, pages_.page_bytes());
    const Address to = align_down(address_of(&chunk) + end * kUnit, pages_.page_bytes());
    if (from < to && !refuses_) {
      refuses_ = !pages_.purge(reinterpret_cast<void*>(from), to - from);
    }
    if (refuses_) return;
    assign_bits(chunk.dirty, u, end - u, false);
    dirty_bytes_ -= (end - u) * kUnit;
    u = next_set(chunk.dirty, end, chunk.units);
  }
}

}  // namespace allod::tailored

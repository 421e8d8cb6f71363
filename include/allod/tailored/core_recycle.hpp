// What composed heaps give back, and what they are asked.
#pragma once

#include "allod/tailored/core.hpp"

namespace allod::tailored {

template <class P>
void Core<P>::settle() noexcept {
  if constexpr (Recycling::kAutomatic) {
    if (dirty_bytes_ <= Recycling::kKeepBytes) return;
    if (Recycling::kDelayMs > 0 && now_ms() - oldest_ms_ < Recycling::kDelayMs) return;
    // Not less than a half, or the next slab would be a reason to go through all chunks again.
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

// What has been free for `delay_ms` in one chunk.
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

// --- questions
// -----------------------------------------------------------------------------------------

template <class P>
std::size_t Core<P>::usable_size(const void* block) const noexcept {
  const Content content = content_of(block);
  if (content <= Sizes::kCount) return Sizes::kShapes[content - 1U].block_bytes;
  if (content == kHugeBlock) return chunk_of(block)->bytes - kHugeOffset;
  const Run& run = *run_of(block);
  if (content == kRunBlock) return bytes_of(run);
  const auto at = static_cast<std::uint32_t>((address_of(block) - run.base) / Storage::kGranule);
  return length_at(run, at) * Storage::kGranule;
}

template <class P>
Fault Core<P>::examine(const void* address) const noexcept {
  Chunk* const chunk = find_chunk(address);
  if (chunk == nullptr) return Fault::foreign;
  const Address at = address_of(address);
  if (chunk->contents()[0] == kHugeBlock) {
    return at == address_of(chunk) + kHugeOffset ? Fault::none : Fault::not_a_block;
  }
  const Content content = chunk->contents()[unit_of(chunk, address)];
  if (content == kNothing) return Fault::freed_twice;
  if (content == kRecords) return Fault::not_a_block;
  const Run& run = *run_of(address);
  const std::size_t offset = at - run.base;
  if (content == kRunBlock) return offset == 0 ? Fault::none : Fault::not_a_block;
  const Word* const bits = bits_of(run);
  if (content == kAnySlab) {
    const auto granule = static_cast<std::uint32_t>(offset / Storage::kGranule);
    if (test_bit(bits, granule)) return Fault::freed_twice;
    const bool starts =
        offset % Storage::kGranule == 0 && test_bit(bits + words_for(kGranules), granule);
    return starts ? Fault::none : Fault::not_a_block;
  }
  const Shape& shape = shape_of(run);
  const auto [index, is_start] = shape.divider.divide(offset);
  if (index >= shape.blocks || !is_start) return Fault::not_a_block;
  return test_bit(bits, static_cast<std::uint32_t>(index)) ? Fault::freed_twice : Fault::none;
}

template <class P>
template <class Visit>
void Core<P>::for_each_block(Visit&& visit) const noexcept {
  for (Chunk* chunk = huge_.first(); chunk != nullptr; chunk = ChunkList::next(chunk)) {
    visit(reinterpret_cast<void*>(address_of(chunk) + kHugeOffset), chunk->bytes - kHugeOffset);
  }
  for (Chunk* chunk = chunks_.first(); chunk != nullptr; chunk = ChunkList::next(chunk)) {
    for (std::uint32_t u = chunk->own_units; u < chunk->units;) {
      const Content content = chunk->contents()[u];
      if (content == kNothing) {
        ++u;
        continue;
      }
      const Run& run = chunk->runs[u];
      u += run.units;
      if (content == kRecords) continue;
      const Word* const bits = bits_of(run);
      const auto* const heads = bits + words_for(kGranules);
      const bool single = content == kRunBlock;
      const bool granules = content == kAnySlab;
      const std::uint32_t blocks = single ? 1 : granules ? kGranules : shape_of(run).blocks;
      const std::size_t step = single     ? bytes_of(run)
                               : granules ? Storage::kGranule
                                          : shape_of(run).block_bytes;
      for (std::uint32_t i = 0; i < blocks; ++i) {
        if (!single && test_bit(bits, i)) continue;
        if (granules && !test_bit(heads, i)) continue;
        const std::size_t bytes = granules ? length_at(run, i) * step : step;
        visit(reinterpret_cast<void*>(run.base + i * step), bytes);
      }
    }
  }
}

template <class P>
Figures Core<P>::figures() const noexcept {
  Figures figures{0, 0, mapped_, dirty_bytes_, refills_, flushes_, slabs_, chunk_count_, refused_};
  for_each_block([&](void*, std::size_t bytes) noexcept {
    ++figures.live_blocks;
    figures.live_bytes += bytes;
  });
  return figures;
}

}  // namespace allod::tailored

#include "allod/tailored/any_size.hpp"

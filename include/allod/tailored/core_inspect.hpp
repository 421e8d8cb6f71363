// Questions about the blocks of composed heaps.
#pragma once

#include "allod/tailored/core.hpp"

namespace allod::tailored {

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

// Blocks without a size class: granules of a slab, runs of units, or mappings of their own.
#pragma once

#include "allod/tailored/core.hpp"

namespace allod::tailored {

// Such a slab has a "free" bit for each granule, and as many bits that mark the start of a block:
// one in use or, without merging, one that was cut at some time.

template <class P>
void* Core<P>::take_any(std::size_t size, std::size_t alignment, Owner* owner) noexcept {
  if (size > kMaxBlock || alignment > kMaxBlock) return nullptr;
  // Slabs begin at multiples of a unit, and granules at multiples of a granule.
  const bool in_slab = size <= kLargestInSlab && alignment <= Storage::kGranule;
  if (!in_slab) return take_run(size, alignment, owner);
  const std::size_t granules = (size + Storage::kGranule - 1) / Storage::kGranule;
  return take_granules(static_cast<std::uint32_t>(granules > 0 ? granules : 1), owner);
}

template <class P>
void* Core<P>::take_granules(std::uint32_t count, Owner* owner) noexcept {
  // Checks a bounded number of slabs. Those without a place go to the end of the list.
  constexpr int kLooks = 8;
  RunList& list = partial_[Sizes::kCount];
  Run* run = list.first();
  std::uint32_t at = kGranules;
  for (int look = 0; look < kLooks && run != nullptr; ++look) {
    at = find_granules(*run, count);
    if (at < kGranules) break;
    Run* const next = RunList::next(run);
    list.remove(run);
    list.push_back(run);
    run = next;
  }
  if (run == nullptr || at >= kGranules) {
    run = take_units(kAnyUnits, 1, kAnySlab, owner);
    if (run == nullptr) return nullptr;
    ++slabs_;
    run->free = kGranules;
    run->first_word = 0;
    assign_bits(bits_of(*run), 0, kGranules, true);
    assign_bits(bits_of(*run) + words_for(kGranules), 0, kGranules, false);
    list.push_front(run);
    at = 0;
  }
  assign_bits(bits_of(*run), at, count, false);
  assign_bits(bits_of(*run) + words_for(kGranules), at, 1, true);
  run->free -= count;
  if constexpr (!Storage::kMerges) {
    if (run->first_word < at + count) run->first_word = at + count;
  }
  if (run->free == 0) list.remove(run);
  return reinterpret_cast<void*>(run->base + at * Storage::kGranule);
}

// kGranules if there is no place.
template <class P>
std::uint32_t Core<P>::find_granules(Run& run, std::uint32_t count) noexcept {
  const Word* const free = bits_of(run);
  if (run.free < count) return kGranules;
  if constexpr (Storage::kMerges) return find_run(free, kGranules, count);
  const Word* const heads = free + words_for(kGranules);
  const std::uint32_t end = run.first_word;
  for (std::uint32_t at = next_set(heads, 0, end); at < end; at = next_set(heads, at + 1, end)) {
    if (test_bit(free, at) && next_set(heads, at + 1, end) - at == count) return at;
  }
  return kGranules - end >= count ? end : kGranules;
}

// The granules of the block in use that begins at `at`.
template <class P>
std::uint32_t Core<P>::length_at(const Run& run, std::uint32_t at) noexcept {
  const Word* const free = bits_of(run);
  const std::uint32_t next_free = next_set(free, at, kGranules);
  return next_set(free + words_for(kGranules), at + 1, next_free) - at;
}

template <class P>
void Core<P>::give_any(void* block) noexcept {
  const Content content = content_of(block);
  if (content == kHugeBlock) {
    Chunk* const chunk = chunk_of(block);
    huge_.remove(chunk);
    release(*chunk);
    return;
  }
  Run& run = *run_of(block);
  if (content == kRunBlock) return give_units(run);
  give_granules(run, block);
}

template <class P>
void Core<P>::give_granules(Run& run, const void* block) noexcept {
  const auto at = static_cast<std::uint32_t>((address_of(block) - run.base) / Storage::kGranule);
  const std::uint32_t count = length_at(run, at);
  const std::uint32_t free_before = run.free;
  assign_bits(bits_of(run), at, count, true);
  if constexpr (Storage::kMerges) assign_bits(bits_of(run) + words_for(kGranules), at, 1, false);
  run.free += count;
  gained(run, partial_[Sizes::kCount], free_before, kGranules);
}

template <class P>
void* Core<P>::take_run(std::size_t size, std::size_t alignment, Owner* owner) noexcept {
  const std::size_t units = (size + kUnit - 1) / kUnit;
  const std::size_t align = alignment > kUnit ? alignment / kUnit : 1;
  const std::size_t most = kOnePlace ? kMaxBlock : Pages::kChunkBytes / 2;
  if ((units + align) * kUnit > most) {
    return alignment <= kHugeOffset ? take_huge(size, owner) : nullptr;
  }
  // The only chunk begins at a multiple of the smallest slab.
  if (kOnePlace && alignment > kLeastSlab) return nullptr;
  Run* const run = take_units(static_cast<std::uint32_t>(units > 0 ? units : 1),
                              static_cast<std::uint32_t>(align), kRunBlock, owner);
  return run == nullptr ? nullptr : reinterpret_cast<void*>(run->base);
}

template <class P>
void* Core<P>::take_huge(std::size_t size, Owner* owner) noexcept {
  if constexpr (kOnePlace) return nullptr;
  if (!started_) is_watched_ = memcheck_watches();
  started_ = true;
  std::size_t bytes = align_up(size + kHugeOffset, kOnePlace ? 1 : Pages::kChunkBytes);
  void* const memory = pages_.take(bytes, &bytes);
  if (memory == nullptr) {
    ++refused_;
    return nullptr;
  }
  auto* const chunk = static_cast<Chunk*>(memory);
  chunk->owner = owner;
  chunk->memory = memory;
  chunk->bytes = bytes;
  chunk->contents()[0] = kHugeBlock;
  huge_.push_front(chunk);
  if constexpr (P::Checks::kChecked) known_chunks.add(*chunk);
  mapped_ += bytes;
  return reinterpret_cast<void*>(address_of(chunk) + kHugeOffset);
}

}  // namespace allod::tailored

// A chunk: memory of a page source, cut into units. Its first units hold the records of all, so
// that blocks have no header and free memory is never written.
#pragma once

#include "allod/base/base.hpp"

namespace allod::tailored {

// The first set bit of `words` in [from, end); `end` if there is none.
[[nodiscard]] inline std::uint32_t next_set(const Word* words, std::uint32_t from,
                                            std::uint32_t end) noexcept {
  for (std::uint32_t at = from; at < end; at = align_down(at, kWordBits) + kWordBits) {
    const Word rest = words[at / kWordBits] >> (at % kWordBits);
    if (rest == 0) continue;
    const std::uint32_t found = at + lowest_bit(rest);
    return found < end ? found : end;
  }
  return end;
}
[[nodiscard]] inline std::uint32_t next_clear(const Word* words, std::uint32_t from,
                                              std::uint32_t end) noexcept {
  for (std::uint32_t at = from; at < end; at = align_down(at, kWordBits) + kWordBits) {
    const Word rest = ~words[at / kWordBits] >> (at % kWordBits);
    if (rest == 0) continue;
    const std::uint32_t found = at + lowest_bit(rest);
    return found < end ? found : end;
  }
  return end;
}
// The first run of `count` set bits below `end`; `end` if there is none.
[[nodiscard]] inline std::uint32_t find_run(const Word* words, std::uint32_t end,
                                            std::uint32_t count) noexcept {
  for (std::uint32_t at = next_set(words, 0, end); at + count <= end;) {
    const std::uint32_t stop = next_clear(words, at, at + count);
    if (stop - at == count) return at;
    at = next_set(words, stop, end);
  }
  return end;
}
inline void assign_bits(Word* words, std::uint32_t from, std::uint32_t count, bool value) noexcept {
  for (std::uint32_t at = from; at < from + count;) {
    const std::uint32_t in_word = at % kWordBits;
    const std::uint32_t left = from + count - at;
    const std::uint32_t here = left < kWordBits - in_word ? left : kWordBits - in_word;
    const Word mask = low_bits(here) << in_word;
    Word& word = words[at / kWordBits];
    word = value ? word | mask : word & ~mask;
    at += here;
  }
}
[[nodiscard]] inline bool test_bit(const Word* words, std::uint32_t at) noexcept {
  return (words[at / kWordBits] & bit(at % kWordBits)) != 0;
}

// The content of a unit: the class of its slab, counted from 1, or one of these.
using Content = std::uint8_t;
inline constexpr Content kNothing = 0;
inline constexpr Content kAnySlab = 252;    // blocks in granules
inline constexpr Content kRunBlock = 253;   // a block that is a run of units
inline constexpr Content kHugeBlock = 254;  // a block that is a mapping of its own
inline constexpr Content kRecords = 255;

struct Chunk;

// The record of a unit. Members for a run of units are in the record of its first.
struct Run {
  ListLinks<Run> links;
  Chunk* chunk;
  Address base;
  std::uint32_t units;
  std::uint32_t free;  // blocks, or granules
  // No block is free in a word before this one. Without merging: the first granule never cut.
  std::uint32_t first_word;
  std::uint32_t first;     // of every unit: the first unit of its run
  std::uint32_t freed_ms;  // of every unit
};
using RunList = List<Run, &Run::links>;

// The functions of a heap of unknown type, which its chunks lead to.
struct Owner {
  const char* name = "";
  std::size_t chunk_bytes = 0;
  void* (*allocate)(Owner* owner, std::size_t size, std::size_t alignment) noexcept = nullptr;
  void (*release)(Owner* owner, void* block) noexcept = nullptr;
  std::size_t (*usable_size)(Owner* owner, const void* block) noexcept = nullptr;
};

// At the front of a chunk. Behind it follow for each unit its content, its record, a "free" bit, a
// "free and present" bit, and the bits of its blocks.
struct Chunk {
  ListLinks<Chunk> links;
  ListLinks<Chunk> known_links;  // among the chunks of all checked heaps
  Owner* owner;
  void* memory;  // as from the page source
  std::size_t bytes;
  std::uint32_t units;
  std::uint32_t free_units;
  std::uint32_t own_units;  // with these records
  Run* runs;
  Word* free;
  Word* dirty;
  Word* bits;

  [[nodiscard]] ALLOD_INLINE Content* contents() noexcept {
    return reinterpret_cast<Content*>(this + 1);
  }
  [[nodiscard]] bool is_empty() const noexcept { return free_units + own_units == units; }

  [[nodiscard]] static std::size_t record_bytes(std::size_t units, std::size_t words) noexcept {
    const std::size_t records = align_up(sizeof(Chunk) + units, kCacheLine) + units * sizeof(Run);
    return records +
           (2 * words_for(static_cast<std::uint32_t>(units)) + units * words) * sizeof(Word);
  }
  // From zeroed memory. `words`: of bits for the blocks of a unit.
  static Chunk* start(void* base, std::size_t bytes, std::size_t unit_bytes, std::size_t words,
                      Owner* owner) noexcept {
    auto* const chunk = static_cast<Chunk*>(base);
    const auto units = static_cast<std::uint32_t>(bytes / unit_bytes);
    const std::size_t own = align_up(record_bytes(units, words), unit_bytes);
    chunk->owner = owner;
    chunk->bytes = bytes;
    chunk->units = units;
    chunk->own_units = static_cast<std::uint32_t>(own / unit_bytes);
    chunk->free_units = units - chunk->own_units;
    chunk->runs = reinterpret_cast<Run*>(align_up(address_of(chunk + 1) + units, kCacheLine));
    chunk->free = reinterpret_cast<Word*>(chunk->runs + units);
    chunk->dirty = chunk->free + words_for(units);
    chunk->bits = chunk->dirty + words_for(units);
    for (std::uint32_t u = 0; u < chunk->own_units; ++u) chunk->contents()[u] = kRecords;
    assign_bits(chunk->free, chunk->own_units, chunk->free_units, true);
    return chunk;
  }
};
using ChunkList = List<Chunk, &Chunk::links>;

}  // namespace allod::tailored

// The engine of a tailored heap behind its magazines: chunks, cut into slabs, whose blocks are
// bits.
#pragma once

#include <cstring>

#include "allod/tailored/checks.hpp"

namespace allod::tailored {

// Figures and counters.
struct Figures {
  std::size_t live_blocks = 0;   // in use, or in other threads' magazines
  std::size_t live_bytes = 0;    // of these, rounded
  std::size_t mapped = 0;        // bytes from the page source
  std::size_t free_present = 0;  // bytes of free units that are present
  std::uint64_t refills = 0;     // magazines filled from slabs, or single blocks
  std::uint64_t flushes = 0;
  std::uint64_t slabs = 0;    // made
  std::uint64_t chunks = 0;   // from the page source
  std::uint64_t refused = 0;  // requests without memory
};

// Used by one thread at a time.
template <class P>
class Core {
 public:
  using Sizes = ClassTable<typename P::Sizes>;
  using Pages = typename P::Pages;
  using Storage = typename P::Storage;
  using Recycling = typename P::Recycling;
  static constexpr std::size_t kUnit = Sizes::kUnitBytes;
  static constexpr unsigned kUnitShift = highest_bit(kUnit);
  static constexpr bool kOnePlace = Pages::kOnePlace;

  template <class... A>
  constexpr explicit Core(A&&... pages) noexcept : pages_{static_cast<A&&>(pages)...} {}
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] Pages& pages() noexcept { return pages_; }
  // Whether tools that watch memory are told about each block.
  [[nodiscard]] bool announces() const noexcept { return kAddressSanitizer || is_watched_; }

  // --- blocks of a class --------------------------------------------------------------------

  // Takes up to `wanted` free blocks of one slab, lowest addresses first. Writes them to out[0 ..
  // result), the lowest one last. 0 without memory.
  [[nodiscard]] std::uint32_t take(ClassIndex c, std::uint32_t wanted, void** out,
                                   Owner* owner) noexcept;
  // A block of a slab, chosen by a random word. Null without memory.
  [[nodiscard]] void* take_at_random(ClassIndex c, std::uint64_t random, Owner* owner) noexcept;
  // Frees blocks in use, of any classes.
  void give(void* const* blocks, std::uint32_t count) noexcept;

  // --- any size ---------------------------------------------------------------------------------

  // Null without memory. `alignment`: a power of two.
  [[nodiscard]] void* take_any(std::size_t size, std::size_t alignment, Owner* owner) noexcept;
  void give_any(void* block) noexcept;
  // Memory for the heap's own records until release_all(), or null.
  [[nodiscard]] void* take_records(std::size_t bytes, Owner* owner) noexcept {
    const std::size_t units = (bytes + kUnit - 1) / kUnit;
    Run* const run = take_units(static_cast<std::uint32_t>(units), 1, kRecords, owner);
    if (run == nullptr) return nullptr;
    if (announces()) announce_plain(reinterpret_cast<void*>(run->base), bytes_of(*run));
    return reinterpret_cast<void*>(run->base);
  }

  // --- questions -----------------------------------------------------------------------

  [[nodiscard]] ALLOD_INLINE Chunk* chunk_of(const void* block) const noexcept {
    if constexpr (kOnePlace) {
      return only_;
    } else {
      return reinterpret_cast<Chunk*>(align_down(address_of(block), Pages::kChunkBytes));
    }
  }
  [[nodiscard]] static ALLOD_INLINE std::uint32_t unit_of(const Chunk* chunk,
                                                          const void* block) noexcept {
    return static_cast<std::uint32_t>((address_of(block) - address_of(chunk)) >> kUnitShift);
  }
  [[nodiscard]] ALLOD_INLINE Content content_of(const void* block) const noexcept {
    Chunk* const chunk = chunk_of(block);
    return chunk->contents()[unit_of(chunk, block)];
  }
  // The usable bytes of a block in use.
  [[nodiscard]] std::size_t usable_size(const void* block) const noexcept;
  // The fault of a free of `address`, which may be anything.
  [[nodiscard]] Fault examine(const void* address) const noexcept;
  [[nodiscard]] bool contains(const void* address) const noexcept {
    return find_chunk(address) != nullptr;
  }
  // Calls visit(block, bytes) for every block whose bits say that it is in use.
  template <class Visit>
  void for_each_block(Visit&& visit) const noexcept;
  [[nodiscard]] Figures figures() const noexcept;

  // --- recycling -----------------------------------------------------------------------

  // Purges units that have been free for `delay_ms`, until at most `keep` bytes of free units are
  // present, and frees chunks without blocks. Returns the bytes.
  std::size_t recycle(std::uint32_t delay_ms, std::size_t keep) noexcept;
  // Called by slow paths.
  void look_around() noexcept {
    if constexpr (Recycling::kAutomatic && Recycling::kDelayMs > 0) settle();
  }
  // Frees all memory, blocks in use included.
  void release_all() noexcept;

 private:
  // Units of a slab for blocks without a class. Chunks, and a single place, may be small.
  static constexpr std::uint32_t kAnyUnits = [] {
    const std::size_t quarter = Pages::kChunkBytes / kUnit / 4;
    const std::size_t units = kOnePlace ? 4 : quarter < 1 ? 1 : quarter > 16 ? 16 : quarter;
    return static_cast<std::uint32_t>(units);
  }();
  static constexpr auto kGranules =
      static_cast<std::uint32_t>(kAnyUnits * kUnit / Storage::kGranule);
  static constexpr std::size_t kLargestInSlab = kAnyUnits * kUnit / 8;
  static constexpr std::uint32_t kAnyWords =
      Storage::kAnySize ? (2 * words_for(kGranules) + kAnyUnits - 1) / kAnyUnits : 1;
  static constexpr std::uint32_t kWords =
      Sizes::kWordsPerUnit > kAnyWords ? Sizes::kWordsPerUnit : kAnyWords;
  static constexpr std::size_t kHugeOffset = 4096;

  [[nodiscard]] Run* run_of(const void* block) const noexcept {
    Chunk* const chunk = chunk_of(block);
    return chunk->runs + chunk->runs[unit_of(chunk, block)].first;
  }
  [[nodiscard]] static Word* bits_of(const Run& run) noexcept {
    return run.chunk->bits + std::size_t{run.first} * kWords;
  }
  [[nodiscard]] static Content content_of(const Run& run) noexcept {
    return run.chunk->contents()[run.first];
  }
  [[nodiscard]] static std::size_t bytes_of(const Run& run) noexcept { return run.units * kUnit; }
  [[nodiscard]] static const Shape& shape_of(const Run& run) noexcept {
    return Sizes::kShapes[content_of(run) - 1U];
  }

  // chunks
  [[nodiscard]] Chunk* new_chunk(Owner* owner) noexcept;
  [[nodiscard]] Run* take_units(std::uint32_t count, std::uint32_t alignment, Content content,
                                Owner* owner) noexcept;
  [[nodiscard]] Run* cut(Chunk& chunk, std::uint32_t count, std::uint32_t alignment,
                         Content content) noexcept;
  void give_units(Run& run) noexcept;
  void release(Chunk& chunk) noexcept;
  [[nodiscard]] Chunk* find_chunk(const void* address) const noexcept;
  void settle() noexcept;
  void purge(Chunk& chunk, std::uint32_t delay_ms, std::uint32_t now) noexcept;
  [[nodiscard]] std::uint32_t now_ms() noexcept {
    return Recycling::kDelayMs > 0 ? static_cast<std::uint32_t>(pages_.now_ms()) : 0;
  }

  // slabs
  [[nodiscard]] Run* new_slab(ClassIndex c, Owner* owner) noexcept;
  void gained(Run& run, RunList& list, std::uint32_t free_before, std::uint32_t capacity) noexcept;

  // any size
  [[nodiscard]] void* take_granules(std::uint32_t count, Owner* owner) noexcept;
  [[nodiscard]] static std::uint32_t find_granules(Run& run, std::uint32_t count) noexcept;
  [[nodiscard]] static std::uint32_t length_at(const Run& run, std::uint32_t at) noexcept;
  void give_granules(Run& run, const void* block) noexcept;
  [[nodiscard]] void* take_run(std::size_t size, std::size_t alignment, Owner* owner) noexcept;
  [[nodiscard]] void* take_huge(std::size_t size, Owner* owner) noexcept;

  Pages pages_;
  ChunkList chunks_;  // those with free units first
  ChunkList huge_;
  Chunk* only_ = nullptr;
  RunList partial_[Sizes::kCount + 1] = {};  // slabs with free blocks; the last: for any size
  std::size_t dirty_bytes_ = 0;
  std::size_t mapped_ = 0;
  std::uint32_t oldest_ms_ = 0;  // no dirty unit was freed earlier
  std::uint32_t empty_chunks_ = 0;
  bool refuses_ = false;  // the page source does not purge
  bool is_watched_ = false;
  bool started_ = false;
  std::uint64_t refills_ = 0;
  std::uint64_t flushes_ = 0;
  std::uint64_t slabs_ = 0;
  std::uint64_t chunk_count_ = 0;
  std::uint64_t refused_ = 0;
};

// --- blocks of a class -----------------------------------------------------------------

template <class P>
std::uint32_t Core<P>::take(ClassIndex c, std::uint32_t wanted, void** out, Owner* owner) noexcept {
  Run* run = partial_[c].first();
  if (run == nullptr) run = new_slab(c, owner);
  if (run == nullptr) return 0;
  ++refills_;
  const std::uint32_t count = wanted < run->free ? wanted : run->free;
  const std::size_t step = Sizes::kShapes[c].block_bytes;
  Word* const bits = bits_of(*run);
  std::uint32_t word = run->first_word;
  void** to = out + count;
  for (;; ++word) {
    Word rest = bits[word];
    if (rest == 0) continue;
    const Address start = run->base + std::size_t{word} * kWordBits * step;
    do {
      *--to = reinterpret_cast<void*>(start + lowest_bit(rest) * step);
      rest &= rest - 1;
    } while (rest != 0 && to != out);
    bits[word] = rest;
    if (to == out) break;
  }
  run->first_word = word;
  run->free -= count;
  if (run->free == 0) partial_[c].remove(run);
  return count;
}

template <class P>
void* Core<P>::take_at_random(ClassIndex c, std::uint64_t random, Owner* owner) noexcept {
  Run* run = partial_[c].first();
  if (run == nullptr) run = new_slab(c, owner);
  if (run == nullptr) return nullptr;
  ++refills_;
  const Shape& shape = Sizes::kShapes[c];
  Word* const bits = bits_of(*run);
  // Behind the last block, bits may be set from earlier slabs.
  const auto free_in = [&](std::uint32_t word) noexcept {
    return bits[word] & low_bits(shape.blocks - word * kWordBits);
  };
  const std::uint32_t first = run->first_word;
  const std::uint32_t end = words_for(shape.blocks);
  std::uint32_t word = first + static_cast<std::uint32_t>((random >> 32) * (end - first) >> 32);
  while (free_in(word) == 0) word = word + 1 == end ? first : word + 1;
  const unsigned chosen = bit_from(free_in(word), random % kWordBits);
  bits[word] &= ~bit(chosen);
  if (--run->free == 0) partial_[c].remove(run);
  const std::size_t index = std::size_t{word} * kWordBits + chosen;
  return reinterpret_cast<void*>(run->base + index * shape.block_bytes);
}

template <class P>
void Core<P>::give(void* const* blocks, std::uint32_t count) noexcept {
  ++flushes_;
  for (std::uint32_t done = 0; done < count;) {
    Run& run = *run_of(blocks[done]);
    const Shape& shape = shape_of(run);
    Word* const bits = bits_of(run);
    const std::uint32_t free_before = run.free;
    std::uint32_t least = run.first_word;
    // Blocks that were freed together tend to lie together.
    for (; done < count; ++done) {
      const std::uint64_t offset = address_of(blocks[done]) - run.base;
      if (offset >= bytes_of(run)) break;
      const auto index = static_cast<std::uint32_t>(shape.divider.divide(offset).quotient);
      const std::uint32_t word = index / kWordBits;
      bits[word] |= bit(index % kWordBits);
      least = word < least ? word : least;
      ++run.free;
    }
    run.first_word = least;
    gained(run, partial_[content_of(run) - 1U], free_before, shape.blocks);
  }
}

template <class P>
Run* Core<P>::new_slab(ClassIndex c, Owner* owner) noexcept {
  const Shape& shape = Sizes::kShapes[c];
  Run* const run = take_units(shape.units, 1, static_cast<Content>(c + 1), owner);
  if (run == nullptr) return nullptr;
  ++slabs_;
  run->free = shape.blocks;
  run->first_word = 0;
  assign_bits(bits_of(*run), 0, shape.blocks, true);
  if constexpr (P::Checks::kHardened) {
    if (!announces()) std::memset(reinterpret_cast<void*>(run->base), 0, bytes_of(*run));
  }
  partial_[c].push_front(run);
  return run;
}

// A full slab can be used again. A mostly free one goes to the back until it is empty. An empty one
// is freed.
template <class P>
void Core<P>::gained(Run& run, RunList& list, std::uint32_t free_before,
                     std::uint32_t capacity) noexcept {
  if (free_before == 0) list.push_front(&run);
  const std::uint32_t half = capacity / 2;
  if (run.free == capacity) {
    list.remove(&run);
    give_units(run);
  } else if (free_before <= half && run.free > half) {
    list.remove(&run);
    list.push_back(&run);
  }
}

// --- chunks ----------------------------------------------------------------------------

template <class P>
Chunk* Core<P>::new_chunk(Owner* owner) noexcept {
  if (!started_) is_watched_ = memcheck_watches();
  started_ = true;
  if (kOnePlace && only_ != nullptr) return nullptr;
  std::size_t bytes = Pages::kChunkBytes;
  void* const memory = pages_.take(bytes, &bytes);
  if (memory == nullptr) return nullptr;
  Address base = address_of(memory);
  Address end = base + bytes;
  if constexpr (kOnePlace) {
    base = align_up(base, kLeastSlab);
    end = base > end ? base : base + align_down(end - base, kUnit);
    const std::size_t records = Chunk::record_bytes((end - base) / kUnit, kWords);
    if (records + kUnit > end - base) return nullptr;
    std::memset(reinterpret_cast<void*>(base), 0, records);
  }
  Chunk* const chunk =
      Chunk::start(reinterpret_cast<void*>(base), end - base, kUnit, kWords, owner);
  chunk->memory = memory;
  chunks_.push_front(chunk);
  if constexpr (kOnePlace) only_ = chunk;
  if constexpr (P::Checks::kChecked) known_chunks.add(*chunk);
  mapped_ += chunk->bytes;
  ++chunk_count_;
  ++empty_chunks_;
  return chunk;
}

template <class P>
Run* Core<P>::take_units(std::uint32_t count, std::uint32_t alignment, Content content,
                         Owner* owner) noexcept {
  for (Chunk* chunk = chunks_.first(); chunk != nullptr && chunk->free_units > 0;
       chunk = ChunkList::next(chunk)) {
    if (Run* const run = cut(*chunk, count, alignment, content)) return run;
  }
  Chunk* const chunk = new_chunk(owner);
  Run* const run = chunk == nullptr ? nullptr : cut(*chunk, count, alignment, content);
  if (run == nullptr) ++refused_;
  return run;
}

// Present units come first.
template <class P>
Run* Core<P>::cut(Chunk& chunk, std::uint32_t count, std::uint32_t alignment,
                  Content content) noexcept {
  if (chunk.free_units < count) return nullptr;
  const std::uint32_t wanted = count + alignment - 1;
  std::uint32_t first = find_run(chunk.dirty, chunk.units, wanted);
  if (first == chunk.units) first = find_run(chunk.free, chunk.units, wanted);
  if (first == chunk.units) return nullptr;
  first = align_up(first, alignment);

  if (chunk.is_empty()) --empty_chunks_;
  Run& run = chunk.runs[first];
  run = {{}, &chunk, address_of(&chunk) + first * kUnit, count, 0, 0, first, 0};
  for (std::uint32_t u = first; u < first + count; ++u) {
    chunk.contents()[u] = content;
    chunk.runs[u].first = first;
    if (test_bit(chunk.dirty, u)) dirty_bytes_ -= kUnit;
  }
  assign_bits(chunk.free, first, count, false);
  assign_bits(chunk.dirty, first, count, false);
  chunk.free_units -= count;
  if (chunk.free_units == 0) {
    chunks_.remove(&chunk);
    chunks_.push_back(&chunk);
  }
  if (announces()) announce_no_access(reinterpret_cast<void*>(run.base), bytes_of(run));
  return &run;
}

template <class P>
void Core<P>::give_units(Run& run) noexcept {
  Chunk& chunk = *run.chunk;
  const std::uint32_t first = run.first;
  const std::uint32_t count = run.units;
  const std::uint32_t now = now_ms();
  if (dirty_bytes_ == 0) oldest_ms_ = now;
  for (std::uint32_t u = first; u < first + count; ++u) {
    chunk.contents()[u] = kNothing;
    chunk.runs[u].freed_ms = now;
  }
  assign_bits(chunk.free, first, count, true);
  assign_bits(chunk.dirty, first, count, true);
  dirty_bytes_ += count * kUnit;
  if (chunk.free_units == 0) {
    chunks_.remove(&chunk);
    chunks_.push_front(&chunk);
  }
  chunk.free_units += count;
  if (chunk.is_empty()) ++empty_chunks_;
  settle();
}

template <class P>
void Core<P>::release(Chunk& chunk) noexcept {
  void* const memory = chunk.memory;
  const std::size_t bytes = chunk.bytes;
  if constexpr (P::Checks::kChecked) known_chunks.remove(chunk);
  if (only_ == &chunk) only_ = nullptr;
  mapped_ -= bytes;
  if (announces()) announce_plain(&chunk, bytes);
  pages_.give(memory, bytes);
}

template <class P>
void Core<P>::release_all() noexcept {
  while (Chunk* const chunk = chunks_.pop_front()) release(*chunk);
  while (Chunk* const chunk = huge_.pop_front()) release(*chunk);
  for (RunList& list : partial_) list = {};
  dirty_bytes_ = 0;
  empty_chunks_ = 0;
}

template <class P>
Chunk* Core<P>::find_chunk(const void* address) const noexcept {
  for (const ChunkList* list : {&chunks_, &huge_}) {
    for (Chunk* chunk = list->first(); chunk != nullptr; chunk = ChunkList::next(chunk)) {
      if (address_of(address) - address_of(chunk) < chunk->bytes) return chunk;
    }
  }
  return nullptr;
}

}  // namespace allod::tailored

#include "allod/tailored/core_inspect.hpp"
#include "allod/tailored/core_recycle.hpp"

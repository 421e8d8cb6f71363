// What stands behind the magazines of a tailored heap: chunks, cut into slabs, whose blocks are
// bits.
#pragma once

#include <cstring>

#include "allod/tailored/checks.hpp"

namespace allod::tailored {

// How things stand, and what happened so far.
struct Figures {
  std::size_t live_blocks = 0;   // in use; those in other threads' magazines count, too
  std::size_t live_bytes = 0;    // of them, as rounded
  std::size_t mapped = 0;        // bytes had from the page source
  std::size_t free_present = 0;  // bytes of free units whose memory is present
  std::uint64_t refills = 0;     // magazines filled from slabs, or single blocks
  std::uint64_t flushes = 0;
  std::uint64_t slabs = 0;    // made
  std::uint64_t chunks = 0;   // had from the page source
  std::uint64_t refused = 0;  // requests for which there was no memory
};

// What is wrong with an address that is to be freed.
enum class Fault : std::uint8_t { none, foreign, not_a_block, freed_twice };

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
  // Are tools that watch memory told about each block?
  [[nodiscard]] bool announces() const noexcept { return kAddressSanitizer || is_watched_; }

  // --- blocks of a class --------------------------------------------------------------------

  // Takes up to `wanted` free blocks from one slab, lowest addresses first, and writes them to
  // out[0 .. result), the lowest one last. 0 when there is no memory.
  [[nodiscard]] std::uint32_t take(ClassIndex c, std::uint32_t wanted, void** out,
                                   Owner* owner) noexcept;
  // One block of a slab, chosen by a random word; null when there is no memory.
  [[nodiscard]] void* take_at_random(ClassIndex c, std::uint64_t random, Owner* owner) noexcept;
  // Takes back blocks of any classes, which must be in use.
  void give(void* const* blocks, std::uint32_t count) noexcept;

  // --- any size ---------------------------------------------------------------------------------

  // Null when there is no memory. `alignment`: a power of two.
  [[nodiscard]] void* take_any(std::size_t size, std::size_t alignment, Owner* owner) noexcept;
  void give_any(void* block) noexcept;
  // Memory for the heap's own records, until release_all(); null when there is none.
  [[nodiscard]] void* take_records(std::size_t bytes, Owner* owner) noexcept {
    const std::size_t units = (bytes + kUnit - 1) / kUnit;
    Run* const run = take_units(static_cast<std::uint32_t>(units), 1, kRecords, owner);
    if (run == nullptr) return nullptr;
    if (announces()) announce_plain(reinterpret_cast<void*>(run->base), bytes_of(*run));
    return reinterpret_cast<void*>(run->base);
  }

  // --- questions
  // ------------------------------------------------------------------------------------

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
  // Of a block that is in use.
  [[nodiscard]] std::size_t usable_size(const void* block) const noexcept;
  // What is wrong with freeing `address`? It may be anything.
  [[nodiscard]] Fault examine(const void* address) const noexcept;
  [[nodiscard]] bool contains(const void* address) const noexcept {
    return find_chunk(address) != nullptr;
  }
  // Calls visit(block, bytes) for every block that the bits say is in use.
  template <class Visit>
  void for_each_block(Visit&& visit) const noexcept;
  [[nodiscard]] Figures figures() const noexcept;

}  // namespace allod::tailored

#include "allod/tailored/core_recycle.hpp"

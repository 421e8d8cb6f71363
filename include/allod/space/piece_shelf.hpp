// Pieces of metadata in the memory of one node: what is left of the newest chunk, and freed ones.
#pragma once

#include <cstddef>
#include <new>

#include "allod/base/base.hpp"

namespace allod::space {

// A free piece of metadata, in a list of pieces of one size.
struct FreePiece {
  FreePiece* next;
};

// Sizes are in granules. Pieces of up to kLargest granules are reused by exact size, then by
// splitting larger ones; larger ones in pieces of kLargest. Not thread-safe. Constant-initialised.
class PieceShelf {
 public:
  static constexpr std::size_t kGranule = 64;
  static constexpr std::size_t kLargest = 512;  // granules of the largest pieces in a list

  constexpr PieceShelf() noexcept = default;
  PieceShelf(const PieceShelf&) = delete;
  PieceShelf& operator=(const PieceShelf&) = delete;

  [[nodiscard]] static constexpr std::size_t granules_for(std::size_t bytes) noexcept {
    const std::size_t granules = (bytes + kGranule - 1) / kGranule;
    return granules <= kFine ? granules : align_up(granules, kFine);
  }

  // A freed piece of exactly that size, with unknown contents; or null.
  [[nodiscard]] ALLOD_INLINE void* reuse(std::size_t granules) noexcept {
    if (granules > kLargest || free_[list_of(granules)] == nullptr) return nullptr;
    return pop(list_of(granules));
  }
  // A piece of the newest chunk, which is zero and untouched; or null.
  [[nodiscard]] ALLOD_INLINE void* cut(std::size_t granules) noexcept {
    const std::size_t bytes = granules * kGranule;
    if (bytes > available_) return nullptr;
    unsigned char* const piece = next_;
    next_ += bytes;
    available_ -= bytes;
    return piece;
  }
  // A part of a larger freed piece, with unknown contents; or null.
  [[nodiscard]] void* split(std::size_t granules) noexcept {
    if (granules > kLargest) return nullptr;
    for (std::size_t list = list_of(granules) + 1; list < kLists; ++list) {
      if (free_[list] == nullptr) continue;
      auto* const piece = static_cast<unsigned char*>(pop(list));
      put(piece + granules * kGranule, granules_in(list) - granules);
      return piece;
    }
    return nullptr;
  }
  // Frees a piece. The same for large ones in pieces of kLargest.
  ALLOD_INLINE void put_whole(void* piece, std::size_t granules) noexcept {
    if (__builtin_expect(granules > kFine, 0)) return put(piece, granules);
    free_[granules] = new (piece) FreePiece{free_[granules]};
  }
  // Frees any number of granules, as the fewest pieces.
  ALLOD_HOT void put(void* memory, std::size_t granules) noexcept {
    auto* piece = static_cast<unsigned char*>(memory);
    while (granules > 0) {
      const std::size_t whole = granules <= kFine ? granules : align_down(granules, kFine);
      const std::size_t part = whole < kLargest ? whole : kLargest;
      free_[list_of(part)] = new (piece) FreePiece{free_[list_of(part)]};
      piece += part * kGranule;
      granules -= part;
    }
  }
  // Zeroed memory becomes the newest chunk. The rest of the last one was too small for a request.
  ALLOD_HOT void take_over(void* memory, std::size_t bytes) noexcept {
    if (available_ >= kGranule) put(next_, available_ / kGranule);
    next_ = static_cast<unsigned char*>(memory);
    available_ = bytes;
  }
  [[nodiscard]] std::size_t available() const noexcept { return available_; }

  // Stable pieces have lists of their own: see Metadata::allocate_stable(). Null if there is none.
  [[nodiscard]] ALLOD_INLINE void* reuse_stable(std::size_t granules) noexcept {
    FreePiece*& list = stable_[list_of(granules)];
    FreePiece* const piece = list;
    if (piece != nullptr) list = piece->next;
    return piece;
  }
  ALLOD_INLINE void put_stable(void* piece, std::size_t granules) noexcept {
    FreePiece*& list = stable_[list_of(granules)];
    list = new (piece) FreePiece{list};
  }

 private:
  static constexpr std::size_t kFine = 64;  // granules up to which each size has a list

  // The list of pieces of that size; above kFine, a multiple of it.
  static constexpr std::size_t list_of(std::size_t granules) noexcept {
    return granules <= kFine ? granules : kFine - 1 + granules / kFine;
  }
  static constexpr std::size_t granules_in(std::size_t list) noexcept {
    return list <= kFine ? list : (list - kFine + 1) * kFine;
  }
  static constexpr std::size_t kLists = kFine + kLargest / kFine;

  void* pop(std::size_t list) noexcept {
    FreePiece* const piece = free_[list];
    free_[list] = piece->next;
    return piece;
  }

  unsigned char* next_ = nullptr;
  std::size_t available_ = 0;
  FreePiece* free_[kLists] = {};
  FreePiece* stable_[kLists] = {};
};

}  // namespace allod::space

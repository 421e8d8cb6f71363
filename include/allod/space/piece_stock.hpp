// Pieces of metadata at the hand of one owner.
#pragma once

#include "allod/space/metadata.hpp"

namespace allod::space {

// All metadata has one lock. An owner that needs many small pieces takes several at a time, and
// keeps some that it no longer needs. Pieces are those of Metadata, whoever took them.
// Not thread-safe; the owner's thread may interrupt itself only outside of all functions.
class PieceStock {
 public:
  constexpr PieceStock() noexcept = default;

  // A piece with unknown contents, aligned to 64 bytes, or null.
  template <class Metadata, class P>
  [[nodiscard]] ALLOD_HOT void* take(Metadata& metadata, P& platform, std::size_t bytes) noexcept {
    if (bytes > kLargest) return metadata.allocate_some(platform, bytes, 1);
    FreePiece*& list = lists_[list_of(bytes)];
    if (list == nullptr) {
      const std::size_t size = granules_of(bytes) * kGranule;
      const std::size_t count = kTakenBytes / size < kMostTaken ? kTakenBytes / size : kMostTaken;
      list = metadata.allocate_some(platform, bytes, count);
      for (FreePiece* piece = list; piece != nullptr; piece = piece->next) held_bytes_ += size;
      if (list == nullptr) return nullptr;
    }
    FreePiece* const piece = list;
    list = piece->next;
    held_bytes_ -= granules_of(bytes) * kGranule;
    return piece;
  }
  // `bytes` as passed to take(), or to Metadata::allocate().
  template <class Metadata>
  ALLOD_HOT void put(Metadata& metadata, void* piece, std::size_t bytes) noexcept {
    if (bytes > kLargest) return metadata.free(piece, bytes);
    FreePiece*& list = lists_[list_of(bytes)];
    list = new (piece) FreePiece{list};
    held_bytes_ += granules_of(bytes) * kGranule;
    if (held_bytes_ > kMostHeld) give_back(metadata, list, granules_of(bytes) * kGranule);
  }
  // Gives all pieces back.
  template <class Metadata>
  void clear(Metadata& metadata) noexcept {
    if (held_bytes_ == 0) return;
    for (std::size_t i = 0; i < kLists; ++i) give_back(metadata, lists_[i], (i + 1) * kGranule);
  }
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }

 private:
  static constexpr std::size_t kGranule = 64;
  static constexpr std::size_t kLargest = 2048;
  static constexpr std::size_t kLists = kLargest / kGranule;
  // Taken with one hold of the lock.
  static constexpr std::size_t kTakenBytes = kLargest;
  static constexpr std::size_t kMostTaken = 8;
  static constexpr std::size_t kMostHeld = std::size_t{8} << 10;

  static constexpr std::size_t granules_of(std::size_t bytes) noexcept {
    return (bytes + kGranule - 1) / kGranule;
  }
  static constexpr std::size_t list_of(std::size_t bytes) noexcept {
    return granules_of(bytes) - 1;
  }

  template <class Metadata>
  void give_back(Metadata& metadata, FreePiece*& list, std::size_t bytes) noexcept {
    if (list == nullptr) return;
    held_bytes_ -= bytes * metadata.free_some(list, bytes);
    list = nullptr;
  }

  FreePiece* lists_[kLists] = {};
  std::size_t held_bytes_ = 0;
};

}  // namespace allod::space

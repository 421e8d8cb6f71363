// Memory for the allocator's own bookkeeping, separate from user blocks.
#pragma once

#include <algorithm>
#include <new>

#include "allod/os/platform.hpp"

namespace allod::space {

// A free piece of metadata, in a list of pieces of one size.
struct FreePiece {
  FreePiece* next;
};

// Pieces are multiples of 64 bytes up to 4 KiB, and of 4 KiB above, cut from mapped chunks. Pieces
// of up to 32 KiB are reused by exact size, then by splitting larger ones. Larger pieces are reused
// in pieces of 32 KiB. Chunks are never unmapped. Each is half as large as all before it, so that
// they, and their mappings, are few. A freed piece can be reused for its size and below without the
// system. Thread-safe.
template <os::Platform P, bool kCheckRanks>
class Metadata {
 public:
  constexpr Metadata() noexcept = default;

  // Zeroed memory aligned to 64 bytes, or null.
  [[nodiscard]] ALLOD_HOT void* allocate(P& platform, std::size_t bytes) noexcept {
    const std::size_t granules = granules_for(bytes);
    LockGuard guard{lock_};
    void* const piece = take(platform, granules);
    if (piece != nullptr) used_bytes_ += granules * kGranule;
    return piece;
  }
  // `bytes` as passed to allocate().
  ALLOD_HOT void free(void* piece, std::size_t bytes) noexcept {
    const std::size_t granules = granules_for(bytes);
    LockGuard guard{lock_};
    used_bytes_ -= granules * kGranule;
    put(piece, granules);
  }

  // Up to `count` pieces of `bytes`, at least 1, with one hold of the lock: a list, or null. Their
  // contents are unknown. Each may be freed by itself.
  [[nodiscard]] ALLOD_HOT FreePiece* allocate_some(P& platform, std::size_t bytes,
                                                   std::size_t count) noexcept {
    const std::size_t granules = granules_for(bytes);
    FreePiece* list = nullptr;
    LockGuard guard{lock_};
    for (; count > 0; --count) {
      void* const piece = take(platform, granules, Zero::no);
      if (piece == nullptr) break;
      used_bytes_ += granules * kGranule;
      list = new (piece) FreePiece{list};
    }
    return list;
  }
  // Frees a list of pieces of `bytes`, and returns their number.
  ALLOD_HOT std::size_t free_some(FreePiece* list, std::size_t bytes) noexcept {
    const std::size_t granules = granules_for(bytes);
    std::size_t count = 0;
    LockGuard guard{lock_};
    while (list != nullptr) {
      FreePiece* const next = list->next;
      put(list, granules);
      list = next;
      ++count;
    }
    used_bytes_ -= count * granules * kGranule;
    return count;
  }

  // allocate() and free() for stable pieces, which are reused only for stable pieces of the same
  // size and keep their content. So a late thread may still read a freed one. A new piece is zero.
  [[nodiscard]] ALLOD_HOT void* allocate_stable(P& platform, std::size_t bytes) noexcept {
    const std::size_t granules = granules_for(bytes);
    always_check(granules <= kLargest, "a stable piece of metadata is too large");
    LockGuard guard{lock_};
    Free*& list = stable_[list_of(granules)];
    void* piece = list;
    if (piece != nullptr) {
      list = list->next;
    } else {
      piece = take(platform, granules);
    }
    if (piece != nullptr) used_bytes_ += granules * kGranule;
    return piece;
  }
  // The first bytes of the piece become a link; all others keep their values.
  void free_stable(void* piece, std::size_t bytes) noexcept {
    const std::size_t granules = granules_for(bytes);
    LockGuard guard{lock_};
    used_bytes_ -= granules * kGranule;
    Free*& list = stable_[list_of(granules)];
    list = new (piece) Free{list};
  }

  // Takes over zeroed memory for good, when the system refuses memory.
  void donate(void* memory, std::size_t bytes) noexcept {
    LockGuard guard{lock_};
    take_over(memory, bytes);
  }

  // Mapped bytes, and those in use.
  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return mapped_bytes_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_bytes_; }

  // Bytes left of the newest chunk: they need no system call, whatever was freed.
  [[nodiscard]] std::size_t spare_bytes() noexcept {
    LockGuard guard{lock_};
    return available_;
  }

  // Whether a piece may be at this address. May miss chunks that other threads are adding, and some
  // of several terabytes or of memory donated in many places. Thread-safe.
  [[nodiscard]] bool holds(Address address) const noexcept {
    for (const Range& range : ranges_) {
      // See note_range() for the order.
      const std::size_t bytes = __atomic_load_n(&range.bytes, __ATOMIC_ACQUIRE);
      if (bytes == 0) break;
      if (address - __atomic_load_n(&range.from, __ATOMIC_RELAXED) < bytes) return true;
    }
    return false;
  }

  using Lock = RankedLock<P, kCheckRanks>;
  [[nodiscard]] Lock& lock() noexcept { return lock_; }

 private:
  static constexpr std::size_t kGranule = 64;
  static constexpr std::size_t kFine = 64;      // granules up to which each size has a list
  static constexpr std::size_t kLargest = 512;  // granules of the largest pieces in a list
  static constexpr std::size_t kChunkBytes = 256 * 1024;
  static constexpr std::size_t kChunkShare = 2;  // of all before it

  using Free = FreePiece;
  enum class Zero : bool { no, yes };

  static constexpr std::size_t granules_for(std::size_t bytes) noexcept {
    const std::size_t granules = (bytes + kGranule - 1) / kGranule;
    return granules <= kFine ? granules : align_up(granules, kFine);
  }
  // The list of pieces of that size; above kFine, a multiple of it.
  static constexpr std::size_t list_of(std::size_t granules) noexcept {
    return granules <= kFine ? granules : kFine - 1 + granules / kFine;
  }
  static constexpr std::size_t granules_in(std::size_t list) noexcept {
    return list <= kFine ? list : (list - kFine + 1) * kFine;
  }
  static constexpr std::size_t kLists = list_of(kLargest) + 1;
  ALLOD_HOT void* take(P& platform, std::size_t granules, Zero zero = Zero::yes) noexcept {
    if (granules <= kLargest && free_[list_of(granules)] != nullptr) {
      void* const piece = pop(list_of(granules));
      return zero == Zero::yes ? cleared(piece, granules) : piece;
    }
    const std::size_t bytes = granules * kGranule;
    if (bytes > available_ && !refill(platform, bytes)) return cleared(split(granules), granules);
    unsigned char* const piece = next_;
    next_ += bytes;
    available_ -= bytes;
    return piece;
  }
  // Memory cut for the first time is zero, and is not touched.
  static void* cleared(void* piece, std::size_t granules) noexcept {
    if (piece != nullptr) __builtin_memset(piece, 0, granules * kGranule);
    return piece;
  }
  void* pop(std::size_t list) noexcept {
    Free* const piece = free_[list];
    free_[list] = piece->next;
    return piece;
  }
  // Frees any number of granules, as the fewest pieces.
  void put(void* memory, std::size_t granules) noexcept {
    auto* piece = static_cast<unsigned char*>(memory);
    while (granules > 0) {
      const std::size_t whole = granules <= kFine ? granules : align_down(granules, kFine);
      const std::size_t part = whole < kLargest ? whole : kLargest;
      free_[list_of(part)] = new (piece) Free{free_[list_of(part)]};
      piece += part * kGranule;
      granules -= part;
    }
  }
  void* split(std::size_t granules) noexcept {
    if (granules > kLargest) return nullptr;
    for (std::size_t list = list_of(granules) + 1; list < kLists; ++list) {
      if (free_[list] == nullptr) continue;
      auto* const piece = static_cast<unsigned char*>(pop(list));
      put(piece + granules * kGranule, granules_in(list) - granules);
      return piece;
    }
    return nullptr;
  }
  ALLOD_HOT bool refill(P& platform, std::size_t bytes) noexcept {
    // Chunks grow with the total, so that they are few.
    const std::size_t least = align_up(bytes, kSliceBytes);
    const std::size_t usual = std::max(kChunkBytes, least);
    std::size_t chunk = std::max(usual, align_up(mapped_bytes_ / kChunkShare, kSliceBytes));
    void* memory = platform.map(chunk);
    if (memory == nullptr && chunk > usual) memory = platform.map(chunk = usual);
    if (memory == nullptr && chunk > least) memory = platform.map(chunk = least);
    if (memory == nullptr) return false;
    platform.name(memory, chunk, "allod: metadata");
    take_over(memory, chunk);
    return true;
  }
  void take_over(void* memory, std::size_t bytes) noexcept {
    // The rest of the last chunk is less than the current request.
    if (available_ >= kGranule) put(next_, available_ / kGranule);
    next_ = static_cast<unsigned char*>(memory);
    available_ = bytes;
    mapped_bytes_ += bytes;
    note_range(address_of(memory), bytes);
  }

  // Adjacent chunks are one range. Its length is set last, so that holds() never sees too much.
  void note_range(Address from, std::size_t bytes) noexcept {
    const auto set = [](Range& range, Address begin, std::size_t length) noexcept {
      __atomic_store_n(&range.from, begin, __ATOMIC_RELAXED);
      __atomic_store_n(&range.bytes, length, __ATOMIC_RELEASE);
    };
    for (std::size_t i = range_count_; i-- > 0;) {
      Range& range = ranges_[i];
      const bool before = from + bytes == range.from;
      if (!before && range.from + range.bytes != from) continue;
      return set(range, before ? from : range.from, range.bytes + bytes);
    }
    if (range_count_ < kMostRanges) set(ranges_[range_count_++], from, bytes);
  }
  struct Range {
    Address from;
    std::size_t bytes;
  };
  static constexpr std::size_t kMostRanges = 256;

  // What each holder of the lock uses lies beside it.
  Lock lock_{LockRank::metadata};
  unsigned char* next_ = nullptr;
  std::size_t available_ = 0;
  std::size_t used_bytes_ = 0;
  Free* free_[kLists] = {};
  Free* stable_[kLists] = {};
  std::size_t mapped_bytes_ = 0;
  std::size_t range_count_ = 0;
  Range ranges_[kMostRanges] = {};
};

}  // namespace allod::space

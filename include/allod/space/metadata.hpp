// Memory for the allocator's own bookkeeping, separate from user blocks.
#pragma once

#include <algorithm>

#include "allod/os/platform.hpp"
#include "allod/space/piece_shelf.hpp"

namespace allod::space {

// Pieces are multiples of 64 bytes up to 4 KiB, and of 4 KiB above, cut from mapped chunks. Pieces
// of up to 32 KiB are reused by exact size, then by splitting larger ones. Larger pieces are reused
// in pieces of 32 KiB. Chunks are never unmapped. Each is half as large as all before it, so that
// they, and their mappings, are few. A freed piece can be reused for its size and below without the
// system. A piece comes from a chunk of the calling thread's memory node, and returns there when it
// is freed, whoever does that. Thread-safe.
template <os::Platform P, bool kCheckRanks>
class Metadata {
 public:
  constexpr Metadata() noexcept = default;

  // Tells so many nodes apart, at most kMostNodes. Called once, before anything else.
  void start(std::uint32_t nodes) noexcept { nodes_ = nodes; }
  [[nodiscard]] std::uint32_t nodes() const noexcept { return nodes_; }
  // That of the calling thread.
  [[nodiscard]] ALLOD_INLINE Node node() const noexcept {
    return __builtin_expect(nodes_ <= 1, 1) ? Node{0} : static_cast<Node>(P::node() % nodes_);
  }

  // Zeroed memory aligned to 64 bytes, or null.
  [[nodiscard]] ALLOD_HOT void* allocate(P& platform, std::size_t bytes) noexcept {
    const std::size_t granules = granules_for(bytes);
    LockGuard guard{lock_};
    const Node node = this->node();
    void* const piece = take(made_shelf(node, platform), node, platform, granules);
    if (piece != nullptr) used_bytes_ += granules * kGranule;
    return piece;
  }
  // `bytes` as passed to allocate().
  ALLOD_HOT void free(void* piece, std::size_t bytes) noexcept {
    const std::size_t granules = granules_for(bytes);
    LockGuard guard{lock_};
    used_bytes_ -= granules * kGranule;
    home_of(piece).put(piece, granules);
  }

  // Up to `count` pieces of `bytes`, at least 1, with one hold of the lock: a list, or null. Their
  // contents are unknown. Each may be freed by itself.
  [[nodiscard]] ALLOD_HOT FreePiece* allocate_some(P& platform, std::size_t bytes,
                                                   std::size_t count) noexcept {
    const std::size_t granules = granules_for(bytes);
    FreePiece* list = nullptr;
    LockGuard guard{lock_};
    const Node node = this->node();
    PieceShelf& shelf = made_shelf(node, platform);
    for (; count > 0; --count) {
      void* piece = shelf.reuse(granules);
      if (piece == nullptr) piece = take(shelf, node, platform, granules, Zero::no);
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
    const bool is_one = nodes_ <= 1;
    while (list != nullptr) {
      FreePiece* const next = list->next;
      (is_one ? first_ : find_home_of(address_of(list))).put_whole(list, granules);
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
    always_check(granules <= PieceShelf::kLargest, "a stable piece of metadata is too large");
    LockGuard guard{lock_};
    const Node node = this->node();
    PieceShelf& shelf = made_shelf(node, platform);
    void* piece = shelf.reuse_stable(granules);
    if (piece == nullptr) piece = take(shelf, node, platform, granules);
    if (piece != nullptr) used_bytes_ += granules * kGranule;
    return piece;
  }
  // The first bytes of the piece become a link; all others keep their values.
  void free_stable(void* piece, std::size_t bytes) noexcept {
    const std::size_t granules = granules_for(bytes);
    LockGuard guard{lock_};
    used_bytes_ -= granules * kGranule;
    home_of(piece).put_stable(piece, granules);
  }

  // Takes over zeroed memory for good, when the system refuses memory.
  void donate(void* memory, std::size_t bytes) noexcept {
    LockGuard guard{lock_};
    take_over(node(), memory, bytes);
  }

  // Mapped bytes, and those in use.
  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return mapped_bytes_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_bytes_; }

  // Bytes left of the newest chunk: they need no system call, whatever was freed.
  [[nodiscard]] std::size_t spare_bytes() noexcept {
    LockGuard guard{lock_};
    return shelf_of(node()).available();
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
  static constexpr std::size_t kGranule = PieceShelf::kGranule;
  static constexpr std::size_t kChunkBytes = 256 * 1024;
  static constexpr std::size_t kChunkShare = 2;  // of all before it

  enum class Zero : bool { no, yes };

  static constexpr std::size_t granules_for(std::size_t bytes) noexcept {
    return PieceShelf::granules_for(bytes);
  }
  // `shelf`: that of the node.
  ALLOD_HOT void* take(PieceShelf& shelf, Node node, P& platform, std::size_t granules,
                       Zero zero = Zero::yes) noexcept {
    void* const piece = take_from(shelf, node, platform, granules, zero);
    if (__builtin_expect(piece != nullptr || nodes_ <= 1, 1)) return piece;
    return take_elsewhere(granules);
  }
  // Memory cut for the first time is zero, and is not touched.
  ALLOD_HOT void* take_from(PieceShelf& shelf, Node node, P& platform, std::size_t granules,
                            Zero zero) noexcept {
    if (void* const piece = shelf.reuse(granules)) {
      return zero == Zero::yes ? cleared(piece, granules) : piece;
    }
    void* piece = shelf.cut(granules);
    if (piece == nullptr && refill(node, platform, granules * kGranule))
      piece = shelf.cut(granules);
    return piece != nullptr ? piece : cleared(shelf.split(granules), granules);
  }
  // When the system gives none for the caller's node.
  ALLOD_COLD void* take_elsewhere(std::size_t granules) noexcept {
    for (std::uint32_t node = 0; node < nodes_; ++node) {
      PieceShelf& shelf = shelf_of(static_cast<Node>(node));
      void* piece = shelf.reuse(granules);
      if (piece == nullptr) piece = shelf.cut(granules);
      if (piece == nullptr) piece = shelf.split(granules);
      if (piece != nullptr) return cleared(piece, granules);
    }
    return nullptr;
  }
  static void* cleared(void* piece, std::size_t granules) noexcept {
    if (piece != nullptr) __builtin_memset(piece, 0, granules * kGranule);
    return piece;
  }
  ALLOD_HOT bool refill(Node node, P& platform, std::size_t bytes) noexcept {
    // Chunks grow with the total, so that they are few.
    const std::size_t least = align_up(bytes, kSliceBytes);
    const std::size_t usual = std::max(kChunkBytes, least);
    std::size_t chunk = std::max(usual, align_up(mapped_bytes_ / kChunkShare, kSliceBytes));
    void* memory = platform.map(chunk);
    if (memory == nullptr && chunk > usual) memory = platform.map(chunk = usual);
    if (memory == nullptr && chunk > least) memory = platform.map(chunk = least);
    if (memory == nullptr) return false;
    platform.name(memory, chunk, "allod: metadata");
    take_over(node, memory, chunk);
    return true;
  }
  ALLOD_HOT void take_over(Node node, void* memory, std::size_t bytes) noexcept {
    shelf_of(node).take_over(memory, bytes);
    mapped_bytes_ += bytes;
    note_range(node, address_of(memory), bytes);
  }

  // --- nodes: all pieces of a machine with one are on the first shelf ----------------------

  [[nodiscard]] ALLOD_INLINE PieceShelf& shelf_of(Node node) noexcept {
    if (__builtin_expect(node == 0, 1)) return first_;
    return others_[node] == nullptr ? first_ : *others_[node];
  }
  [[nodiscard]] ALLOD_INLINE PieceShelf& made_shelf(Node node, P& platform) noexcept {
    if (__builtin_expect(node != 0 && others_[node] == nullptr, 0)) make_shelf(node, platform);
    return shelf_of(node);
  }
  ALLOD_COLD void make_shelf(Node node, P& platform) noexcept {
    constexpr std::size_t kGranules = granules_for(sizeof(PieceShelf));
    void* const memory = take_from(first_, 0, platform, kGranules, Zero::yes);
    if (memory != nullptr) others_[node] = new (memory) PieceShelf{};
  }
  // That of a piece. Beyond the ranges that are known, the first one.
  [[nodiscard]] ALLOD_INLINE PieceShelf& home_of(const void* piece) noexcept {
    return __builtin_expect(nodes_ <= 1, 1) ? first_ : find_home_of(address_of(piece));
  }
  [[nodiscard]] ALLOD_NOINLINE PieceShelf& find_home_of(Address piece) noexcept {
    for (std::size_t i = 0; i < range_count_; ++i) {
      if (piece - ranges_[i].from < ranges_[i].bytes) return shelf_of(range_nodes_[i]);
    }
    return first_;
  }

  // Adjacent chunks of a node are one range. Its length is set last, so that holds() never sees too
  // much.
  void note_range(Node node, Address from, std::size_t bytes) noexcept {
    const auto set = [](Range& range, Address begin, std::size_t length) noexcept {
      __atomic_store_n(&range.from, begin, __ATOMIC_RELAXED);
      __atomic_store_n(&range.bytes, length, __ATOMIC_RELEASE);
    };
    for (std::size_t i = range_count_; i-- > 0;) {
      Range& range = ranges_[i];
      if (range_nodes_[i] != node) continue;
      const bool before = from + bytes == range.from;
      if (!before && range.from + range.bytes != from) continue;
      return set(range, before ? from : range.from, range.bytes + bytes);
    }
    if (range_count_ == kMostRanges) return;
    range_nodes_[range_count_] = node;
    set(ranges_[range_count_++], from, bytes);
  }
  struct Range {
    Address from;
    std::size_t bytes;
  };
  static constexpr std::size_t kMostRanges = 256;

  // What each holder of the lock uses lies beside it.
  Lock lock_{LockRank::metadata};
  std::uint32_t nodes_ = 1;
  std::size_t used_bytes_ = 0;
  PieceShelf first_;  // of node 0, and of those without one
  std::size_t mapped_bytes_ = 0;
  std::size_t range_count_ = 0;
  Range ranges_[kMostRanges] = {};
  Node range_nodes_[kMostRanges] = {};
  PieceShelf* others_[kMostNodes] = {};
};

}  // namespace allod::space

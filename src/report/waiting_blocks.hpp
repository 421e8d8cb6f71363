// Delays the reuse of freed blocks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace allod {

// A queue, first in, first out. Zeroed memory is an empty one. Not thread-safe.
class WaitingBlocks {
 public:
  static constexpr std::size_t kMostBlocks = std::size_t{1} << 13;
  static constexpr std::size_t kMostBytes = std::size_t{8} << 20;

  // False if it is full: the caller must take() first.
  [[nodiscard]] bool put(void* block, std::size_t bytes) noexcept {
    if (count_ == kMostBlocks) return false;
    places_[(first_ + count_++) % kMostBlocks] = {block, bytes};
    bytes_ += bytes;
    return true;
  }
  [[nodiscard]] bool is_overdue() const noexcept {
    return count_ == kMostBlocks || bytes_ > kMostBytes;
  }
  // The oldest block; null if empty.
  [[nodiscard]] void* take() noexcept {
    if (count_ == 0) return nullptr;
    const Place& place = places_[first_];
    first_ = (first_ + 1) % kMostBlocks;
    --count_;
    bytes_ -= place.bytes;
    return place.block;
  }

 private:
  struct Place {
    void* block;
    std::size_t bytes;
  };
  std::size_t first_;
  std::size_t count_;
  std::size_t bytes_;
  Place places_[kMostBlocks];
};

}  // namespace allod

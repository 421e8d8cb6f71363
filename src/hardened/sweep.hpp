// Freed blocks that have left the quarantine, but may still be pointed to.
//
// After MarkUs (S. Ainsworth and T. Jones) and MineSweeper (M. Erdős and others): a block goes to
// the heap once a sweep of the program's memory finds no pointer to it or into it. Freed blocks are
// zero, so no pointers lie in them, and there is no graph to follow.
#pragma once

#include "instance/process.hpp"

namespace allod::sweep {

// To be called before hold(). False if memory for the list is exhausted.
[[nodiscard]] bool start() noexcept;

// Blocks that move together.
class Batch {
 public:
  static constexpr std::size_t kMost = 64;

  [[nodiscard]] bool is_full() const noexcept { return count_ == kMost; }
  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t weight() const noexcept { return weight_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  // Must not be full. A block that is mostly absent may weigh less than its bytes.
  void add(Address block, std::size_t weight = 0, std::size_t bytes = 0) noexcept {
    blocks_[count_++] = block;
    weight_ += weight;
    bytes_ += bytes;
  }
  // Visits and removes each block.
  template <class Visit>
  void drain(Visit&& visit) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      visit(blocks_[i]);
      // Erased, so that the next sweep does not find it.
      __atomic_store_n(&blocks_[i], 0, __ATOMIC_RELAXED);
    }
    count_ = weight_ = bytes_ = 0;
  }

 private:
  Address blocks_[kMost];
  std::size_t count_ = 0;
  std::size_t weight_ = 0;
  std::size_t bytes_ = 0;
};

// Frees a block to its heap; returns its bytes.
using LetGo = std::size_t (*)(void* block) noexcept;

// Holds freed blocks. Sweeps from time to time, and passes blocks without pointers to them to
// `let_go`. May wait for 4 ms, or for 1 s if very much is held. False, and the batch is unchanged,
// if no more can be held. Thread-safe.
[[nodiscard]] bool hold(Batch& blocks, LetGo let_go) noexcept;

// The outcome for a refused request.
enum class Room : std::uint8_t { none, made, made_by_sweep };

// For a refused request of `bytes`: frees blocks that a sweep has found free of pointers. If it
// `may_sweep`, it sweeps first, provided that blocks were held since the last sweep and the request
// is not out of proportion to them. After a vain sweep for a request, more must be freed before the
// next. Slow. Thread-safe; not for signal handlers that interrupted the heap.
[[nodiscard]] Room make_room(std::size_t bytes, bool may_sweep, LetGo let_go) noexcept;

// Waits until the sweep has finished its current lookups in the page map, which may be of any word.
// False after a second. Thread-safe.
[[nodiscard]] bool wait_for_lookups() noexcept;

// Waits up to 0.1 s for the sweeper's end, so that the process has one thread less. Not for a child
// of vfork.
void wait_for_sweeper_to_end() noexcept;

}  // namespace allod::sweep

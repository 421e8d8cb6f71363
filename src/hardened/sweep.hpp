// Blocks that have left the quarantine, and that the program may still point to.
//
// After MarkUs (S. Ainsworth and T. Jones) and MineSweeper (M. Erdős and others): a freed block
// goes back to the heap when a sweep of the program's memory finds no pointer to it, or into it.
// Freed blocks are zeroed, so nothing is found in them, and there is no graph to follow.
#pragma once

#include "instance/process.hpp"

namespace allod::sweep {

// Before the first block is held. False when there is no memory for a list of them.
[[nodiscard]] bool start() noexcept;

// Blocks that are on their way together.
class Batch {
 public:
  static constexpr std::size_t kMost = 64;

  [[nodiscard]] bool is_full() const noexcept { return count_ == kMost; }
  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t weight() const noexcept { return weight_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  // Not when it is full. A block may weigh less than it has bytes, if it has hardly any memory.
  void add(Address block, std::size_t weight = 0, std::size_t bytes = 0) noexcept {
    blocks_[count_++] = block;
    weight_ += weight;
    bytes_ += bytes;
  }
  // Gives up each of them.
  template <class Visit>
  void drain(Visit&& visit) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      visit(blocks_[i]);
      // The next sweep must not find what is left of it.
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

// Gives a block to its heap, and tells how many bytes that were.
using LetGo = std::size_t (*)(void* block) noexcept;

// Keeps free blocks from their heap. Every now and then it sweeps, and hands the blocks that
// nothing points to to `let_go`; may wait for four milliseconds, or for a second where very much is
// held. False, and the batch is as it was, when no more can be held. Thread-safe.
[[nodiscard]] bool hold(Batch& blocks, LetGo let_go) noexcept;

// What was done for a request that was refused.
enum class Room : std::uint8_t { none, made, made_by_sweep };

// For a request of so many bytes that was refused, hands over as hold() does what a sweep has found
// nothing to point to. If it `may_sweep`, it sweeps before that, where blocks are held since the
// last time and the request is not out of proportion to what is held; and if the last sweep that
// was made for a request was in vain, only when more has been freed since. Takes its time.
// Thread-safe; not for signal handlers that have interrupted the heap.
[[nodiscard]] Room make_room(std::size_t bytes, bool may_sweep, LetGo let_go) noexcept;

// Until a sweep is through with the words that it is just looking up in the page map: any words,
// of which most are no addresses. False when that takes more than a second. Thread-safe.
[[nodiscard]] bool wait_for_lookups() noexcept;

// So that the process has one thread less, if there is a sweep. For a tenth of a second at most.
// Not for a child of vfork.
void wait_for_sweeper_to_end() noexcept;

}  // namespace allod::sweep

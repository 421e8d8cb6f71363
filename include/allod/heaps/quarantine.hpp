// A quarantine of freed blocks.
#pragma once

#include "allod/base/random.hpp"

namespace allod::heaps {

// Two sets: one takes freed blocks while the other waits. When the first is full, by blocks or
// bytes, the blocks of the other leave in random order, and the sets swap. So each block waits for
// a whole set's blocks or bytes. Used by one thread at a time, but a signal handler may interrupt
// it.
class Quarantine {
 public:
  static constexpr std::uint32_t kBlocks = 64;
  static constexpr std::size_t kBytes = std::size_t{64} << 10;
  static constexpr std::size_t kLeastBytes = std::size_t{4} << 10;

  constexpr explicit Quarantine(bool closed = false) noexcept : busy_{closed} {}

  // Of `all` bytes, the share of each set of one in `count` quarantines.
  [[nodiscard]] static constexpr std::size_t share(std::size_t all, std::size_t count) noexcept {
    const std::size_t part = all / (2 * count);
    return part < kLeastBytes ? kLeastBytes : part < kBytes ? part : kBytes;
  }
  // A set is full with so many bytes from now on.
  void limit(std::size_t bytes) noexcept { most_bytes_ = bytes; }

  // Keeps a place for a block that weighs `bytes` if no other has to leave. Until it is taken or
  // left, a signal handler finds the quarantine busy.
  [[nodiscard]] ALLOD_INLINE bool keep_place(std::size_t bytes) noexcept {
    if (__builtin_expect(busy_, 0)) return false;
    begin();
    if (__builtin_expect((next_ + 1) % kBlocks != 0 && bytes_ + bytes < most_bytes_, 1))
      return true;
    end();
    return false;
  }
  ALLOD_INLINE void take_place(void* block, std::size_t bytes) noexcept {
    put(block, bytes);
    end();
  }
  ALLOD_INLINE void leave_place() noexcept { end(); }
  // Takes a block that weighs `bytes`. Passes leaving blocks to `leave`: one by one, or all at once
  // if it takes an array and a count. False if the quarantine is busy or closed.
  template <class Leave>
  [[nodiscard]] ALLOD_INLINE bool take(void* block, std::size_t bytes, random::Sequence& order,
                                       Leave&& leave) noexcept {
    if (__builtin_expect(busy_, 0)) return false;
    begin();
    put(block, bytes);
    if (__builtin_expect(next_ % kBlocks == 0 || bytes_ >= most_bytes_, 0)) turn(order, leave);
    end();
    return true;
  }
  // Empties the quarantine. False if it was empty or busy.
  template <class Leave>
  bool clear(random::Sequence& order, Leave&& leave) noexcept {
    if (busy_ || (filled() == 0 && waiting_ == 0)) return false;
    begin();
    turn(order, leave);
    turn(order, leave);
    end();
    return true;
  }
  [[nodiscard]] bool holds(const void* block) noexcept {
    bool found = false;
    for_each([&](const void* waiting) noexcept { found |= waiting == block; });
    return found;
  }
  // At every kVisited blocks that come, but not when the sets swap: the last one to come is not
  // visited at once.
  static constexpr std::uint32_t kVisited = 8;
  [[nodiscard]] ALLOD_INLINE bool is_visit_due() const noexcept {
    return next_ % kVisited == kVisited - 1;
  }
  // Visits the next kVisited waiting blocks, those first that came first, each once while it waits.
  // The visitor may change them to other words.
  template <class Visit>
  void visit_oldest(Visit&& visit) noexcept {
    if (busy_) return;
    begin();
    void** at = blocks_ + (first_ ^ kBlocks) + visited_;
    visited_ = visited_ + kVisited < waiting_ ? visited_ + kVisited : waiting_;
    void** const last = blocks_ + (first_ ^ kBlocks) + visited_;
    for (; at != last; ++at) visit(*at);
    end();
  }
  [[nodiscard]] bool is_at_work() const noexcept { return busy_; }
  template <class Visit>
  void for_each(Visit&& visit) noexcept {
    if (busy_) return;
    begin();
    for (std::uint32_t i = first_; i < next_; ++i) visit(blocks_[i]);
    for (std::uint32_t i = 0; i < waiting_; ++i) visit(blocks_[(first_ ^ kBlocks) + i]);
    end();
  }

 private:
  [[nodiscard]] std::uint32_t filled() const noexcept { return next_ - first_; }
  ALLOD_INLINE void put(void* block, std::size_t bytes) noexcept {
    blocks_[next_++] = block;
    bytes_ += bytes;
  }
  // The waiting blocks leave, and those of the other set wait.
  template <class Leave>
  ALLOD_NOINLINE ALLOD_HOT void turn(random::Sequence& order, Leave& leave) noexcept {
    const std::uint32_t leaving = waiting_;
    visited_ = 0;
    waiting_ = filled();
    next_ = first_ ^= kBlocks;
    bytes_ = 0;
    void** const blocks = blocks_ + first_;
    order.shuffle(blocks, leaving);
    if constexpr (requires { leave(blocks, leaving); }) {
      leave(blocks, leaving);
    } else {
      for (std::uint32_t i = 0; i < leaving; ++i) leave(blocks[i]);
    }
  }
  ALLOD_INLINE void begin() noexcept {
    busy_ = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ALLOD_INLINE void end() noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    busy_ = false;
  }

  void* blocks_[2 * kBlocks] = {};
  std::uint32_t first_ = 0;    // of the taking set
  std::uint32_t next_ = 0;     // in the taking set
  std::uint32_t waiting_ = 0;  // blocks of the waiting set
  std::uint32_t visited_ = 0;  // of these, see visit_oldest()
  bool busy_;
  std::size_t bytes_ = 0;  // in the taking set
  std::size_t most_bytes_ = kBytes;
};

}  // namespace allod::heaps

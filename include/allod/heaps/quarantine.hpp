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
  static constexpr std::uint32_t kBlocks = 256;
  static constexpr std::size_t kBytes = std::size_t{128} << 10;
  static constexpr std::size_t kLeastBytes = std::size_t{4} << 10;
  static constexpr std::uint32_t kVisited = 8;

  struct LookAway {
    void operator()(void* const*, std::uint32_t) const noexcept {}
  };

  // A closed one is all zeros: as a variable, it takes no room in a file.
  constexpr explicit Quarantine(bool closed = false) noexcept
      : is_free_{!closed},
        left_{closed ? 0 : std::ptrdiff_t{kBytes}},
        most_bytes_{closed ? 0 : kBytes} {}

  // Of `all` bytes, the share of each set of one in `count` quarantines.
  [[nodiscard]] static constexpr std::size_t share(std::size_t all, std::size_t count) noexcept {
    const std::size_t part = all / (2 * count);
    return part < kLeastBytes ? kLeastBytes : part < kBytes ? part : kBytes;
  }
  // A set is full with so many bytes from now on, unless the quarantine is busy.
  void limit(std::size_t bytes) noexcept {
    if (!is_free_) return;
    begin();
    left_ += static_cast<std::ptrdiff_t>(bytes) - static_cast<std::ptrdiff_t>(most_bytes_);
    most_bytes_ = bytes;
    end();
  }

  // Keeps a place for a block that weighs `bytes` if no other has to leave for its bytes. Until it
  // is taken and settled, or left, a signal handler finds the quarantine busy.
  [[nodiscard]] ALLOD_INLINE bool keep_place(std::size_t bytes) noexcept {
    if (__builtin_expect(!is_free_, 0)) return false;
    begin();
    left_ -= static_cast<std::ptrdiff_t>(bytes);
    if (__builtin_expect(left_ > 0, 1)) return true;
    leave_place(bytes);
    return false;
  }
  // True: settle() must follow.
  [[nodiscard]] ALLOD_INLINE bool take_place(void* block) noexcept {
    const std::uint32_t next = next_ + 1;
    blocks_[next - 1] = block;
    next_ = next;
    if (__builtin_expect(next % kVisited == 0, 0)) return true;
    end();
    return false;
  }
  ALLOD_INLINE void leave_place(std::size_t bytes) noexcept {
    left_ += static_cast<std::ptrdiff_t>(bytes);
    end();
  }
  // After kVisited blocks have come: passes as many of the waiting ones to `look`, those first that
  // came first, or lets all waiting ones go if the other set is full.
  template <class Look, class Leave>
  void settle(random::Sequence& order, Look&& look, Leave&& leave) noexcept {
    next_ % kBlocks == 0 ? turn(order, look, leave) : show(kVisited, look);
    end();
  }
  // Takes a block that weighs `bytes`. Passes leaving blocks to `leave`: one by one, or all at once
  // if it takes an array and a count. Passes each of them to `look` before, in an array: some at
  // every kVisited blocks that come, and the others when they leave. False if the quarantine is
  // busy or closed.
  template <class Leave, class Look = LookAway>
  [[nodiscard]] ALLOD_INLINE bool take(void* block, std::size_t bytes, random::Sequence& order,
                                       Leave&& leave, Look&& look = {}) noexcept {
    if (__builtin_expect(!is_free_, 0)) return false;
    begin();
    blocks_[next_++] = block;
    left_ -= static_cast<std::ptrdiff_t>(bytes);
    if (__builtin_expect(next_ % kBlocks == 0 || left_ <= 0, 0)) {
      turn(order, look, leave);
    } else if (next_ % kVisited == 0) {
      show(kVisited, look);
    }
    end();
    return true;
  }
  // Empties the quarantine. False if it was empty or busy.
  template <class Leave, class Look = LookAway>
  bool clear(random::Sequence& order, Leave&& leave, Look&& look = {}) noexcept {
    if (!is_free_ || (filled() == 0 && waiting_ == 0)) return false;
    begin();
    turn(order, look, leave);
    turn(order, look, leave);
    end();
    return true;
  }
  [[nodiscard]] bool holds(const void* block) noexcept {
    bool found = false;
    for_each([&](const void* waiting) noexcept { found |= waiting == block; });
    return found;
  }
  [[nodiscard]] bool is_at_work() const noexcept { return !is_free_; }
  template <class Visit>
  void for_each(Visit&& visit) noexcept {
    if (!is_free_) return;
    begin();
    for (std::uint32_t i = first_; i < next_; ++i) visit(blocks_[i]);
    for (std::uint32_t i = 0; i < waiting_; ++i) visit(blocks_[(first_ ^ kBlocks) + i]);
    end();
  }

 private:
  [[nodiscard]] std::uint32_t filled() const noexcept { return next_ - first_; }
  // Passes the next ones of the waiting set, `most` at most.
  template <class Look>
  ALLOD_INLINE void show(std::uint32_t most, Look& look) noexcept {
    void* const* const next = blocks_ + (first_ ^ kBlocks) + seen_;
    const std::uint32_t count = waiting_ - seen_ < most ? waiting_ - seen_ : most;
    seen_ += count;
    if (count != 0) look(next, count);
  }
  // The waiting blocks leave, and those of the other set wait.
  template <class Look, class Leave>
  ALLOD_NOINLINE ALLOD_HOT void turn(random::Sequence& order, Look& look, Leave& leave) noexcept {
    show(kBlocks, look);
    const std::uint32_t leaving = waiting_;
    seen_ = 0;
    waiting_ = filled();
    next_ = first_ ^= kBlocks;
    left_ = static_cast<std::ptrdiff_t>(most_bytes_);
    void** const blocks = blocks_ + first_;
    order.shuffle(blocks, leaving);
    if constexpr (requires { leave(blocks, leaving); }) {
      leave(blocks, leaving);
    } else {
      for (std::uint32_t i = 0; i < leaving; ++i) leave(blocks[i]);
    }
  }
  ALLOD_INLINE void begin() noexcept {
    is_free_ = false;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ALLOD_INLINE void end() noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    is_free_ = true;
  }

  void* blocks_[2 * kBlocks] = {};
  std::uint32_t first_ = 0;    // of the taking set
  std::uint32_t next_ = 0;     // in the taking set
  std::uint32_t waiting_ = 0;  // blocks of the waiting set
  std::uint32_t seen_ = 0;     // of these, by `look`
  bool is_free_;               // neither busy nor closed
  std::ptrdiff_t left_;        // bytes until the taking set is full
  std::size_t most_bytes_;
};

}  // namespace allod::heaps

// Where freed blocks wait before they can be used again.
#pragma once

#include "allod/base/random.hpp"

namespace allod::heap {

// Two sets: one takes what is freed while the other waits. When the first is full, by blocks or by
// bytes, the blocks of the other leave in random order, and the two change places. So each block
// waits for at least as many frees as a set holds, or as many bytes. Used by one thread at
// a time, but a signal handler may find it at work.
class Quarantine {
 public:
  static constexpr std::uint32_t kBlocks = 64;
  static constexpr std::size_t kBytes = std::size_t{64} << 10;

  constexpr explicit Quarantine(bool closed = false) noexcept : busy_{closed} {}

  // Takes a block that weighs `bytes`; `leave` is told which go. False when it is at work, or
  // closed for good.
  template <class Leave>
  [[nodiscard]] ALLOD_INLINE bool take(void* block, std::size_t bytes, random::Sequence& order,
                                       Leave&& leave) noexcept {
    if (__builtin_expect(busy_, 0)) return false;
    begin();
    Set& set = sets_[filling_];
    set.blocks[set.count++] = block;
    set.bytes += bytes;
    if (__builtin_expect(set.count == kBlocks || set.bytes >= kBytes, 0)) {
      filling_ ^= 1;
      empty(sets_[filling_], order, leave);
    }
    end();
    return true;
  }
  // Everything leaves. False when there was nothing.
  template <class Leave>
  bool clear(random::Sequence& order, Leave&& leave) noexcept {
    if (busy_ || sets_[0].count + sets_[1].count == 0) return false;
    begin();
    for (Set& set : sets_) empty(set, order, leave);
    end();
    return true;
  }
  [[nodiscard]] bool holds(const void* block) noexcept {
    bool found = false;
    for_each([&](const void* waiting) noexcept { found |= waiting == block; });
    return found;
  }
  template <class Visit>
  void for_each(Visit&& visit) noexcept {
    if (busy_) return;
    begin();
    for (const Set& set : sets_) {
      for (std::uint32_t i = 0; i < set.count; ++i) visit(set.blocks[i]);
    }
    end();
  }

 private:
  struct Set {
    void* blocks[kBlocks] = {};
    std::uint32_t count = 0;
    std::size_t bytes = 0;
  };

  template <class Leave>
  ALLOD_NOINLINE static void empty(Set& set, random::Sequence& order, Leave& leave) noexcept {
    order.shuffle(set.blocks, set.count);
    for (std::uint32_t i = 0; i < set.count; ++i) leave(set.blocks[i]);
    set.count = 0;
    set.bytes = 0;
  }
  ALLOD_INLINE void begin() noexcept {
    busy_ = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ALLOD_INLINE void end() noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    busy_ = false;
  }

  Set sets_[2];
  unsigned filling_ = 0;
  bool busy_;
};

}  // namespace allod::heap

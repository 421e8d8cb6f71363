// What magazines hand out and take back, counted without a word on the fast paths.
#pragma once

#include <atomic>

#include "allod/base/base.hpp"

namespace allod::heap {

// Written by one thread, read by any.
class Counter {
 public:
  void add(std::uint64_t n) noexcept { value_.store(value() + n, std::memory_order_relaxed); }
  void clear() noexcept { value_.store(0, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t value() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// Of one class. While allocations are counted, a magazine only hands out: when it is dry, it has
// handed out what it was filled with. It is never filled beyond the next sample.
struct ClassCount {
  Counter allocated;         // but for what the magazine was filled with last
  Counter freed;             // but for what lies in the magazine for frees
  std::uint64_t until = 0;   // blocks to the next sample, with it; 0: not known yet
  std::uint32_t filled = 0;  // blocks that the magazine was filled with last
  std::uint32_t worth = 0;   // with `until`: so many freed blocks, at least 1, are worth reuse

  void clear() noexcept {
    allocated.clear();
    freed.clear();
    until = 0;
    filled = 0;
  }
  // The magazine is dry, its blocks are gone.
  void settle() noexcept {
    allocated.add(filled);
    until = until > filled ? until - filled : 0;
    filled = 0;
  }
};

}  // namespace allod::heap

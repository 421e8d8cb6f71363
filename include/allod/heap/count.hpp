// Counts allocations and frees without an instruction on the fast paths.
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

// Of one class. While allocations are counted, a magazine takes no frees: when it is empty, all its
// blocks were allocated. It is never filled beyond the next sample.
struct ClassCount {
  Counter allocated;         // without the blocks filled in last
  Counter freed;             // without those in the magazine for frees
  std::uint64_t until = 0;   // blocks to the next sample, inclusive; 0: unknown
  std::uint32_t filled = 0;  // blocks filled in last
  std::uint32_t worth = 0;   // known with `until`: freed blocks, at least 1, that are worth reuse

  void clear() noexcept {
    allocated.clear();
    freed.clear();
    until = 0;
    filled = 0;
  }
  // After the magazine has run dry.
  void settle() noexcept {
    allocated.add(filled);
    until = until > filled ? until - filled : 0;
    filled = 0;
  }
};

}  // namespace allod::heap

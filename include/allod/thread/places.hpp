// The number of threads that may own a domain at a time.
#pragma once

#include <atomic>
#include <cstdint>

namespace allod::thread {

// Thread-safe, except forbid(). Constant-initialised to none.
class Places {
 public:
  // No thread may own a domain from now on. Before threads ask.
  void forbid() noexcept { forbidden_ = true; }
  [[nodiscard]] bool are_forbidden() const noexcept { return forbidden_; }

  // Four for each processor, and at least kLeast.
  void set(std::uint32_t processors) noexcept {
    if (forbidden_) return;
    const std::uint32_t places = 4 * processors;
    places_.store(places < kLeast ? kLeast : places, std::memory_order_relaxed);
  }
  // False if none is left for a thread that has done so many `rounds` of operations. Each domain
  // has slabs of its own. So where many threads own one, a thread with little to do shares one.
  [[nodiscard]] bool take(std::uint32_t rounds) noexcept {
    std::uint32_t taken = taken_.load(std::memory_order_relaxed);
    do {
      if (taken >= places_.load(std::memory_order_relaxed)) return false;
      const std::uint64_t eights = taken / kLeast;
      if (rounds < kRoundsForMore * eights * eights) return false;
    } while (!taken_.compare_exchange_weak(taken, taken + 1, std::memory_order_relaxed));
    return true;
  }
  void give_back() noexcept { taken_.fetch_sub(1, std::memory_order_relaxed); }
  // In the child of a fork: `taken` are in use.
  void reset_in_child(std::uint32_t taken) noexcept {
    taken_.store(taken, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t kLeast = 8;
  static constexpr std::uint64_t kRoundsForMore = 16;

  std::atomic<std::uint32_t> places_{0};
  std::atomic<std::uint32_t> taken_{0};
  bool forbidden_ = false;
};

}  // namespace allod::thread

// A small lock that sleeps in the kernel, counts its contention, and checks its rank.
#pragma once

#include <atomic>
#include <cstdint>

#include "allod/base/check.hpp"
#include "allod/base/cpu.hpp"
#include "allod/base/thread_local.hpp"
#include "allod/base/units.hpp"

namespace allod {

// The order in which threads may take locks, and in which fork takes them: a thread may only take
// locks of a higher rank than those it holds.
enum class LockRank : std::uint8_t { domain, records, samples, fork, registry, space, metadata };

// Counts the locks that the calling thread holds or is about to take. A signal handler that
// interrupts it then must not wait for a lock.
struct HeldLocks {
  [[nodiscard]] static bool any() noexcept { return count != 0; }
  // Whether one of them is needed to get memory from the system, or to return it.
  [[nodiscard]] static ALLOD_INLINE bool any_of_space() noexcept { return count >= kOfSpace; }
  [[nodiscard]] static constexpr std::uint16_t weight_of(LockRank rank) noexcept {
    return rank >= LockRank::fork ? kOfSpace : 1;
  }
  static ALLOD_INLINE void begin(std::uint32_t weight) noexcept {
    count += weight;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  static ALLOD_INLINE void end(std::uint32_t weight) noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    count -= weight;
  }
  // Where the calling thread's counter is.
  [[nodiscard]] static Address place() noexcept { return address_of(&count); }

 private:
  static constexpr std::uint16_t kOfSpace = 1U << 15;
  ALLOD_THREAD_LOCAL(std::uint32_t, count, 0);
};

// Ranks of the calling thread's locks, one bit each. Maintained only in builds that check ranks.
template <bool kChecked>
struct HeldRanks {
  static void acquire(LockRank) noexcept {}
  static void release(LockRank) noexcept {}
};
template <>
struct HeldRanks<true> {
  static void acquire(LockRank rank) noexcept {
    const auto bit = 1U << static_cast<unsigned>(rank);
    always_check(mask < bit, "lock taken against its rank");
    mask |= bit;
  }
  static void release(LockRank rank) noexcept { mask &= ~(1U << static_cast<unsigned>(rank)); }
  ALLOD_THREAD_LOCAL(unsigned, mask, 0);
};

// A futex lock with three states (free, held, held with sleepers), after U. Drepper, "Futexes Are
// Tricky". `Waiter` provides static futex_wait(word, expected), futex_wake(word, count) and self(),
// which identifies a thread, unchanged in a child of fork. Constant-initialised: usable before any
// constructor.
template <class Waiter, bool kCheckRanks>
class RankedLock {
 public:
  constexpr explicit RankedLock(LockRank rank) noexcept
      : rank_{rank}, weight_{HeldLocks::weight_of(rank)} {}

  ALLOD_HOT void lock() noexcept {
    if (try_lock()) return;
    if (passes()) return;
    HeldLocks::begin(weight_);
    lock_slow();
    HeldRanks<kCheckRanks>::acquire(rank_);
  }
  [[nodiscard]] ALLOD_INLINE bool try_lock() noexcept {
    HeldLocks::begin(weight_);
    std::uint32_t expected = kFree;
    if (!state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire)) {
      HeldLocks::end(weight_);
      return false;
    }
    HeldRanks<kCheckRanks>::acquire(rank_);
    return true;
  }
  ALLOD_INLINE void unlock() noexcept {
    if (passes()) return;
    HeldRanks<kCheckRanks>::release(rank_);
    if (state_.exchange(kFree, std::memory_order_release) == kContended) {
      Waiter::futex_wake(&state_, 1);
    }
    HeldLocks::end(weight_);
  }
  // Around a fork. The program's fork handlers may run in between, on the forking thread and in its
  // child, and may allocate, so lock() lets that thread pass.
  void lock_for_fork() noexcept {
    lock();
    forker_.store(Waiter::self(), std::memory_order_relaxed);
  }
  void unlock_in_parent() noexcept {
    forker_.store(nullptr, std::memory_order_relaxed);
    unlock();
  }
  void reset_in_child() noexcept {
    HeldRanks<kCheckRanks>::release(rank_);
    if (passes()) HeldLocks::end(weight_);
    forker_.store(nullptr, std::memory_order_relaxed);
    state_.store(kFree, std::memory_order_relaxed);
  }
  // How often a thread found the lock taken.
  [[nodiscard]] std::uint64_t contended() const noexcept {
    return contended_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kContended = 2;
  static constexpr int kSpins = 64;

  // Whether the caller holds the lock for a fork.
  [[nodiscard]] ALLOD_HOT bool passes() const noexcept {
    void* const forker = forker_.load(std::memory_order_relaxed);
    return __builtin_expect(forker != nullptr, 0) && forker == Waiter::self();
  }

  ALLOD_COLD void lock_slow() noexcept {
    contended_.fetch_add(1, std::memory_order_relaxed);
    for (int spin = 0; spin < kSpins; ++spin) {
      std::uint32_t expected = kFree;
      if (state_.load(std::memory_order_relaxed) == kFree &&
          state_.compare_exchange_weak(expected, kHeld, std::memory_order_acquire)) {
        return;
      }
      cpu_relax();
    }
    while (state_.exchange(kContended, std::memory_order_acquire) != kFree) {
      Waiter::futex_wait(&state_, kContended);
    }
  }

  std::atomic<std::uint32_t> state_{kFree};
  const LockRank rank_;
  const std::uint16_t weight_;  // fits beside rank_
  std::atomic<void*> forker_{nullptr};
  std::atomic<std::uint64_t> contended_{0};
};

template <class Lock>
class LockGuard {
 public:
  explicit LockGuard(Lock& lock) noexcept : lock_{lock} { lock_.lock(); }
  ALLOD_INLINE ~LockGuard() { lock_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  Lock& lock_;
};

}  // namespace allod

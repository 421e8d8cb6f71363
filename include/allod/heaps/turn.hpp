// Turns of threads on a first-class heap, most of them of the same thread.
#pragma once

#include "allod/base/list.hpp"
#include "allod/heap/slow_path.hpp"

namespace allod::heaps {

// A thread's announcement of the heap that it has a turn on. A seat belongs to one thread at a time
// and is never freed, so that any thread may read it at any time.
//
// It belongs to the thread and not to the heap, since an announcement may come too late. Between
// the thread's look at the heap and its announcement, the heap may have come to lean to another
// thread, whose announcement must not be overwritten.
struct alignas(kCacheLine) Seat {
  constexpr Seat() noexcept = default;
  constexpr explicit Seat(const void* in) noexcept : on{in} {}

  std::atomic<const void*> on{nullptr};
  ListLinks<Seat> links;       // in the list of all
  ListLinks<Seat> free_links;  // in the list of unused ones
};
// For heaps that lean to no thread.
inline constinit Seat nobodys_seat{&nobodys_seat};
// The calling thread's seat, or null.
template <class Gate>
[[nodiscard]] ALLOD_INLINE Seat* own_seat() noexcept {
  return static_cast<Seat*>(Gate::own_word());
}

// The state of turns on a heap, which may lean to a thread.
//
// The thread that a heap leans to takes turns by plain stores: it announces itself, and then checks
// that the heap still leans to it. Any other thread takes the lock, ends the leaning, makes all
// threads pass a memory barrier, and waits until the first has left. (Biased locks, after D. Dice,
// M. Moir and W. Scherer; the barrier is the system's, as for forks.) A heap that leans to no
// thread is a lock. After a thread has had the lock often in a row, the heap leans to it. Each time
// that this was a mistake doubles the number.
template <class Lock>
struct HeapTurns {
  static constexpr std::uint32_t kFirstPatience = 64;
  static constexpr std::uint32_t kMostPatience = 1U << 20;
  // Marked blocks after which others end the leaning to a thread that does not collect them.
  static constexpr std::uint32_t kMostMarks = 256;

  Lock lock{LockRank::domain};
  std::atomic<Seat*> leans_to{&nobodys_seat};
  // The seat that it leaned to last, until another thread has seen that one leave; or null.
  std::atomic<Seat*> leaned_to{nullptr};
  std::atomic<bool> in_slow_path{false};  // a thread with the lock has its turn
  bool may_lean = true;                   // guarded by the lock, like the members behind `marks`
  std::atomic<std::uint32_t> marks{0};
  void* last = nullptr;  // the last thread with the lock
  std::uint32_t in_a_row = 0;
  std::uint32_t patience = kFirstPatience;

  // In a turn with the lock: after it, the heap leans to this thread.
  void favour(void* self) noexcept {
    patience = kFirstPatience;
    in_a_row = patience;
    last = self;
  }
  // In a turn, when the heap ends.
  void lean_to_nobody() noexcept { leans_to.store(&nobodys_seat, std::memory_order_relaxed); }
  // Under the lock, after the thread that it leaned to has left.
  void lean_to(Seat& seat) noexcept {
    leaned_to.store(&seat, std::memory_order_relaxed);
    leans_to.store(&seat, std::memory_order_relaxed);
  }
  // Whether the thread that it leans to, or leaned to, has a turn.
  [[nodiscard]] bool is_leaning_in() const noexcept {
    const Seat* const seat = leaned_to.load(std::memory_order_relaxed);
    return seat != nullptr && seat->on.load(std::memory_order_acquire) == this;
  }
  // In the child of a fork, whose only thread was in no turn.
  void reset_in_child() noexcept {
    lock.reset_in_child();
    lean_to_nobody();
    leaned_to.store(nullptr, std::memory_order_relaxed);
    in_slow_path.store(false, std::memory_order_relaxed);
  }
  [[nodiscard]] bool has_many_marks() const noexcept {
    return marks.load(std::memory_order_relaxed) >= kMostMarks;
  }
  [[nodiscard]] bool is_quiet() const noexcept {
    return !in_slow_path.load(std::memory_order_acquire) && !is_leaning_in();
  }
};

// The common turn, of the thread that the heap leans to. False, and no change, if another way must
// be tried.
template <class Turns, class Gate>
class LeaningTurn {
 public:
  ALLOD_INLINE LeaningTurn(const Turns& turns, const Gate& gate) noexcept {
    Seat* const seat = own_seat<Gate>();
    if (__builtin_expect(!holds(turns.leans_to, seat), 0)) return;
    // A signal handler has interrupted a turn.
    if (__builtin_expect(!holds(seat->on, nullptr), 0)) return;
    // A thread that reads this heap here sees the writes of the turn before.
    seat->on.store(&turns, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (__builtin_expect(!holds(turns.leans_to, seat), 0) ||
        __builtin_expect(gate.is_closed(), 0)) {
      seat->on.store(nullptr, std::memory_order_release);
      return;
    }
    seat_ = seat;
  }
  ALLOD_INLINE ~LeaningTurn() {
    if (seat_ != nullptr) seat_->on.store(nullptr, std::memory_order_release);
  }
  LeaningTurn(const LeaningTurn&) = delete;
  LeaningTurn& operator=(const LeaningTurn&) = delete;
  [[nodiscard]] ALLOD_INLINE explicit operator bool() const noexcept { return seat_ != nullptr; }
  // A callee calls end_passed().
  ALLOD_INLINE void pass_on() noexcept { seat_ = nullptr; }
  static ALLOD_INLINE void end_passed() noexcept {
    own_seat<Gate>()->on.store(nullptr, std::memory_order_release);
  }

 private:
  Seat* seat_ = nullptr;
};

// Any turn. A fork finds nothing half changed; see heap/turn.hpp.
template <class Turns, class Gate>
class HeapTurn {
 public:
  enum class Wait : bool { no, yes };

  ALLOD_INLINE HeapTurn(Turns& turns, Gate& gate, Wait wait = Wait::yes) noexcept
      : turns_{turns}, leaning_{turns, gate} {
    if (__builtin_expect(!leaning_, 0)) begin(gate, wait);
  }
  ALLOD_INLINE ~HeapTurn() {
    if (__builtin_expect(has_lock_, 0)) end();
  }
  HeapTurn(const HeapTurn&) = delete;
  HeapTurn& operator=(const HeapTurn&) = delete;

  // False only for a refused turn with Wait::no.
  [[nodiscard]] ALLOD_INLINE explicit operator bool() const noexcept { return leaning_ || is_in_; }

 private:
  ALLOD_NOINLINE void begin(Gate& gate, Wait wait) noexcept {
    for (;;) {
      if (gate.lets_pass()) {
        is_in_ = true;
        return;
      }
      if (!turns_.lock.try_lock()) {
        if (wait == Wait::no) return;
        turns_.lock.lock();
      }
      if (!straighten(gate, wait)) return turns_.lock.unlock();
      turns_.in_slow_path.store(true, std::memory_order_relaxed);
      gate.order();
      if (__builtin_expect(!gate.is_closed(), 1)) break;
      turns_.in_slow_path.store(false, std::memory_order_release);
      turns_.lock.unlock();
      static_cast<void>(gate.holds_back());
    }
    is_in_ = has_lock_ = true;
    can_lean_ = gate.has_barrier();
  }
  // Under the lock: ends the leaning, and waits until the other thread has left.
  [[nodiscard]] bool straighten(Gate& gate, Wait wait) noexcept {
    Seat* const leaning = turns_.leans_to.load(std::memory_order_relaxed);
    if (leaning != &nobodys_seat) {
      // A free that does not wait leaves a mark for the other thread, up to kMostMarks.
      if (wait == Wait::no && !turns_.has_many_marks()) return false;
      const bool was_own = leaning == own_seat<Gate>();
      turns_.lean_to_nobody();
      gate.barrier();
      // A fork has kept the thread out of its own heap, which it uses as before.
      if (!was_own && turns_.patience < Turns::kMostPatience) turns_.patience *= 2;
      turns_.in_a_row = was_own ? turns_.patience : 0;
      turns_.last = Gate::self();
    }
    while (turns_.is_leaning_in()) {
      if (wait == Wait::no) return false;
      gate.yield();
    }
    turns_.leaned_to.store(nullptr, std::memory_order_relaxed);
    return true;
  }
  ALLOD_NOINLINE void end() noexcept {
    void* const self = Gate::self();
    turns_.in_a_row = turns_.last == self ? turns_.in_a_row + 1 : 0;
    turns_.last = self;
    turns_.in_slow_path.store(false, std::memory_order_release);
    if (can_lean_ && turns_.may_lean && turns_.in_a_row >= turns_.patience) {
      Seat* const seat = own_seat<Gate>();
      if (seat != nullptr && seat != &nobodys_seat) turns_.lean_to(*seat);
    }
    turns_.lock.unlock();
  }

  Turns& turns_;
  LeaningTurn<Turns, Gate> leaning_;
  bool is_in_ = false;
  bool has_lock_ = false;
  bool can_lean_ = false;
};

}  // namespace allod::heaps

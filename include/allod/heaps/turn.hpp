// A first-class heap that threads use one at a time, and mostly the same one.
#pragma once

#include "allod/base/list.hpp"
#include "allod/heap/slow_path.hpp"

namespace allod::heaps {

// Where a thread says which heap it is in its turn on. It belongs to one thread at a time and is
// never given back to the system, so that others can look at it whenever they like.
//
// It is the thread's and not the heap's, because a thread may say so much too late: between its
// look at the heap and its word that it is in, the heap can have come to lean to another thread,
// whose word must not be lost.
struct alignas(kCacheLine) Seat {
  constexpr Seat() noexcept = default;
  constexpr explicit Seat(const void* in) noexcept : on{in} {}

  std::atomic<const void*> on{nullptr};
  ListLinks<Seat> links;       // of all
  ListLinks<Seat> free_links;  // of those that are nobody's
};
// To which a heap leans that leans to no thread.
inline constinit Seat nobodys_seat{&nobodys_seat};
// The calling thread's, or null.
template <class Gate>
[[nodiscard]] ALLOD_INLINE Seat* own_seat() noexcept {
  return static_cast<Seat*>(Gate::own_word());
}

// Whose turn it is on a heap, and to whom it leans.
//
// The thread that a heap leans to takes its turns by plain stores: it says that it is in, and
// then looks whether the heap still leans to it. Any other thread first takes the lock and the
// leaning away, has all threads pass a memory barrier, and waits until the first is out. (Biased
// locks, after D. Dice, M. Moir and W. Scherer; the barrier is the system's, as for forks.) A heap
// that leans to nobody is a lock. It leans to a thread that has had the lock often in a row, and
// the more often that was a mistake, the later.
template <class Lock>
struct HeapTurns {
  static constexpr std::uint32_t kFirstPatience = 64;
  static constexpr std::uint32_t kMostPatience = 1U << 20;
  // Blocks that others mark as free before they take the leaning from a thread that does not look.
  static constexpr std::uint32_t kMostMarks = 256;

  Lock lock{LockRank::domain};
  std::atomic<Seat*> leans_to{&nobodys_seat};
  // To which it leaned last, until somebody has seen that thread out; or null.
  std::atomic<Seat*> leaned_to{nullptr};
  std::atomic<bool> in_slow_path{false};  // a thread with the lock is in its turn
  bool may_lean = true;                   // guarded by the lock, as is what follows `marks`
  std::atomic<std::uint32_t> marks{0};
  void* last = nullptr;  // who had it last
  std::uint32_t in_a_row = 0;
  std::uint32_t patience = kFirstPatience;

  // In a turn with the lock: from its end on the heap leans to the thread that has it.
  void favour(void* self) noexcept {
    patience = kFirstPatience;
    in_a_row = patience;
    last = self;
  }
  // In a turn: there is nothing to take turns on any more.
  void lean_to_nobody() noexcept { leans_to.store(&nobodys_seat, std::memory_order_relaxed); }
  // Under the lock, when whom it leaned to is out.
  void lean_to(Seat& seat) noexcept {
    leaned_to.store(&seat, std::memory_order_relaxed);
    leans_to.store(&seat, std::memory_order_relaxed);
  }
  // Has the thread that it leans to, or leaned to, a turn?
  [[nodiscard]] bool is_leaning_in() const noexcept {
    const Seat* const seat = leaned_to.load(std::memory_order_relaxed);
    return seat != nullptr && seat->on.load(std::memory_order_acquire) == this;
  }
  // In the child of a fork, which is alone and was in no turn.
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

// The common turn, of the thread that the heap leans to. False, and nothing is done, when
// another way has to be tried.
template <class Turns, class Gate>
class LeaningTurn {
 public:
  ALLOD_INLINE LeaningTurn(const Turns& turns, const Gate& gate) noexcept {
    Seat* const seat = own_seat<Gate>();
    if (__builtin_expect(!holds(turns.leans_to, seat), 0)) return;
    // A signal handler has interrupted a turn.
    if (__builtin_expect(!holds(seat->on, nullptr), 0)) return;
    // Whoever finds this heap there has seen what was done to the one before.
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
  // Whoever is called next calls end_passed().
  ALLOD_INLINE void pass_on() noexcept { seat_ = nullptr; }
  static ALLOD_INLINE void end_passed() noexcept {
    own_seat<Gate>()->on.store(nullptr, std::memory_order_release);
  }

 private:
  Seat* seat_ = nullptr;
};

// Any turn; a fork finds nothing half changed, see heap/turn.hpp.
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

  // False only for a turn that should not be waited for.
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
  // Under the lock: makes the heap lean to nobody, and waits until nobody is in.
  [[nodiscard]] bool straighten(Gate& gate, Wait wait) noexcept {
    Seat* const leaning = turns_.leans_to.load(std::memory_order_relaxed);
    if (leaning != &nobodys_seat) {
      // A free that does not wait leaves a mark, which the other will see; not for ever.
      if (wait == Wait::no && !turns_.has_many_marks()) return false;
      const bool was_own = leaning == own_seat<Gate>();
      turns_.lean_to_nobody();
      gate.barrier();
      // A fork has kept its own thread out, which goes on as before.
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

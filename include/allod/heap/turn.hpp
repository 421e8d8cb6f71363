// Turns of many threads on one domain.
#pragma once

#include "allod/heap/slow_path.hpp"

namespace allod::heap {

// A thread's turn on a shared domain: holds its lock, and is a slow path, so that a fork finds
// nothing half changed. Misuse may be reported with the lock held.
//
// A thread that waits for a fork releases the lock. The forking thread needs no lock, as all others
// are kept out; the child resets it.
template <class D, class Gate>
class Turn {
 public:
  enum class Wait : bool { no, yes };

  ALLOD_INLINE Turn(D& domain, Gate& gate, Wait wait = Wait::yes) noexcept
      : domain_{domain}, gate_{gate} {
    for (;;) {
      if (gate_.lets_pass()) {
        state_ = State::passing;
        return;
      }
      if (!domain_.lock.try_lock()) {
        if (wait == Wait::no) return;
        domain_.lock.lock();
      }
      domain_.holder.store(Gate::self(), std::memory_order_relaxed);
      domain_.in_slow_path.store(true, std::memory_order_relaxed);
      gate_.order();
      if (__builtin_expect(!gate_.is_closed(), 1)) break;
      leave();
      if (wait == Wait::no) return;
      static_cast<void>(gate_.holds_back());
    }
    ++domain_.turns;
    state_ = State::holding;
  }
  ALLOD_INLINE ~Turn() {
    if (state_ == State::holding) leave();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // False only for a refused turn with Wait::no.
  [[nodiscard]] explicit operator bool() const noexcept { return state_ != State::none; }

  // Whether the calling thread has a turn already. A signal handler that allocates or forks must
  // not wait for the thread that it interrupts. True wherever that one has a slow path.
  [[nodiscard]] static bool is_callers(const D& domain) noexcept {
    return domain.holder.load(std::memory_order_relaxed) == Gate::self();
  }

 private:
  enum class State : unsigned char { none, passing, holding };

  ALLOD_INLINE void leave() noexcept {
    domain_.in_slow_path.store(false, std::memory_order_release);
    domain_.holder.store(nullptr, std::memory_order_relaxed);
    domain_.lock.unlock();
  }

  D& domain_;
  Gate& gate_;
  State state_ = State::none;
};

}  // namespace allod::heap

// A domain that many threads use, one at a time.
#pragma once

#include "allod/heap/slow_path.hpp"

namespace allod::heap {

// A thread's turn on a shared domain: its lock, held, and a slow path that lasts as
// long, so that a fork finds nothing half changed. What is called for the domain
// meanwhile may report misuse with the lock held.
//
// A thread that waits for a fork to end lets go of the lock. The forking thread
// needs none, as all others are kept out; the child makes it free again.
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
      domain_.in_slow_path.store(true, std::memory_order_relaxed);
      gate_.order();
      if (__builtin_expect(!gate_.is_closed(), 1)) break;
      domain_.in_slow_path.store(false, std::memory_order_release);
      domain_.lock.unlock();
      static_cast<void>(gate_.holds_back());
    }
    domain_.holder.store(Gate::self(), std::memory_order_relaxed);
    state_ = State::holding;
  }
  ALLOD_INLINE ~Turn() {
    if (state_ != State::holding) return;
    domain_.holder.store(nullptr, std::memory_order_relaxed);
    domain_.in_slow_path.store(false, std::memory_order_release);
    domain_.lock.unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // False only for a turn that should not be waited for.
  [[nodiscard]] explicit operator bool() const noexcept { return state_ != State::none; }

  // Has the calling thread a turn already? A signal handler that allocates must not
  // wait for the thread that it interrupts.
  [[nodiscard]] static bool is_callers(const D& domain) noexcept {
    return domain.holder.load(std::memory_order_relaxed) == Gate::self();
  }

 private:
  enum class State : unsigned char { none, passing, holding };

  D& domain_;
  Gate& gate_;
  State state_ = State::none;
};

// A shared domain of a heap, with what entry points do around it: magazines first,
// the heap second. As light as two pointers, and thread-safe. All calls wait for
// their turn; see Turn::is_callers for signal handlers.
template <class Heap>
class LockedDomain {
 public:
  using Domain = typename Heap::Domain;
  using Turn = typename Heap::Turn;
  using Sizes = typename Heap::Sizes;

  LockedDomain(Heap& heap, Domain& domain) noexcept : heap_{heap}, domain_{domain} {}

  // Null when the system refuses. `zero`: null, or set to whether the block is known
  // to be all zeros.
  [[nodiscard]] void* allocate(std::size_t size, bool* zero) noexcept {
    Turn turn{domain_, heap_.gate()};
    if (zero != nullptr) *zero = false;
    if (size <= Sizes::kMaxSize) return heap_.allocate_class(domain_, Sizes::of(size), zero);
    return heap_.allocate(domain_, size, zero);
  }
  // `alignment`: above 16, a power of two.
  [[nodiscard]] void* allocate_aligned(std::size_t size, std::size_t alignment) noexcept {
    Turn turn{domain_, heap_.gate()};
    return heap_.allocate_aligned(domain_, size, alignment, nullptr);
  }
  // Any address. A block of another domain is sent home with others, some time.
  void release(void* block) noexcept {
    Turn turn{domain_, heap_.gate()};
    heap_.release(domain_, block);
  }
  [[nodiscard]] void* resize_in_place(void* block, std::size_t size) noexcept {
    Turn turn{domain_, heap_.gate()};
    return heap_.resize_in_place(&domain_, block, size);
  }
  std::size_t trim() noexcept {
    Turn turn{domain_, heap_.gate()};
    return heap_.trim(domain_);
  }

 private:
  Heap& heap_;
  Domain& domain_;
};

}  // namespace allod::heap

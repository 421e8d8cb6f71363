// Slabs with blocks that other threads have freed, waiting for their owner.
#pragma once

#include <atomic>

#include "allod/base/base.hpp"

namespace allod::slab {

class Slab;

// Any thread pushes, only the owner takes, so there is no ABA. A
// slab is in at most one inbox, and at most once, because only the thread that
// changed its `announced` from 0 to 1 pushes it.
class Inbox {
 public:
  constexpr Inbox() noexcept = default;

  // False when the inbox is closed. Thread-safe.
  [[nodiscard]] bool push(Slab* slab) noexcept;

  [[nodiscard]] bool empty() const noexcept {
    return head_.load(std::memory_order_relaxed) == nullptr;
  }
  // Calls `visit` for each slab, which may be announced again from then on.
  // Owner only.
  template <class Visit>
  void take_all(Visit&& visit) noexcept {
    visit_all(head_.exchange(nullptr), visit);
  }
  // Takes the slab that came last, or null; it may be announced again from then on. Owner only: as
  // nobody else takes any, a slab that is still the first never was away.
  [[nodiscard]] Slab* take_last() noexcept;
  // Takes everything, and pushes fail from now on.
  template <class Visit>
  void close(Visit&& visit) noexcept {
    visit_all(head_.exchange(closed()), visit);
  }
  void open() noexcept { head_.store(nullptr); }

 private:
  static Slab* closed() noexcept { return reinterpret_cast<Slab*>(1); }
  static Slab* next(const Slab* slab) noexcept;
  static void accept(Slab* slab) noexcept;

  template <class Visit>
  static void visit_all(Slab* slab, Visit&& visit) noexcept {
    while (slab != nullptr && slab != closed()) {
      Slab* const following = next(slab);
      accept(slab);
      visit(slab);
      slab = following;
    }
  }

  std::atomic<Slab*> head_{nullptr};
};

// What a slab knows of its domain.
struct Owner {
  Inbox inbox;
};

}  // namespace allod::slab

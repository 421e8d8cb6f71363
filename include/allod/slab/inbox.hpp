// Slabs with remote frees, waiting for their owner.
#pragma once

#include <atomic>

#include "allod/base/base.hpp"

namespace allod::slab {

class Slab;

// Any thread pushes and only the owner takes, so there is no ABA problem. A slab is in at most one
// inbox, at most once: only the thread that changed its link from 0 pushes it.
class Inbox {
 public:
  constexpr Inbox() noexcept = default;

  // False if the inbox is closed; the slab stays announced, and is the caller's to push elsewhere.
  // Thread-safe.
  [[nodiscard]] bool push(Slab* slab) noexcept;

  [[nodiscard]] bool empty() const noexcept {
    return head_.load(std::memory_order_relaxed) == nullptr;
  }
  // Visits and removes each slab, which may be announced again from then on. Owner only.
  template <class Visit>
  void take_all(Visit&& visit) noexcept {
    visit_all(head_.exchange(nullptr), visit);
  }
  // Takes the slab that was pushed last, or null. It may be announced again from then on. Owner
  // only: as no other thread takes slabs, one that is still the first was never away.
  [[nodiscard]] Slab* take_last() noexcept;
  // Takes all slabs; from then on pushes fail.
  template <class Visit>
  void close(Visit&& visit) noexcept {
    visit_all(head_.exchange(closed()), visit);
  }
  void open() noexcept { head_.store(nullptr); }

 private:
  static Slab* closed() noexcept { return reinterpret_cast<Slab*>(1); }
  static Slab* next(const Slab* slab) noexcept;
  static Slab* accept(Slab* slab) noexcept;

  template <class Visit>
  static void visit_all(Slab* slab, Visit&& visit) noexcept {
    while (slab != nullptr && slab != closed()) {
      Slab* const following = accept(slab);
      visit(slab);
      slab = following;
    }
  }

  std::atomic<Slab*> head_{nullptr};
};

// The part of a domain that its slabs know.
struct Owner {
  Inbox inbox;
};

}  // namespace allod::slab

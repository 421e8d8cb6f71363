// The domains of threads that have none of their own.
#pragma once

#include "allod/heaps/heap.hpp"

namespace allod::thread {

// A few at first, as each has slabs of its own. One more when threads have often found all of them
// taken, up to one for each processor. Each serves one memory node: domain i node i % nodes, so
// there is at least one for each. Made when first needed. Static and constant-initialised like the
// heap; thread-safe.
template <class Heap>
class SharedDomains {
 public:
  using Domain = typename Heap::Domain;
  using Turn = typename Heap::Turn;

  constexpr SharedDomains() noexcept = default;

  void start(Heap& heap) noexcept {
    nodes_ = heap.space().nodes();
    set_most(heap.processors());
  }
  // Once, early: limits the domains to the container's quota of processors, if that is less than
  // their number, and returns it; else returns 0. A number in the options stands.
  std::uint32_t respect_quota(Heap& heap) noexcept {
    const std::uint32_t most = most_.load(std::memory_order_relaxed);
    if (most <= kLeast || heap.options().processors != 0) return 0;
    const std::uint32_t quota = heap.space().platform().processor_quota();
    if (quota == 0 || quota >= most) return 0;
    set_most(quota);
    return quota;
  }

  // Calls `use(domain)` in a turn on a domain that is likely to be free, and returns its result.
  // Null without a call if there is no memory for a domain, or none is free and the caller may not
  // wait.
  template <class Use>
  ALLOD_HOT void* with_any(Heap& heap, bool may_wait, Use&& use) noexcept {
    const std::uint32_t first = here();
    const std::uint32_t count = this->count();
    for (std::uint32_t i = 0; i < count; i += nodes_) {
      Domain* const domain = at(heap, (first + i) % count);
      if (domain == nullptr) continue;
      Turn turn{*domain, heap.gate(), Turn::Wait::no};
      if (turn) return use(*domain);
    }
    Domain* const domain = domains_[first].load(std::memory_order_acquire);
    if (!may_wait || domain == nullptr) return nullptr;
    if (are_few() && !heap.gate().is_closed()) note_wait(count);
    Turn turn{*domain, heap.gate()};
    return use(*domain);
  }

  // The domain of the calling thread's processor, or null.
  [[nodiscard]] Domain* near(Heap& heap) noexcept { return at(heap, here()); }
  // The same if it exists already.
  [[nodiscard]] Domain* made_near() const noexcept {
    return domains_[here()].load(std::memory_order_acquire);
  }
  // The domain of a processor on which the calling thread has just been, or null.
  [[nodiscard]] Domain* of_processor(Heap& heap, std::uint32_t number) noexcept {
    if (__builtin_expect(nodes_ <= 1, 1)) return at(heap, number % count());
    const std::uint32_t node = Heap::Platform::node_of(number);
    return node == ~0U ? nullptr : at(heap, index_of(number, node % nodes_));
  }

  // Whether several processors share a domain.
  [[nodiscard]] bool are_few() const noexcept {
    return count() < most_.load(std::memory_order_relaxed);
  }

  // Visits each existing domain.
  template <class Visit>
  void for_each(Visit&& visit) noexcept {
    for (std::uint32_t i = 0; i < kMost; ++i) {
      if (Domain* const domain = domains_[i].load(std::memory_order_acquire)) visit(*domain);
    }
  }

 private:
  static constexpr std::uint32_t kLeast = 2;
  static constexpr std::uint32_t kFirst = 4;
  // For each domain that there is.
  static constexpr std::uint32_t kManyWaits = 256;
  static constexpr std::uint32_t kMost = 64;

  [[nodiscard]] std::uint32_t count() const noexcept {
    return count_.load(std::memory_order_relaxed);
  }
  // Both numbers are multiples of the nodes.
  void set_most(std::uint32_t wanted) noexcept {
    const auto rounded = [&](std::uint32_t number) noexcept {
      return number < nodes_ ? nodes_ : number - number % nodes_;
    };
    const std::uint32_t most = rounded(wanted < kLeast ? kLeast : wanted < kMost ? wanted : kMost);
    const std::uint32_t first = rounded(kFirst);
    most_.store(most, std::memory_order_relaxed);
    count_.store(most < first ? most : first, std::memory_order_relaxed);
  }
  // A thread waits for one of `count` domains, of which there may be more.
  ALLOD_COLD void note_wait(std::uint32_t count) noexcept {
    if (waits_.fetch_add(1, std::memory_order_relaxed) < kManyWaits * count) return;
    waits_.store(0, std::memory_order_relaxed);
    count_.compare_exchange_strong(count, count + nodes_, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t here() const noexcept {
    const std::uint32_t processor = Heap::Platform::processor();
    if (__builtin_expect(nodes_ <= 1, 1)) return processor % count();
    return index_of(processor, Heap::Platform::node() % nodes_);
  }
  // Processors of a node may follow one another, or alternate with those of others.
  [[nodiscard]] std::uint32_t index_of(std::uint32_t processor, std::uint32_t node) const noexcept {
    return processor / nodes_ % (count() / nodes_) * nodes_ + node;
  }
  [[nodiscard]] Domain* at(Heap& heap, std::uint32_t index) noexcept {
    Domain* const domain = domains_[index].load(std::memory_order_acquire);
    return __builtin_expect(domain != nullptr, 1) ? domain : make(heap, index);
  }
  [[nodiscard]] ALLOD_COLD Domain* make(Heap& heap, std::uint32_t index) noexcept {
    Domain* const made = heap.attach_shared();
    if (made == nullptr) return nullptr;
    Domain* there = nullptr;
    if (domains_[index].compare_exchange_strong(there, made)) return made;
    heap.detach(*made);
    return there;
  }

  std::uint32_t nodes_ = 1;
  std::atomic<std::uint32_t> count_{1};
  std::atomic<std::uint32_t> most_{1};
  std::atomic<std::uint32_t> waits_{0};  // since the last domain was added
  std::atomic<Domain*> domains_[kMost] = {};
};

}  // namespace allod::thread

// Shared domains, for the tests of layer 5.
#pragma once

#include "heap_world.hpp"

namespace allod::test {

// A shared domain, with what entry points do around it: magazines first, the heap second, each
// call in a turn.
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

class HeapShared : public HeapWorld {
 protected:
  using Heap = FakeProgram::Heap;
  using Locked = LockedDomain<Heap>;
  using Turn = Heap::Turn;
  using Magazine = heap::Magazine;

  Domain& attach_shared() {
    Domain* const domain = heap.attach_shared();
    always_check(domain != nullptr, "no domain");
    return *domain;
  }
  static bool is_at_rest(const Domain& domain) {
    return !domain.in_slow_path.load() && domain.holder.load() == nullptr;
  }
};

}  // namespace allod::test

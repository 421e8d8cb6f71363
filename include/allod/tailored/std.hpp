// Tailored heaps for the containers of the C++ library.
#pragma once

#include <cstddef>
#include <limits>
#include <memory_resource>
#include <new>

#include "allod/tailored/heap.hpp"

namespace allod {

namespace tailored {
[[noreturn]] inline void throw_bad_alloc() {
#ifdef __cpp_exceptions
  throw std::bad_alloc{};
#else
  __builtin_trap();
#endif
}
}  // namespace tailored

// A standard allocator over a heap that outlives it. Allocators over the same heap are equal.
template <class T, class Heap>
class TailoredAllocator {
 public:
  using value_type = T;
  template <class U>
  struct rebind {
    using other = TailoredAllocator<U, Heap>;
  };

  explicit TailoredAllocator(Heap& heap) noexcept : heap_{&heap} {}
  template <class U>
  TailoredAllocator(const TailoredAllocator<U, Heap>& other) noexcept : heap_{&other.heap()} {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) tailored::throw_bad_alloc();
    void* const block = count == 1 && kPlain
                            ? heap_->template allocate<kOne>()
                            : heap_->allocate_aligned(count * sizeof(T), alignof(T));
    if (block == nullptr) tailored::throw_bad_alloc();
    return static_cast<T*>(block);
  }
  void deallocate(T* block, std::size_t) noexcept { heap_->deallocate(block); }

  [[nodiscard]] Heap& heap() const noexcept { return *heap_; }
  template <class U>
  friend bool operator==(const TailoredAllocator& a, const TailoredAllocator<U, Heap>& b) noexcept {
    return &a.heap() == &b.heap();
  }

 private:
  // Sizes are multiples of 8, so a class for one element aligns it.
  static constexpr bool kPlain =
      alignof(T) <= 8 && (sizeof(T) <= Heap::kLargestClass || Heap::kServesAnySize);
  static constexpr std::size_t kOne = kPlain ? sizeof(T) : 1;

  Heap* heap_;
};

// A memory resource over a heap that outlives it.
template <class Heap>
class TailoredResource : public std::pmr::memory_resource {
 public:
  explicit TailoredResource(Heap& heap) noexcept : heap_{&heap} {}
  [[nodiscard]] Heap& heap() const noexcept { return *heap_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* const block = heap_->allocate_aligned(bytes, alignment);
    if (block == nullptr) tailored::throw_bad_alloc();
    return block;
  }
  void do_deallocate(void* block, std::size_t, std::size_t) override { heap_->deallocate(block); }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    const auto* const same = dynamic_cast<const TailoredResource*>(&other);
    return same != nullptr && same->heap_ == heap_;
  }

  Heap* heap_;
};

}  // namespace allod

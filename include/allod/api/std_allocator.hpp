// Layer 8: an allocator for the containers of the standard library.
#pragma once

#include <limits>
#include <type_traits>

#include "allod/api/heap.hpp"

namespace allod {

// Allocates from a heap, or from the process like operator new. The heap must outlive all
// containers that use it. Allocators are equal if they use the same heap. A container keeps its
// heap on copy assignment, and takes the other's on move assignment and swap, so blocks never
// outlive their heap.
template <class T>
class StdAllocator {
 public:
  using value_type = T;
  using is_always_equal = std::false_type;
  using propagate_on_container_copy_assignment = std::false_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  StdAllocator() noexcept = default;
  // Implicit, so that a heap can be passed as a container's allocator.
  StdAllocator(Heap& heap) noexcept : heap_{heap.handle()} {}
  template <class U>
  StdAllocator(const StdAllocator<U>& other) noexcept : heap_{other.handle()} {}

  // Throws std::bad_alloc; for the process, after the new-handler.
  [[nodiscard]] T* allocate(std::size_t count) {
    // No heap has room for SIZE_MAX bytes, so an overflow fails.
    const bool fits = count <= std::numeric_limits<std::size_t>::max() / sizeof(T);
    const std::size_t bytes = fits ? count * sizeof(T) : std::numeric_limits<std::size_t>::max();
    return static_cast<T*>(allocate_bytes(bytes));
  }
  void deallocate(T* block, std::size_t count) noexcept {
    const std::size_t bytes = count * sizeof(T);
    if (heap_ != nullptr) return allod_heap_free_sized(heap_, block, bytes);
    if constexpr (kOverAligned) return allod_delete_sized_aligned(block, bytes, alignof(T));
    allod_delete_sized(block, bytes);
  }
  // Null for the process.
  [[nodiscard]] allod_heap_t* handle() const noexcept { return heap_; }

  template <class U>
  friend bool operator==(const StdAllocator& a, const StdAllocator<U>& b) noexcept {
    return a.handle() == b.handle();
  }

 private:
  static constexpr bool kOverAligned = alignof(T) > alignof(std::max_align_t);

  [[nodiscard]] void* allocate_bytes(std::size_t bytes) {
    if (heap_ == nullptr) {
      if constexpr (kOverAligned) return allod_new_aligned(bytes, alignof(T));
      return allod_new(bytes);
    }
    void* block;
    if constexpr (kOverAligned) {
      block = allod_heap_aligned_alloc(heap_, alignof(T), bytes);
    } else {
      block = allod_heap_malloc(heap_, bytes);
    }
    if (block == nullptr) detail::throw_bad_alloc();
    return block;
  }

  allod_heap_t* heap_ = nullptr;
};

}  // namespace allod

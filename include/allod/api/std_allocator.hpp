// Layer 8: an allocator for the containers of the standard library.
#pragma once

#include <limits>
#include <type_traits>

#include "allod/api/heap.hpp"

namespace allod {

// Takes memory from a heap, or from the process like operator new. The heap must outlive
// every container that uses it. Two are equal when they name the same heap, as what one
// heap gives must not end up in a container that outlives it: a container keeps its heap
// when it is assigned by copy, and takes the other's along when it is moved or swapped.
template <class T>
class StdAllocator {
 public:
  using value_type = T;
  using is_always_equal = std::false_type;
  using propagate_on_container_copy_assignment = std::false_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  StdAllocator() noexcept = default;
  // Implicit, so that a heap can stand where a container wants its allocator.
  StdAllocator(Heap& heap) noexcept : heap_{heap.handle()} {}
  template <class U>
  StdAllocator(const StdAllocator<U>& other) noexcept : heap_{other.handle()} {}

  // Throws std::bad_alloc, after the new-handler where the process gives the memory.
  [[nodiscard]] T* allocate(std::size_t count) {
    // What is too large for any size is too large for any heap.
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

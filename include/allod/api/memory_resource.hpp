// Layer 8: a memory resource for the containers in std::pmr.
#pragma once

#include <memory_resource>

#include "allod/api/heap.hpp"

namespace allod {

// Allocates from a heap, which must outlive it, or from the process. Thread-safe. Equal to
// resources of the same heap only.
class MemoryResource final : public std::pmr::memory_resource {
 public:
  MemoryResource() noexcept = default;
  explicit MemoryResource(Heap& heap) noexcept : heap_{heap.handle()} {}

  // Null for the process.
  [[nodiscard]] allod_heap_t* handle() const noexcept { return heap_; }

 private:
  // Throws std::bad_alloc; for the process, after the new-handler.
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (heap_ == nullptr) return allod_new_aligned(bytes, alignment);
    void* const block = alignment <= alignof(std::max_align_t) && bytes >= alignment
                            ? allod_heap_malloc(heap_, bytes)
                            : allod_heap_aligned_alloc(heap_, alignment, bytes);
    if (block == nullptr) detail::throw_bad_alloc();
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    if (heap_ == nullptr) return allod_delete_sized_aligned(block, bytes, alignment);
    allod_heap_free_sized(heap_, block, bytes);
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
#if defined(__cpp_rtti)
    const auto* const same_kind = dynamic_cast<const MemoryResource*>(&other);
    return same_kind != nullptr && same_kind->heap_ == heap_;
#else
    return this == &other;
#endif
  }

  allod_heap_t* heap_ = nullptr;
};

}  // namespace allod

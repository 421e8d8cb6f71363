// The interface of a composed heap over the standard malloc, so that valgrind and the sanitizers
// see each allocation of the program.
#pragma once

#include <cstdlib>

#include "allod/tailored/heap.hpp"
#include "allod/tailored/leaks.hpp"

namespace allod {

// The end of the heap frees its blocks, as that of a composed heap would. Sizes without a class in
// the composition are refused as well. Thread-safe.
template <class Composition>
class SystemHeap {
  using P = tailored::Repaired<Composition>;
  using Sizes = tailored::ClassTable<typename P::Sizes>;
  using Where = std::source_location;

 public:
  using Pages = typename P::Pages;
  using Observer = typename P::Observer;
  using Figures = tailored::Figures;
  static constexpr bool kServesAnySize = P::Storage::kAnySize;
  static constexpr std::size_t kLargestClass = Sizes::kLargest;
  static constexpr std::size_t kChunkBytes = Pages::kChunkBytes;
  static constexpr bool kManyThreads = true;
  static constexpr bool kAligns = true;

  template <class... A>
  constexpr explicit SystemHeap(const char* name = "", A&&... pages) noexcept
      : name_{name}, pages_{static_cast<A&&>(pages)...} {}
  SystemHeap(const SystemHeap&) = delete;
  SystemHeap& operator=(const SystemHeap&) = delete;
  ~SystemHeap() { reset(); }

  template <std::size_t kSize>
  [[nodiscard]] void* allocate(Where where = Where::current()) noexcept {
    static_assert(Sizes::of(kSize) < Sizes::kCount || kServesAnySize,
                  "no size class of the heap holds so large a block");
    return allocate(kSize, where);
  }
  [[nodiscard]] void* allocate(std::size_t size, Where where = Where::current()) noexcept {
    return allocate_aligned(size, 1, where);
  }
  [[nodiscard]] void* allocate_aligned(std::size_t size, std::size_t alignment,
                                       Where where = Where::current()) noexcept {
    if (size > kLargestClass && !kServesAnySize) return nullptr;
    // malloc aligns for any type.
    void* block = nullptr;
    if (alignment <= alignof(std::max_align_t)) {
      block = std::malloc(size);
    } else if (::posix_memalign(&block, alignment, size) != 0) {
      return nullptr;
    }
    if (block == nullptr) return nullptr;
    LockGuard guard{lock_};
    blocks_.insert(block, size);
    observer_.allocated(block, size,
                        {where.file_name(), where.line(), __builtin_return_address(0)});
    return block;
  }
  [[nodiscard]] void* allocate_zeroed(std::size_t count, std::size_t size,
                                      Where where = Where::current()) noexcept {
    std::size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return nullptr;
    void* const block = allocate(bytes, where);
    return block == nullptr ? nullptr : std::memset(block, 0, bytes);
  }
  [[nodiscard]] void* reallocate(void* block, std::size_t size,
                                 Where where = Where::current()) noexcept {
    if (block == nullptr) return allocate(size, where);
    const std::size_t before = usable_size(block);
    void* const moved = allocate(size, where);
    if (moved == nullptr) return nullptr;
    std::memcpy(moved, block, size < before ? size : before);
    deallocate(block);
    return moved;
  }

  void deallocate(void* block) noexcept {
    if (block == nullptr) return;
    {
      LockGuard guard{lock_};
      blocks_.erase(block);
      observer_.freed(block);
    }
    std::free(block);
  }
  template <std::size_t kSize>
  void deallocate(void* block) noexcept {
    deallocate(block);
  }
  void deallocate(void* block, std::size_t) noexcept { deallocate(block); }

  // The requested size, which the tools know.
  [[nodiscard]] std::size_t usable_size(const void* block) noexcept {
    LockGuard guard{lock_};
    const std::size_t* const bytes = blocks_.find(block);
    return bytes == nullptr ? 0 : *bytes;
  }
  [[nodiscard]] bool contains(const void* address) noexcept {
    LockGuard guard{lock_};
    bool found = false;
    blocks_.for_each([&](const void* block, std::size_t bytes) noexcept {
      found = found || address_of(address) - address_of(block) < bytes;
    });
    return found;
  }
  template <class Visit>
  void for_each_block(Visit&& visit) noexcept {
    LockGuard guard{lock_};
    blocks_.for_each([&](const void* block, std::size_t bytes) noexcept {
      visit(const_cast<void*>(block), bytes);
    });
  }
  [[nodiscard]] Figures figures() noexcept {
    Figures figures;
    for_each_block([&](void*, std::size_t bytes) noexcept {
      ++figures.live_blocks;
      figures.live_bytes += bytes;
    });
    return figures;
  }
  [[nodiscard]] const char* name() const noexcept { return name_; }
  [[nodiscard]] Pages& pages() noexcept { return pages_; }
  [[nodiscard]] Observer& observer() noexcept { return observer_; }
  std::size_t recycle() noexcept { return 0; }
  void reset() noexcept {
    LockGuard guard{lock_};
    observer_.ended(name_);
    blocks_.for_each(
        [](const void* block, std::size_t) noexcept { std::free(const_cast<void*>(block)); });
    blocks_.clear();
  }

 private:
  const char* name_;
  FutexLock lock_;
  tailored::BlockTable<std::size_t> blocks_;
  [[no_unique_address]] Pages pages_;
  [[no_unique_address]] Observer observer_;
};

}  // namespace allod

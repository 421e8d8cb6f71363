// An array stack of free blocks of one class.
#pragma once

#include <atomic>
#include <cstring>

#include "allod/base/base.hpp"

namespace allod::heap {

// `top` is one cell behind the newest block. A magazine without cells is all zeros: both empty and
// full.
struct Magazine {
  void** top = nullptr;
  void** bottom = nullptr;
  void** limit = nullptr;

  // Null if empty.
  [[nodiscard]] ALLOD_INLINE void* pop() noexcept {
    void** const newest = top;
    if (__builtin_expect(newest == bottom, 0)) return nullptr;
    top = newest - 1;
    void* const block = newest[-1];
    // Spares the caller a test.
    if (block == nullptr) __builtin_unreachable();
    return block;
  }
  // False if full.
  [[nodiscard]] ALLOD_INLINE bool push(void* block) noexcept {
    void** const free = top;
    if (__builtin_expect(free == limit, 0)) return false;
    *free = block;
    // A signal handler that pops in between finds only free blocks.
    std::atomic_signal_fence(std::memory_order_release);
    top = free + 1;
    return true;
  }

  // A guess at the next pop(), to prefetch but not to use. False if empty.
  [[nodiscard]] ALLOD_INLINE bool foresee(const void** block) const noexcept {
    void* const* const newest = top;
    if (__builtin_expect(newest == bottom, 0)) return false;
    *block = newest[-1];
    return true;
  }

  [[nodiscard]] std::uint32_t count() const noexcept {
    return static_cast<std::uint32_t>(top - bottom);
  }
  [[nodiscard]] std::uint32_t capacity() const noexcept {
    return static_cast<std::uint32_t>(limit - bottom);
  }
  // Most likely changes when blocks are popped or pushed; 0 if empty. Others may do so meanwhile.
  [[nodiscard]] std::uint16_t digest() const noexcept {
    void** const newest = __atomic_load_n(&top, __ATOMIC_RELAXED);
    if (newest == bottom) return 0;
    const Address block = address_of(__atomic_load_n(newest - 1, __ATOMIC_RELAXED));
    return static_cast<std::uint16_t>((block >> 4) + static_cast<Address>(newest - bottom)) | 1;
  }
  [[nodiscard]] bool holds_only(const void* block) const noexcept {
    return count() == 1 && *bottom == block;
  }
  // Removes the `count` oldest blocks, from `bottom` on.
  void drop_oldest(std::uint32_t count) noexcept {
    const std::uint32_t kept = this->count() - count;
    std::memmove(bottom, bottom + count, kept * sizeof(void*));
    top = bottom + kept;
  }
  void drop_newest(std::uint32_t count) noexcept { top -= count; }
  // Moves all blocks to new cells for `capacity` blocks, at least count().
  void move_to(void** cells, std::uint32_t capacity) noexcept {
    const std::uint32_t held = count();
    if (held > 0) std::memcpy(cells, bottom, held * sizeof(void*));
    *this = {cells + held, cells, cells + capacity};
  }
};

}  // namespace allod::heap

// The array stack of ready blocks of one class.
#pragma once

#include <cstring>

#include "allod/base/base.hpp"

namespace allod::heap {

// The newest block is kept beside the stack, not on it: malloc has its result
// after one load, and what follows is off its critical path. (With the block on
// the stack it takes two dependent loads, the second of which must wait until
// the processor knows where the last free has stored.)
//
// The stack is an array of cells. `top` is as many cells behind its start as
// there are blocks, the newest one included; the first cell is never used and
// the second one holds null, because pushing onto an empty magazine spills the
// null that was in `newest`. A magazine without cells is all zeros: popping finds
// null, pushing finds it full.
struct Magazine {
  void* newest = nullptr;
  void** top = nullptr;
  void** limit = nullptr;

  // Null when empty.
  [[nodiscard]] ALLOD_INLINE void* pop() noexcept {
    void* const block = newest;
    if (__builtin_expect(block != nullptr, 1)) newest = *top--;
    return block;
  }
  // False when full.
  [[nodiscard]] ALLOD_INLINE bool push(void* block) noexcept {
    if (__builtin_expect(top == limit, 0)) return false;
    *++top = newest;
    newest = block;
    return true;
  }
};

// The fast paths: pop and push for the magazine that lies `offset` bytes behind
// `base`, without an instruction of their own for its address.
[[nodiscard]] ALLOD_INLINE void* pop_at(unsigned char* base, std::size_t offset) noexcept {
  const auto magazine = [&]() noexcept {
    base = opaque(base);
    return reinterpret_cast<Magazine*>(base + offset);
  };
  void* const block = as_result(magazine()->newest);
  if (__builtin_expect(block != nullptr, 1)) {
    void* const next = *magazine()->top;
    magazine()->newest = next;
    --magazine()->top;
  }
  return block;
}
[[nodiscard]] ALLOD_INLINE bool push_at(unsigned char* base, std::size_t offset,
                                        void* block) noexcept {
  const auto magazine = [&]() noexcept {
    base = opaque(base);
    return reinterpret_cast<Magazine*>(base + offset);
  };
  void** const top = magazine()->top;
  if (__builtin_expect(top == magazine()->limit, 0)) return false;
  top[1] = magazine()->newest;
  ++magazine()->top;
  magazine()->newest = block;
  return true;
}

// A magazine with the cells it owns, for everything that is not a fast path.
// `cells` may be null.
class MagazineCells {
 public:
  MagazineCells(Magazine& magazine, void** cells) noexcept : magazine_{magazine}, cells_{cells} {}

  static constexpr std::size_t bytes_for(std::uint32_t capacity) noexcept {
    return (capacity + 1U) * sizeof(void*);
  }
  [[nodiscard]] std::uint32_t count() const noexcept {
    return cells_ == nullptr ? 0 : static_cast<std::uint32_t>(magazine_.top - cells_);
  }
  // Room for `count` blocks, to be taken over by adopt(); the last one will be
  // the newest. `count` must be less than the capacity.
  [[nodiscard]] void** room() noexcept { return cells_ + 2; }
  // Of an empty magazine.
  void adopt(std::uint32_t count) noexcept {
    magazine_.newest = count == 0 ? nullptr : cells_[count + 1];
    magazine_.top = cells_ + count;
    cells_[1] = nullptr;
  }
  // The `count` oldest blocks; `count` must be less than count().
  [[nodiscard]] void** oldest() noexcept { return cells_ + 2; }
  void drop_oldest(std::uint32_t count) noexcept {
    const std::uint32_t kept = this->count() - count;
    std::memmove(cells_ + 2, cells_ + 2 + count, (kept - 1) * sizeof(void*));
    magazine_.top = cells_ + kept;
  }
  // Moves everything to new cells for `capacity` blocks, at least count().
  void move_to(void** cells, std::uint32_t capacity) noexcept {
    const std::uint32_t held = count();
    if (held > 1) std::memcpy(cells + 2, cells_ + 2, (held - 1) * sizeof(void*));
    cells[1] = nullptr;
    magazine_.top = cells + held;
    magazine_.limit = cells + capacity;
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::uint32_t i = 2; i <= count(); ++i) visit(cells_[i]);
    if (magazine_.newest != nullptr) visit(magazine_.newest);
  }

 private:
  Magazine& magazine_;
  void** cells_;
};

}  // namespace allod::heap

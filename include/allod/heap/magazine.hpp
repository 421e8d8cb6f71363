// The array stack of ready blocks of one class.
#pragma once

#include "allod/base/base.hpp"

namespace allod::heap {

// The slot below the first block holds null, which ends a pop without a
// comparison of addresses. A magazine without storage of its own points at the
// shared empty slot: popping finds null, pushing finds it full.
struct Magazine {
  void** top;    // the block that was pushed last, or the null slot
  void** limit;  // the last slot

  // Null when empty.
  [[nodiscard]] ALLOD_INLINE void* pop() noexcept {
    void* const block = *top;
    if (__builtin_expect(block != nullptr, 1)) --top;
    return block;
  }
  // False when full.
  [[nodiscard]] ALLOD_INLINE bool push(void* block) noexcept {
    if (__builtin_expect(top == limit, 0)) return false;
    *++top = block;
    return true;
  }
};

// The magazine that lies `offset` bytes behind `base`, for the fast paths: pop and
// push without an instruction of their own for the address.
[[nodiscard]] ALLOD_INLINE void* pop_at(unsigned char* base, std::size_t offset) noexcept {
  void** const top = reinterpret_cast<Magazine*>(base + offset)->top;
  void* const block = as_result(*top);
  if (__builtin_expect(block != nullptr, 1)) {
    reinterpret_cast<Magazine*>(opaque(base) + offset)->top = top - 1;
  }
  return block;
}
[[nodiscard]] ALLOD_INLINE bool push_at(unsigned char* base, std::size_t offset,
                                        void* block) noexcept {
  void** top = reinterpret_cast<Magazine*>(base + offset)->top;
  base = opaque(base);
  if (__builtin_expect(top == reinterpret_cast<Magazine*>(base + offset)->limit, 0)) return false;
  *++top = block;
  reinterpret_cast<Magazine*>(opaque(base) + offset)->top = top;
  return true;
}

inline constinit void* empty_slot = nullptr;
inline constexpr Magazine kNoMagazine{&empty_slot, &empty_slot};

}  // namespace allod::heap

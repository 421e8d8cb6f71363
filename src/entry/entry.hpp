// The common body of malloc, its relatives and operator new. A policy type decides what success and
// failure mean.
#pragma once

#include <errno.h>
#include <string.h>

#include "hardened/short.hpp"
#include "instance/process.hpp"
#include "report/marks.hpp"
#include "report/tracker.hpp"

namespace allod::entry {

// C functions: null and ENOMEM.
struct SetErrno {
  static constexpr bool kNoexcept = true;
  [[gnu::cold, gnu::noinline]] static void* out_of_memory(std::size_t) noexcept {
    errno = ENOMEM;
    return nullptr;
  }
};
// For callers with a fallback.
struct ReturnNull {
  static constexpr bool kNoexcept = true;
  static void* out_of_memory(std::size_t) noexcept { return nullptr; }
};

using slab::Origin;

// Bytes to request from the heap for a block of `size` bytes.
[[nodiscard]] ALLOD_INLINE std::size_t room_for(std::size_t size) noexcept {
  if constexpr (Policy::kBlockStates) return hardened::room_for(size);
  if constexpr (Policy::kTracked) return marks::room_for(size);
  return size;
}
// The same for a first-class heap.
[[nodiscard]] ALLOD_INLINE std::size_t room_in_heap_for(std::size_t size,
                                                        std::size_t alignment = 1) noexcept {
  using hardened::Guarded;
  if constexpr (Policy::kBlockStates) return hardened::room_for(size, alignment, Guarded::never);
  return size;
}
// Every block requested with this room is returned through here.
ALLOD_INLINE void* handed_out(void* block, std::size_t size, Origin origin = Origin::any) noexcept {
  if constexpr (Policy::kTracked) marks::hand_out(block, size);
  if constexpr (Policy::kBlockStates) return hardened::seal(block, size, origin);
  return block;
}
// Whether the block may go to its heap. `claimed` is the caller's size, or kAnySize.
[[nodiscard]] ALLOD_INLINE bool take_back(void* block, std::size_t claimed) noexcept {
  if constexpr (Policy::kTracked) {
    marks::check_end(block);
    return track_release(block, claimed);
  }
  if constexpr (Policy::kBlockStates) return hardened::take_back(block, claimed, Origin::any);
  return true;
}

// Calls `ask`, and again if it fails and waiting blocks could be freed.
template <class Ask>
[[nodiscard]] ALLOD_INLINE void* try_with_room(Ask&& ask) noexcept {
  if constexpr (!Policy::kTracked) return ask();
  const auto ask_heap = [&] {
    const marks::InHeap here;
    return ask();
  };
  void* const block = ask_heap();
  return block == nullptr && marks::make_room() ? ask_heap() : block;
}

// Apart, so that the short path needs no stack.
template <class Failure, Origin kOrigin>
[[nodiscard, gnu::noinline]] ALLOD_HOT void* allocate_hardened(std::size_t size) noexcept(
    Failure::kNoexcept) {
  void* const block = hardened::allocate(size, kOrigin);
  return __builtin_expect(block != nullptr, 1) ? block : Failure::out_of_memory(size);
}
template <class Failure, Origin kOrigin = Origin::c>
[[nodiscard]] ALLOD_INLINE void* allocate(std::size_t size) noexcept(Failure::kNoexcept) {
  if constexpr (Policy::kBlockStates) {
    void* const block = hardened::allocate_short<hardened::Small>(size, kOrigin);
    if (__builtin_expect(block != nullptr, 1)) return block;
    return allocate_hardened<Failure, kOrigin>(size);
  } else if constexpr (Policy::kTracked) {
    const auto ask = [size] { return Process::allocate<ReturnNull>(room_for(size)); };
    void* const block = try_with_room(ask);
    return block != nullptr ? handed_out(block, size) : Failure::out_of_memory(size);
  } else {
    return handed_out(Process::allocate<Failure>(size), size);
  }
}

// `claimed` is the caller's size, or kAnySize.
template <Origin kOrigin = Origin::c>
ALLOD_INLINE void release(void* block, std::size_t claimed = kAnySize) noexcept {
  if constexpr (Policy::kBlockStates) {
    return hardened::release_any(block, claimed, kOrigin);
  }
  if constexpr (Policy::kTracked) {
    if (take_back(block, claimed)) marks::release(block);
    return;
  }
  Process::release(block);
}

// `alignment` must be a power of two.
template <class Failure, Origin kOrigin = Origin::c>
[[nodiscard]] inline void* allocate_aligned(std::size_t size,
                                            std::size_t alignment) noexcept(Failure::kNoexcept) {
  if constexpr (Policy::kBlockStates) {
    if (alignment <= 8) return allocate<Failure, kOrigin>(size);
    void* const block = hardened::allocate_aligned(size, alignment, kOrigin);
    return block != nullptr ? block : Failure::out_of_memory(size);
  }
  if (alignment <= 8) return allocate<Failure>(size);
  if (alignment == 16 && !Policy::kTracked) {
    return handed_out(Process::allocate<Failure>(size < 16 ? 16 : size), size);
  }
  void* const block =
      try_with_room([=] { return Process::allocate_aligned(room_for(size), alignment); });
  if (__builtin_expect(block == nullptr, 0)) return Failure::out_of_memory(size);
  return handed_out(block, size);
}

[[nodiscard]] inline void* allocate_zeroed(std::size_t count, std::size_t size) noexcept {
  std::size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return SetErrno::out_of_memory(bytes);
  if constexpr (Policy::kBlockStates) {
    void* const sealed = hardened::allocate_zeroed(bytes);
    return sealed != nullptr ? sealed : SetErrno::out_of_memory(bytes);
  }
  bool zero;
  void* const block =
      try_with_room([&] { return Process::allocate_zeroable(room_for(bytes), &zero); });
  if (__builtin_expect(block == nullptr, 0)) return SetErrno::out_of_memory(bytes);
  if (!zero) clear_contents(block, bytes);
  return handed_out(block, bytes);
}

[[nodiscard]] std::size_t usable_size_elsewhere(const void* address) noexcept;
// Requested bytes only, in libraries that check what lies behind.
[[nodiscard]] std::size_t usable_size_asked_for(const void* address) noexcept;

// Usable bytes of the block at the address; 0 if it is none.
[[nodiscard]] inline std::size_t usable_size(const void* address) noexcept {
  if constexpr (Policy::kBlockStates) return hardened::usable_size(address);
  std::size_t bytes;
  if constexpr (Policy::kTracked) return usable_size_asked_for(address);
  const bool is_known = Process::heap().fast_usable_size(address, &bytes);
  return __builtin_expect(is_known, 1) ? bytes : usable_size_elsewhere(address);
}

[[nodiscard]] void* reallocate(void* block, std::size_t size) noexcept;

}  // namespace allod::entry

namespace allod::heaps {

// A block of `size` bytes in the first-class heap that owns `block`, a block in use. `*owned` is
// set to whether there is such a heap. Null and ENOMEM when it refuses.
[[nodiscard]] void* allocate_beside(const void* block, std::size_t size, bool* owned) noexcept;

}  // namespace allod::heaps

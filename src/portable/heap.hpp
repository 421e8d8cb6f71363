// The heap of the libraries for other systems than Linux, and what becomes of blocks of another
// allocator.
#pragma once

#include "allod/os/native.hpp"
#include "allod/thread/process_heap.hpp"

namespace allod::portable {

// Reports misuse on standard error, and ends the process unless an option forbids it.
struct Report {
  static void report(const heap::Misuse& misuse) noexcept;
};

struct Policy {
  using Platform = os::Native;
  using Sizes = sizes::Geometric<std::size_t{4} << 20>;
  using Reporter = Report;
  static constexpr CheckLevel kChecks = CheckLevel::always;
  // Reads the options.
  static heap::HeapOptions options() noexcept;
};

using Process = thread::ProcessHeap<Policy>;

// The functions of another allocator, for its own blocks. Null: its blocks are left alone.
struct Runtime {
  void (*free)(void* block) = nullptr;
  void* (*realloc)(void* block, std::size_t size) = nullptr;
  std::size_t (*size)(void* block) = nullptr;
};
inline constexpr Runtime kNoRuntime{};

// Whether the address is no memory of the heap. The page map tells.
[[nodiscard]] inline bool is_foreign(const void* block) noexcept {
  return Process::heap().space().map().tag_of(address_of(block)) == space::kForeignTag;
}

ALLOD_NOINLINE void release_slowly(void* block, const Runtime& other) noexcept;
ALLOD_INLINE void release(void* block, const Runtime& other = kNoRuntime) noexcept {
  if (__builtin_expect(Process::release_at_once(block, Process::heap().space().map().fast_slices()),
                       1)) {
    return;
  }
  release_slowly(block, other);
}

// A size of 0 frees the block. Null and ENOMEM on failure.
[[nodiscard]] void* reallocate(void* block, std::size_t size,
                               const Runtime& other = kNoRuntime) noexcept;
[[nodiscard]] void* allocate_zeroed(std::size_t count, std::size_t size) noexcept;
// `alignment` must be a power of two.
[[nodiscard]] void* allocate_aligned(std::size_t size, std::size_t alignment) noexcept;
// 0 for what is no block.
[[nodiscard]] std::size_t usable_size(const void* block,
                                      const Runtime& other = kNoRuntime) noexcept;
// A block in the first-class heap that owns `block`. `*owned` is set to whether there is such a
// heap. Null and ENOMEM when it refuses. Defined in heaps.cpp.
[[nodiscard]] void* allocate_beside(const void* block, std::size_t size, bool* owned) noexcept;
[[nodiscard]] std::size_t good_size(std::size_t size) noexcept;

// C functions: null and ENOMEM.
struct SetErrno {
  static constexpr bool kNoexcept = true;
  [[gnu::cold, gnu::noinline]] static void* out_of_memory(std::size_t size) noexcept;
};
struct ReturnNull {
  static constexpr bool kNoexcept = true;
  static void* out_of_memory(std::size_t) noexcept { return nullptr; }
};

}  // namespace allod::portable

extern template class allod::heap::Engine<allod::portable::Policy,
                                          allod::heaps::Heap<allod::portable::Policy>>;
extern template class allod::heaps::Heap<allod::portable::Policy>;

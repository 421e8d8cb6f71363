// Blocks of first-class heaps, for the functions that take any block.
#pragma once

#include "instance/process.hpp"

namespace allod::heaps {

// A block of `size` bytes in the heap that owns `block`, a block in use. `*owned` is set to
// whether there is such a heap. Null and ENOMEM when it refuses.
[[nodiscard]] void* allocate_beside(const void* block, std::size_t size, bool* owned) noexcept;

}  // namespace allod::heaps

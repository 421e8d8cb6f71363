// First-class heaps for functions that accept any block.
#pragma once

#include "instance/process.hpp"

namespace allod::heaps {

// Allocates `size` bytes in the first-class heap that owns `block`, a block in use. Sets `*owned`
// to whether there is one. Null and ENOMEM if it refuses.
[[nodiscard]] void* allocate_beside(const void* block, std::size_t size, bool* owned) noexcept;

}  // namespace allod::heaps

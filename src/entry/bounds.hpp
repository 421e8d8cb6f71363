// Finds the block around an address, and reports copies that cross its bounds.
#pragma once

#include "instance/process.hpp"

namespace allod::bounds {

// Accepts any address. `start` is null if no block is known. Thread-safe and async-signal-safe. In
// a hardened heap outside the hardened library, the block is read and must not be freed meanwhile.
[[nodiscard]] heap::Bounds find(const void* address) noexcept;

// How many of `bytes` bytes from the address on lie within its block. All of them if no block is
// known, except in a slab, where gaps and free places end them too.
[[nodiscard]] std::size_t room(const void* address, std::size_t bytes) noexcept;

// Reports that `function` would read or write `bytes` there, beyond the room.
void report_copy(const void* address, std::size_t bytes, bool is_write,
                 const char* function) noexcept;

}  // namespace allod::bounds

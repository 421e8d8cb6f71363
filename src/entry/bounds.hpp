// Which block an address lies in, and copies that leave theirs.
#pragma once

#include "instance/process.hpp"

namespace allod::bounds {

// Any address, from any thread, in a signal handler too. No start where no block is known. In a
// heap that is hardened in a library that is not, the block is read, and must not go meanwhile.
[[nodiscard]] heap::Bounds find(const void* address) noexcept;

// How many of so many bytes from the address on lie within its block. Where none is known: all, but
// in a slab what lies between blocks, or where none is now, ends as well.
[[nodiscard]] std::size_t room(const void* address, std::size_t bytes) noexcept;

// A function was to read so many bytes from there, or to write them, and has no room for them.
void report_copy(const void* address, std::size_t bytes, bool is_write,
                 const char* function) noexcept;

}  // namespace allod::bounds

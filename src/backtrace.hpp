// Call stacks, by unwind tables, without allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "text.hpp"

namespace allod {

struct Stack {
  static constexpr std::size_t kDepth = 24;
  std::uint32_t depth = 0;
  std::uintptr_t frames[kDepth];
};

// The stack from here on. Must be called without any lock of ours: the loader's
// lock may be taken.
void capture_stack(Stack& stack) noexcept;

// From the entry point of this library on, one line a frame: address, nearest exported function,
// module and offset in it.
void write_stack(Text& out, const Stack& stack) noexcept;

}  // namespace allod

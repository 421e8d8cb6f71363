// What the hardened library says of the program's errors.
#pragma once

#include "hardened_blocks.hpp"

namespace allod::hardened {

[[nodiscard, gnu::cold, gnu::noinline]] Misuse misuse_of(MisuseKind kind, Block block,
                                                         BlockState state) noexcept;

// Of what was to be freed: it begins no block, or one that the program does not have.
[[gnu::cold]] void report_stray(const void* address) noexcept;
[[gnu::cold]] void report_not_in_use(Block block, BlockState state) noexcept;
[[gnu::cold]] void report_overflow(Block block, BlockState state) noexcept;
[[gnu::cold]] void report_written(Block block, BlockState state) noexcept;

}  // namespace allod::hardened

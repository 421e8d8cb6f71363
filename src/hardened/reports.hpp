// What the hardened library says of the program's errors.
#pragma once

#include "hardened/blocks.hpp"

namespace allod::hardened {

[[nodiscard, gnu::cold, gnu::noinline]] Misuse misuse_of(MisuseKind kind, Block block,
                                                         BlockState state) noexcept;

// Of a block of no bytes.
[[nodiscard, gnu::cold]] Misuse misuse_of_empty(MisuseKind kind, const void* address,
                                                Origin origin) noexcept;

// Was it asked for by one family of functions, and freed by another?
[[nodiscard]] ALLOD_INLINE bool is_wrong_family(Origin origin, Origin claimed) noexcept {
  return on<Mitigation::origin>() && origin != claimed && origin != Origin::any &&
         claimed != Origin::any;
}
[[gnu::cold]] void report_wrong_size(Misuse misuse, std::size_t claimed_bytes) noexcept;
[[gnu::cold]] void report_wrong_function(Misuse misuse, Origin claimed) noexcept;
// Of what was to be freed: it begins no block, or one that the program does not have.
[[gnu::cold]] void report_stray(const void* address) noexcept;
[[gnu::cold]] void report_not_in_use(Block block, BlockState state) noexcept;
[[gnu::cold]] void report_overflow(Block block, BlockState state) noexcept;
[[gnu::cold]] void report_written(Block block, BlockState state) noexcept;

}  // namespace allod::hardened

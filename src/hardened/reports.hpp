// Reports of the hardened library.
#pragma once

#include "hardened/blocks.hpp"

namespace allod::hardened {

[[nodiscard, gnu::cold, gnu::noinline]] Misuse misuse_of(MisuseKind kind, Block block,
                                                         BlockState state) noexcept;

// For blocks of size 0.
[[nodiscard, gnu::cold]] Misuse misuse_of_empty(MisuseKind kind, const void* address,
                                                Origin origin) noexcept;

// Whether one family of functions allocated it, and another frees it.
[[nodiscard]] ALLOD_INLINE bool is_wrong_family(Origin origin, Origin claimed) noexcept {
  return on<Mitigation::origin>() && origin != claimed && origin != Origin::any &&
         claimed != Origin::any;
}
[[gnu::cold]] void report_wrong_size(Misuse misuse, std::size_t claimed_bytes) noexcept;
[[gnu::cold]] void report_wrong_function(Misuse misuse, Origin claimed) noexcept;
// For frees of addresses where no block begins, or whose block is not in use.
[[gnu::cold]] void report_stray(const void* address) noexcept;
[[gnu::cold]] void report_not_in_use(Block block, BlockState state) noexcept;
[[gnu::cold]] void report_overflow(Block block, BlockState state) noexcept;
[[gnu::cold]] void report_written(Block block, BlockState state) noexcept;
// For a write to the range, which nobody has had: to its first byte that is not zero.
[[gnu::cold]] void report_stray_write(Address from, std::size_t bytes) noexcept;

}  // namespace allod::hardened

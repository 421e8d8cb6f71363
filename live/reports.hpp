// Blocks reported by the program's own allocators.
#pragma once

#include <cstdint>

namespace allod::live {

// Reported and not freed.
[[nodiscard]] std::uint64_t reported_bytes() noexcept;
[[nodiscard]] std::uint64_t reported_blocks() noexcept;
[[nodiscard]] std::uint64_t reported_peak() noexcept;
// For the child of a fork, in which their memory is gone.
void drop_reports() noexcept;

}  // namespace allod::live

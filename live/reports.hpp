// Blocks that allocators of the program report.
#pragma once

#include <cstdint>

namespace allod::live {

// Bytes and blocks that were reported and not freed.
[[nodiscard]] std::uint64_t reported_bytes() noexcept;
[[nodiscard]] std::uint64_t reported_blocks() noexcept;
[[nodiscard]] std::uint64_t reported_peak() noexcept;
// In the child of a fork, whose memory for them is gone.
void drop_reports() noexcept;

}  // namespace allod::live

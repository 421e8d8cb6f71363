// The heap profile in OpenTelemetry's format (OTLP), as collectors take it.
#pragma once

#include <event2/buffer.h>

#include <cstdint>

#include "stacks.hpp"
#include "thread_sums.hpp"

namespace allod::live {

// Writes a compressed request to export profiles: in use `now`, with the threads, and what was
// allocated since `before`. False if memory is exhausted.
[[nodiscard]] bool write_otlp(const Stacks& now, const Stacks& before, const ThreadSums& threads,
                              const char* service, std::uint64_t duration_ms,
                              evbuffer* to) noexcept;

}  // namespace allod::live

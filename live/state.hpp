// The page's data, as JSON.
#pragma once

#include <event2/buffer.h>

#include <cstdint>

namespace allod::live {

class Server;

// Includes timeline points after number `since`, or all if the timeline was thinned more than
// `thinned` times. False if memory is exhausted.
[[nodiscard]] bool write_state(Server& server, evbuffer* to, std::uint64_t since,
                               std::uint64_t thinned) noexcept;
// All spans: address, size, kind, fill and resident bytes. False if memory is exhausted.
[[nodiscard]] bool write_map(Server& server, evbuffer* to) noexcept;

}  // namespace allod::live

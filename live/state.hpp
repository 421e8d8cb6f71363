// What the page shows, as JSON.
#pragma once

#include <event2/buffer.h>

#include <cstdint>

namespace allod::live {

class Server;

// False when memory ran out. Of the timeline, what is newer than point `since`; all of it when it
// was thinned more often than `thinned` times.
[[nodiscard]] bool write_state(Server& server, evbuffer* to, std::uint64_t since,
                               std::uint64_t thinned) noexcept;
// Every span: where, how large, of what kind, how full, how much of it resident.
[[nodiscard]] bool write_map(Server& server, evbuffer* to) noexcept;

}  // namespace allod::live

// Figures in the text format of Prometheus, version 0.0.4.
#pragma once

#include <event2/buffer.h>

namespace allod::live {

class Server;

// False if memory is exhausted.
[[nodiscard]] bool write_metrics(Server& server, evbuffer* to) noexcept;

}  // namespace allod::live

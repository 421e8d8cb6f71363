// Lists of stacks: leak suspects, short-lived allocations, and stacks that pin slabs.
#pragma once

#include <event2/buffer.h>

#include <string_view>

namespace allod::live {

class Server;

// `of`: suspects, temporary or pins. False if memory is exhausted.
[[nodiscard]] bool write_stack_list(Server& server, std::string_view of, evbuffer* to) noexcept;

}  // namespace allod::live

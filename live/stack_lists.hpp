// Lists of stacks: what only grows, what does not live long, what pins slabs.
#pragma once

#include <event2/buffer.h>

#include <string_view>

namespace allod::live {

class Server;

// `of` is suspects, temporary or pins. False when memory ran out.
[[nodiscard]] bool write_stack_list(Server& server, std::string_view of, evbuffer* to) noexcept;

}  // namespace allod::live

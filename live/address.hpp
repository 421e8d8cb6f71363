// Addresses of sockets as texts.
#pragma once

#include <sys/socket.h>

namespace allod::live {

// Parses "1.2.3.4:5" or "[::1]:5"; port 0 is any. Returns the length of the address, or 0 if it is
// invalid.
[[nodiscard]] socklen_t parse_address(const char* text, sockaddr_storage& to) noexcept;

}  // namespace allod::live

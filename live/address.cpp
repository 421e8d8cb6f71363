#include "address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <cstdint>

namespace allod::live {

socklen_t parse_address(const char* text, sockaddr_storage& to) noexcept {
  char name[INET6_ADDRSTRLEN + 2];
  const char* const colon = strrchr(text, ':');
  if (colon == nullptr || static_cast<std::size_t>(colon - text) >= sizeof name) return 0;
  const auto length = static_cast<std::size_t>(colon - text);
  memcpy(name, text, length);
  name[length] = '\0';
  char* end = nullptr;
  const unsigned long port = strtoul(colon + 1, &end, 10);
  if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || port > 65535) return 0;
  auto& v4 = reinterpret_cast<sockaddr_in&>(to);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(to);
  if (inet_pton(AF_INET, name, &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(port));
    return sizeof v4;
  }
  if (name[0] != '[' || name[length - 1] != ']') return 0;
  name[length - 1] = '\0';
  if (inet_pton(AF_INET6, name + 1, &v6.sin6_addr) != 1) return 0;
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<std::uint16_t>(port));
  return sizeof v6;
}

}  // namespace allod::live

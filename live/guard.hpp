// Authorisation of requests.
#pragma once

#include <event2/http.h>

namespace allod::live {

class Guard {
 public:
  // Takes the token from the settings, or makes a random one. False if the system gives no random
  // bytes.
  [[nodiscard]] bool open(const char* address, unsigned port) noexcept;
  [[nodiscard]] const char* token() const noexcept { return token_; }

  // Allows a request that names this server as host, comes from no other page, and has the token,
  // in the link or as a bearer token. A request that changes something needs the bearer token,
  // which foreign pages, forms and images cannot send.
  [[nodiscard]] bool allows(evhttp_request* request) const noexcept;

 private:
  [[nodiscard]] bool knows_host(const char* host) const noexcept;
  [[nodiscard]] bool is_own_page(evhttp_request* request) const noexcept;
  [[nodiscard]] bool is_token(const char* text) const noexcept;

  char token_[129] = {};
  char hosts_[1024] = {};  // names with ports, each between two commas
};

}  // namespace allod::live

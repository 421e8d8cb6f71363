// Who may ask, and what for.
#pragma once

#include <event2/http.h>

namespace allod::live {

class Guard {
 public:
  // The token is a random one when the settings have none. False when the system gives none.
  [[nodiscard]] bool open(const char* address, unsigned port) noexcept;
  [[nodiscard]] const char* token() const noexcept { return token_; }

  // A request is allowed when it names this server as its host, comes from no other page, and
  // brings the token: in the link, or as a bearer. To change something it must bring it as a
  // bearer, which no foreign page, form or picture can do.
  [[nodiscard]] bool allows(evhttp_request* request) const noexcept;

 private:
  [[nodiscard]] bool knows_host(const char* host) const noexcept;
  [[nodiscard]] bool is_own_page(evhttp_request* request) const noexcept;
  [[nodiscard]] bool is_token(const char* text) const noexcept;

  char token_[129] = {};
  char hosts_[1024] = {};  // names with ports, each between two commas
};

}  // namespace allod::live

#include "guard.hpp"

#include <event2/keyvalq_struct.h>
#include <event2/util.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/random.h>

#include "settings.hpp"

namespace allod::live {

namespace {

// The value of the only header with this name; null if it is missing or repeated.
const char* only_header(evhttp_request* request, const char* name) noexcept {
  const char* value = nullptr;
  const evkeyvalq* const headers = evhttp_request_get_input_headers(request);
  for (const evkeyval* it = headers->tqh_first; it != nullptr; it = it->next.tqe_next) {
    if (strcasecmp(it->key, name) != 0) continue;
    if (value != nullptr) return nullptr;
    value = it->value;
  }
  return value;
}

bool has_header(evhttp_request* request, const char* name) noexcept {
  return evhttp_find_header(evhttp_request_get_input_headers(request), name) != nullptr;
}

}  // namespace

bool Guard::open(const char* address, unsigned port) noexcept {
  const Settings& chosen = settings();
  if (chosen.token[0] != '\0') {
    strcpy(token_, chosen.token);
  } else {
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != sizeof random) return false;
    for (std::size_t i = 0; i < sizeof random; ++i) snprintf(token_ + 2 * i, 3, "%02x", random[i]);
  }
  const bool is_v6 = strchr(address, ':') != nullptr;
  int length = snprintf(hosts_, sizeof hosts_, ",127.0.0.1:%u,localhost:%u,[::1]:%u,%s%s%s:%u,",
                        port, port, port, is_v6 ? "[" : "", address, is_v6 ? "]" : "", port);
  const char* name = chosen.hosts;
  while (*name != '\0') {
    const std::size_t size = strcspn(name, ",");
    const auto room = sizeof hosts_ - static_cast<std::size_t>(length);
    if (size > 0 && size + 10 < room) {
      const bool has_port = memchr(name, ':', size) != nullptr;
      length += has_port ? snprintf(hosts_ + length, room, "%.*s,", static_cast<int>(size), name)
                         : snprintf(hosts_ + length, room, "%.*s:%u,", static_cast<int>(size), name,
                                    port);
    }
    name += size + (name[size] == ',' ? 1 : 0);
  }
  return true;
}

bool Guard::allows(evhttp_request* request) const noexcept {
  const char* const host = only_header(request, "Host");
  if (host == nullptr || !knows_host(host) || !is_own_page(request)) return false;
  const evhttp_uri* const uri = evhttp_request_get_evhttp_uri(request);
  if (evhttp_uri_get_host(uri) != nullptr) return false;
  if (const char* const bearer = only_header(request, "Authorization")) {
    return strncasecmp(bearer, "Bearer ", 7) == 0 && is_token(bearer + 7);
  }
  const evhttp_cmd_type method = evhttp_request_get_command(request);
  if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD) return false;
  const char* const query = evhttp_uri_get_query(uri);
  evkeyvalq parameters{};
  if (query == nullptr || evhttp_parse_query_str(query, &parameters) != 0) return false;
  const char* const token = evhttp_find_header(&parameters, "token");
  const bool allowed = token != nullptr && is_token(token);
  evhttp_clear_headers(&parameters);
  return allowed;
}

bool Guard::knows_host(const char* host) const noexcept {
  const std::size_t length = strlen(host);
  if (length == 0 || strchr(host, ',') != nullptr) return false;
  for (const char* at = hosts_; *at != '\0'; ++at) {
    if (*at == ',' && strncasecmp(at + 1, host, length) == 0 && at[1 + length] == ',') return true;
  }
  return false;
}

bool Guard::is_own_page(evhttp_request* request) const noexcept {
  if (has_header(request, "Origin")) {
    const char* const origin = only_header(request, "Origin");
    if (origin == nullptr || strncmp(origin, "http://", 7) != 0 || !knows_host(origin + 7)) {
      return false;
    }
  }
  if (!has_header(request, "Sec-Fetch-Site")) return true;
  const auto is = [&](const char* name, const char* value) {
    const char* const text = only_header(request, name);
    return text != nullptr && strcmp(text, value) == 0;
  };
  if (is("Sec-Fetch-Site", "same-origin") || is("Sec-Fetch-Site", "none")) return true;
  // The page of another process leads to this one's, whose document alone tells nothing.
  const char* const path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
  return is("Sec-Fetch-Site", "same-site") && is("Sec-Fetch-Mode", "navigate") &&
         is("Sec-Fetch-Dest", "document") && path != nullptr && strcmp(path, "/") == 0;
}

// Takes the same time wherever the text differs.
bool Guard::is_token(const char* text) const noexcept {
  const std::size_t length = strlen(token_);
  if (strlen(text) != length) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < length; ++i) {
    difference |= static_cast<unsigned char>(text[i] ^ token_[i]);
  }
  return difference == 0;
}

}  // namespace allod::live

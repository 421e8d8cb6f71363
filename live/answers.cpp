#include "answers.hpp"

#include <event2/buffer.h>
#include <event2/keyvalq_struct.h>
#include <stdlib.h>
#include <string.h>

#include <string_view>

#include "children.hpp"
#include "json.hpp"
#include "metrics.hpp"
#include "profile.hpp"
#include "server.hpp"
#include "state.hpp"
#include "text/text.hpp"

namespace allod::live {

// From page.S.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
extern const unsigned char allod_live_page[];
extern const unsigned char allod_live_page_end[];
}
// NOLINTEND(readability-identifier-naming)

namespace {

// Query parameters of a request.
class Parameters {
 public:
  explicit Parameters(evhttp_request* request) noexcept {
    const char* const query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request));
    if (query != nullptr) evhttp_parse_query_str(query, &all_);
  }
  ~Parameters() { evhttp_clear_headers(&all_); }
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  [[nodiscard]] const char* text(const char* name) const noexcept {
    const char* const value = evhttp_find_header(&all_, name);
    return value == nullptr ? "" : value;
  }
  // Returns `otherwise` if it is missing or not a number.
  [[nodiscard]] std::uint64_t number(const char* name, std::uint64_t otherwise) const noexcept {
    const char* const value = text(name);
    if (*value < '0' || *value > '9') return otherwise;
    char* end = nullptr;
    const std::uint64_t number = strtoull(value, &end, 10);
    return *end == '\0' ? number : otherwise;
  }

 private:
  evkeyvalq all_{};
};

void add_header(evhttp_request* request, const char* name, const char* value) noexcept {
  evhttp_add_header(evhttp_request_get_output_headers(request), name, value);
}

void add_usual_headers(evhttp_request* request, const char* type) noexcept {
  char date[32];
  http_date(date);
  add_header(request, "Date", date);
  add_header(request, "Content-Type", type);
  add_header(request, "Cache-Control", "no-store");
  add_header(request, "Referrer-Policy", "no-referrer");
  add_header(request, "X-Content-Type-Options", "nosniff");
  add_header(request, "X-Frame-Options", "DENY");
  add_header(request, "Cross-Origin-Resource-Policy", "same-origin");
}

void send_page(evhttp_request* request) noexcept {
  evbuffer* const body = evbuffer_new();
  if (body == nullptr) return refuse(request, 503, "there is no memory for this\n");
  const auto size = static_cast<std::size_t>(allod_live_page_end - allod_live_page);
  evbuffer_add_reference(body, allod_live_page, size, nullptr, nullptr);
  add_header(request, "Content-Encoding", "gzip");
  add_header(request, "Content-Security-Policy", "frame-ancestors 'none'");
  send(request, "text/html; charset=utf-8", body);
  evbuffer_free(body);
}

void send_done(evhttp_request* request) noexcept {
  send_written(request, kJson, [](evbuffer* body) { return evbuffer_add(body, "{}\n", 3) == 0; });
}

// Gives free memory back, and answers how many bytes.
void send_purged(evhttp_request* request) noexcept {
  allod_stats_t before{};
  allod_stats_t after{};
  allod_stats_get(&before, sizeof before);
  allod_malloc_trim(0);
  allod_stats_get(&after, sizeof after);
  send_written(request, kJson, [&](evbuffer* body) {
    Json json{body};
    json.object().field("purged", above(after.purged, before.purged)).end();
    return json.finish();
  });
}

bool answer_reading(Server& server, evhttp_request* request, std::string_view path,
                    const Parameters& given) noexcept {
  if (path == "/") {
    send_page(request);
  } else if (path == "/api/state") {
    send_written(request, kJson, [&](evbuffer* body) {
      return write_state(server, body, given.number("since", 0), given.number("thinned", 0));
    });
  } else if (path == "/api/map") {
    send_written(request, kJson, [&](evbuffer* body) { return write_map(server, body); });
  } else if (path == "/api/children") {
    send_written(request, kJson, [](evbuffer* body) { return write_children(body); });
  } else if (path == "/metrics") {
    send_written(request, "text/plain; version=0.0.4; charset=utf-8",
                 [&](evbuffer* body) { return write_metrics(server, body); });
  } else {
    return answer_profile(server, request, path, given.text("of"), given.number("from", 0),
                          given.number("to", 0), given.number("seconds", 0));
  }
  return true;
}

bool answer_acting(Server& server, evhttp_request* request, std::string_view path,
                   const Parameters& given) noexcept {
  if (path == "/api/reset") {
    server.history().reset();
    if (has_profile()) allod_profile_reset();
  } else if (path == "/api/close") {
    server.end();
  } else if (path == "/api/purge") {
    send_purged(request);
    return true;
  } else if (path == "/api/mark") {
    server.history().mark(mark_now(given.text("label")));
  } else if (path == "/api/sampling") {
    const std::uint64_t interval = given.number("interval", UINT64_MAX);
    if (interval == UINT64_MAX || !has_profile()) {
      refuse(request, 400, "interval: bytes, 0 to stop\n");
      return true;
    }
    if (interval == 0) {
      allod_profile_stop();
    } else if (allod_profile_start(interval) != 0) {
      refuse(request, 501, "this library has no profile\n");
      return true;
    }
  } else {
    return false;
  }
  send_done(request);
  return true;
}

}  // namespace

void send(evhttp_request* request, const char* type, evbuffer* body) noexcept {
  add_usual_headers(request, type);
  evhttp_send_reply(request, 200, "OK", body);
}

void refuse(evhttp_request* request, int status, const char* text) noexcept {
  evbuffer* const body = evbuffer_new();
  add_usual_headers(request, "text/plain; charset=utf-8");
  // A refused client must reconnect.
  add_header(request, "Connection", "close");
  if (body != nullptr) evbuffer_add(body, text, strlen(text));
  evhttp_send_reply(request, status, nullptr, body);
  if (body != nullptr) evbuffer_free(body);
}

void answer(Server& server, evhttp_request* request) noexcept {
  const char* const path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
  const std::string_view wanted = path == nullptr || *path == '\0' ? "/" : path;
  const Parameters given{request};
  const bool acts = evhttp_request_get_command(request) == EVHTTP_REQ_POST;
  const bool answered = acts ? answer_acting(server, request, wanted, given)
                             : answer_reading(server, request, wanted, given);
  if (!answered) refuse(request, 404, "there is nothing here\n");
}

}  // namespace allod::live

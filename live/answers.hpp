// Answers to authorised requests.
#pragma once

#include <event2/buffer.h>
#include <event2/http.h>

namespace allod::live {

class Server;

void answer(Server& server, evhttp_request* request) noexcept;
void refuse(evhttp_request* request, int status, const char* text) noexcept;
void send(evhttp_request* request, const char* type, evbuffer* body) noexcept;

inline constexpr const char* kJson = "application/json; charset=utf-8";

// Sends what `write` puts into a buffer; 503 if it returns false.
template <class Write>
void send_written(evhttp_request* request, const char* type, Write&& write) noexcept {
  evbuffer* const body = evbuffer_new();
  if (body == nullptr || !write(body)) {
    refuse(request, 503, "there is no memory for this\n");
  } else {
    send(request, type, body);
  }
  if (body != nullptr) evbuffer_free(body);
}

}  // namespace allod::live

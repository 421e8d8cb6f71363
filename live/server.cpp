#include "server.hpp"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "address.hpp"
#include "answers.hpp"
#include "moments.hpp"
#include "reports.hpp"
#include "symbols.hpp"

namespace allod::live {

bool Server::open(const char* address, const char** why) noexcept {
  started_ms_ = wall_clock_ms();
  was_sampled_ = has_profile() && allod_profile_interval() != 0;
  *why = "no memory";
  event_config* const config = event_config_new();
  if (config == nullptr) return false;
  event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV);
  base_ = event_base_new_with_config(config);
  event_config_free(config);
  if (base_ == nullptr || (http_ = evhttp_new(base_)) == nullptr) return false;
  evhttp_set_allowed_methods(http_, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST);
  evhttp_set_max_headers_size(http_, 8192);
  evhttp_set_max_body_size(http_, 4096);
  evhttp_set_timeout(http_, kIdleMs / 1000);
  evhttp_set_bevcb(http_, &connect, this);
  evhttp_set_gencb(
      http_,
      [](evhttp_request* request, void* server) { static_cast<Server*>(server)->answer(request); },
      this);
  const int listener = listen_at(address, why);
  if (listener < 0) return false;
  push_.open(base_);
  socket_ = evhttp_accept_socket_with_handle(http_, listener);
  if (socket_ == nullptr) {
    close(listener);
    return false;
  }
  return true;
}

int Server::listen_at(const char* address, const char** why) noexcept {
  sockaddr_storage where{};
  *why = "the address is not of the form 127.0.0.1:8000 or [::1]:8000";
  const socklen_t length = parse_address(address, where);
  if (length == 0) return -1;
  const int listener = socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) {
    *why = "there are no sockets";
    return -1;
  }
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(listener, reinterpret_cast<sockaddr*>(&where), length) != 0 ||
      ::listen(listener, 32) != 0) {
    *why = errno == EADDRINUSE ? "the port is taken" : "the address cannot be had";
    close(listener);
    return -1;
  }
  auto size = static_cast<socklen_t>(sizeof where);
  getsockname(listener, reinterpret_cast<sockaddr*>(&where), &size);
  char name[INET6_ADDRSTRLEN] = {};
  unsigned port = 0;
  if (where.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(where);
    inet_ntop(AF_INET6, &v6.sin6_addr, name, sizeof name);
    port = ntohs(v6.sin6_port);
  } else {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(where);
    inet_ntop(AF_INET, &v4.sin_addr, name, sizeof name);
    port = ntohs(v4.sin_port);
  }
  *why = "the system gives no random numbers";
  if (!guard_.open(name, port)) {
    close(listener);
    return -1;
  }
  const bool is_v6 = where.ss_family == AF_INET6;
  snprintf(link_, sizeof link_, "http://%s%s%s:%u/?token=%s", is_v6 ? "[" : "", name,
           is_v6 ? "]" : "", port, guard_.token());
  return listener;
}

void Server::run() noexcept {
  const timeval second{kTickMs / 1000, 0};
  event* const timer = event_new(
      base_, -1, EV_PERSIST,
      [](evutil_socket_t, short, void* server) { static_cast<Server*>(server)->tick(); }, this);
  if (timer == nullptr) return;
  event_add(timer, &second);
  tick();
  event_base_dispatch(base_);
  event_free(timer);
  push_.close();
  evhttp_free(http_);
  look_after_connections();
  event_base_free(base_);
}

void Server::end() noexcept {
  if (has_profile() && !was_sampled_) allod_profile_stop();
  stop();
}

void Server::tick() noexcept {
  if (stopped_.load(std::memory_order_relaxed)) {
    event_base_loopbreak(base_);
    return;
  }
  if (is_last_thread()) exit(0);
  if (mark_waits_.load(std::memory_order_acquire)) {
    history_.mark(waiting_mark_);
    mark_waits_.store(false, std::memory_order_release);
  }
  look_after_connections();
  settle_symbols();
  push_.tick();
  // Limited to 1 % of the time.
  const std::uint64_t start = now_ms();
  if (start < next_sums_ms_) return;
  sums_.gather_sums();
  history_.add(sums_, reported_bytes());
  take_moment_if_due();
  next_sums_ms_ = start + 100 * (now_ms() - start);
}

bufferevent* Server::connect(event_base* base, void* context) noexcept {
  auto& server = *static_cast<Server*>(context);
  bufferevent* const stream = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
  if (stream == nullptr) return nullptr;
  if (server.connections_.size() + 1 >= kMostConnections) server.look_after_connections();
  if (server.connections_.push({stream, now_ms(), false})) bufferevent_incref(stream);
  if (server.connections_.size() >= kMostConnections) {
    evconnlistener_disable(evhttp_bound_socket_get_listener(server.socket_));
    server.listening_ = false;
  }
  return stream;
}

void Server::look_after_connections() noexcept {
  const std::uint64_t now = now_ms();
  for (std::size_t i = connections_.size(); i-- > 0;) {
    const Connection& it = connections_[i];
    // libevent removes its callbacks when it gives up a connection.
    bufferevent_data_cb reader = nullptr;
    bufferevent_event_cb watcher = nullptr;
    bufferevent_getcb(it.stream, &reader, nullptr, &watcher, nullptr);
    if (reader == nullptr && watcher == nullptr) {
      bufferevent_decref(it.stream);
      connections_.remove(i);
    } else if (now - it.since_ms > (it.trusted ? kIdleMs : kStrangerMs)) {
      shutdown(bufferevent_getfd(it.stream), SHUT_RDWR);
    }
  }
  if (!listening_ && connections_.size() < kMostConnections) {
    evconnlistener_enable(evhttp_bound_socket_get_listener(socket_));
    listening_ = true;
  }
}

void Server::answer(evhttp_request* request) noexcept {
  if (!guard_.allows(request)) {
    refuse(request, 403, "the link of the page, with its token, is needed\n");
    return;
  }
  bufferevent* const stream =
      evhttp_connection_get_bufferevent(evhttp_request_get_connection(request));
  for (Connection& it : connections_) {
    if (it.stream == stream) it = {stream, now_ms(), true};
  }
  live::answer(*this, request);
  settle_symbols();
}

void Server::mark(const char* label) noexcept {
  // If marks come faster than points, the first counts.
  if (mark_waits_.load(std::memory_order_acquire)) return;
  waiting_mark_ = mark_now(label);
  mark_waits_.store(true, std::memory_order_release);
}

Figures* Server::figures() noexcept {
  const std::uint64_t now = now_ms();
  if (all_at_ms_ != 0 && now < all_at_ms_ + 100 + 10 * all_took_ms_) return &all_;
  gathered_ms_ = wall_clock_ms();
  if (!all_.gather_all()) {
    all_at_ms_ = 0;
    return nullptr;
  }
  look_at_foreign();
  history_.see(all_);
  history_.raise_peaks(all_.threads);
  trends_ = history_.trends();
  for (ThreadRow& row : all_.threads) thread_name(row.thread, row.name);
  all_at_ms_ = now_ms();
  all_took_ms_ = all_at_ms_ - now;
  return &all_;
}

// Limited to 1 % of the time.
void Server::look_at_foreign() noexcept {
  constexpr std::uint64_t kLeastPauseMs = 5'000;
  const std::uint64_t start = now_ms();
  if (start < next_foreign_ms_) return;
  foreign_ = read_foreign();
  const std::uint64_t end = now_ms();
  next_foreign_ms_ = end + std::max(kLeastPauseMs, 100 * (end - start));
}

Figures* Server::map() noexcept {
  const std::uint64_t now = now_ms();
  if (map_at_ms_ != 0 && now < map_at_ms_ + 500) return &map_;
  if (!map_.gather_spans()) return nullptr;
  map_at_ms_ = now;
  return &map_;
}

}  // namespace allod::live

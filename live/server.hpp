// The server: one thread, one loop of events, connections with limits.
#pragma once

#include <event2/http.h>

#include <atomic>

#include "figures.hpp"
#include "guard.hpp"
#include "history.hpp"

namespace allod::live {

class Server {
 public:
  // Listens. False when that is not possible; `why` says more.
  [[nodiscard]] bool open(const char* address, const char** why) noexcept;
  // Serves until it is told to stop, or nothing is left to serve.
  void run() noexcept;
  void stop() noexcept { stopped_.store(true, std::memory_order_relaxed); }

  [[nodiscard]] const char* link() const noexcept { return link_; }
  [[nodiscard]] event_base* base() const noexcept { return base_; }
  [[nodiscard]] History& history() noexcept { return history_; }
  // The figures of now; null when there was no memory. Not gathered anew when that was done a
  // moment ago, so that many who look cost no more than one.
  [[nodiscard]] Figures* figures() noexcept;
  // When they were gathered, by the wall clock.
  [[nodiscard]] std::uint64_t gathered_ms() const noexcept { return gathered_ms_; }
  // Of spans only.
  [[nodiscard]] Figures* map() noexcept;
  // Room for the same, to be gathered by the caller.
  [[nodiscard]] Figures& map_figures() noexcept { return map_; }
  // From any thread: a mark on the timeline, now.
  void mark(const char* label) noexcept;
  [[nodiscard]] std::uint64_t started_ms() const noexcept { return started_ms_; }

  // Profiles of differences that are under way.
  unsigned deltas = 0;

 private:
  struct Connection {
    bufferevent* stream;
    std::uint64_t since_ms;  // the connection, or the end of its last good request
    bool trusted;            // it has made a good request
  };
  // Those who have not shown the token have so long for their whole request.
  static constexpr std::uint64_t kStrangerMs = 5'000;
  static constexpr std::uint64_t kIdleMs = 120'000;
  static constexpr std::size_t kMostConnections = 64;
  static constexpr std::uint64_t kTickMs = 1'000;

  [[nodiscard]] int listen_at(const char* address, const char** why) noexcept;
  void tick() noexcept;
  void look_after_connections() noexcept;
  void answer(evhttp_request* request) noexcept;
  [[nodiscard]] static bufferevent* connect(event_base* base, void* server) noexcept;

  event_base* base_ = nullptr;
  evhttp* http_ = nullptr;
  evhttp_bound_socket* socket_ = nullptr;
  bool listening_ = true;
  std::atomic<bool> stopped_{false};
  Guard guard_;
  History history_;
  Figures sums_;
  Figures all_;
  Figures map_;
  std::uint64_t all_at_ms_ = 0;
  std::uint64_t all_took_ms_ = 0;
  std::uint64_t gathered_ms_ = 0;
  std::uint64_t map_at_ms_ = 0;
  std::uint64_t next_sums_ms_ = 0;
  std::uint64_t started_ms_ = 0;
  Mark waiting_mark_{};
  std::atomic<bool> mark_waits_{false};
  Table<Connection> connections_;
  char link_[512] = {};
};

}  // namespace allod::live

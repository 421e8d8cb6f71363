// The server: one thread, one event loop, limited connections.
#pragma once

#include <event2/http.h>

#include <atomic>

#include "figures.hpp"
#include "foreign.hpp"
#include "guard.hpp"
#include "history.hpp"
#include "push.hpp"

namespace allod::live {

class Server {
 public:
  // Starts to listen. On failure, returns false and sets `why`.
  [[nodiscard]] bool open(const char* address, const char** why) noexcept;
  // Serves until stop(), or until the program has ended.
  void run() noexcept;
  void stop() noexcept { stopped_.store(true, std::memory_order_relaxed); }
  // The same, as the page asks for it. Samples end that were not taken before the server.
  void end() noexcept;

  [[nodiscard]] const char* link() const noexcept { return link_; }
  [[nodiscard]] event_base* base() const noexcept { return base_; }
  [[nodiscard]] History& history() noexcept { return history_; }
  [[nodiscard]] const Push& push() const noexcept { return push_; }
  // Current figures, or recent ones, so that many clients cost no more than one. Null if memory is
  // exhausted.
  [[nodiscard]] Figures* figures() noexcept;
  // Wall-clock time of the last gathering.
  [[nodiscard]] std::uint64_t gathered_ms() const noexcept { return gathered_ms_; }
  // Of the last gathering.
  [[nodiscard]] const Trends& trends() const noexcept { return trends_; }
  // What is not Allod's, of not long ago.
  [[nodiscard]] const Foreign& foreign() const noexcept { return foreign_; }
  // Spans only.
  [[nodiscard]] Figures* map() noexcept;
  // The same object, to be filled by the caller.
  [[nodiscard]] Figures& map_figures() noexcept { return map_; }
  // Adds a mark to the timeline, now. Thread-safe.
  void mark(const char* label) noexcept;
  [[nodiscard]] std::uint64_t started_ms() const noexcept { return started_ms_; }

  // Running difference profiles.
  unsigned deltas = 0;

 private:
  struct Connection {
    bufferevent* stream;
    std::uint64_t since_ms;  // since connection, or the end of its last authorised request
    bool trusted;            // has made an authorised request
  };
  // Time limit for connections without an authorised request.
  static constexpr std::uint64_t kStrangerMs = 5'000;
  static constexpr std::uint64_t kIdleMs = 120'000;
  static constexpr std::size_t kMostConnections = 64;
  static constexpr std::uint64_t kTickMs = 1'000;

  [[nodiscard]] int listen_at(const char* address, const char** why) noexcept;
  void tick() noexcept;
  void look_at_foreign() noexcept;
  void look_after_connections() noexcept;
  void answer(evhttp_request* request) noexcept;
  [[nodiscard]] static bufferevent* connect(event_base* base, void* server) noexcept;

  event_base* base_ = nullptr;
  evhttp* http_ = nullptr;
  evhttp_bound_socket* socket_ = nullptr;
  bool listening_ = true;
  std::atomic<bool> stopped_{false};
  bool was_sampled_ = false;  // before the server
  Guard guard_;
  History history_;
  Push push_;
  Figures sums_;
  Figures all_;
  Trends trends_;
  Foreign foreign_;
  std::uint64_t next_foreign_ms_ = 0;
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

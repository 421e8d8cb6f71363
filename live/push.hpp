// Pushes profiles to a collector, again and again.
#pragma once

#include <event2/bufferevent.h>
#include <sys/socket.h>

#include <cstdint>

#include "stacks.hpp"

namespace allod::live {

class Push {
 public:
  // Where to, as settings() have it. Does nothing if they have no collector.
  void open(event_base* base) noexcept;
  // To be called every second. Sends a profile if one is due.
  void tick() noexcept;
  // Before the event base is freed.
  void close() noexcept;

  [[nodiscard]] bool is_on() const noexcept { return base_ != nullptr; }
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
  [[nodiscard]] std::uint64_t failed() const noexcept { return failed_; }

 private:
  static constexpr std::uint64_t kMostMs = 10'000;  // for a request and its answer

  [[nodiscard]] bool write_request(evbuffer* to) noexcept;
  [[nodiscard]] const char* begin_request() noexcept;
  void read_answer() noexcept;
  void finish(const char* error) noexcept;

  event_base* base_ = nullptr;  // null: off
  sockaddr_storage address_{};
  socklen_t address_bytes_ = 0;
  bufferevent* stream_ = nullptr;  // null: none under way
  Stacks before_;                  // what the last profile had
  Stacks now_;
  std::uint64_t before_ms_ = 0;
  std::uint64_t now_ms_ = 0;
  std::uint64_t next_ms_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t failed_ = 0;
  bool is_failing_ = false;
};

}  // namespace allod::live

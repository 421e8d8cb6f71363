#include "push.hpp"

#include <event2/buffer.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "address.hpp"
#include "figures.hpp"
#include "otlp.hpp"
#include "settings.hpp"
#include "symbols.hpp"
#include "text/text.hpp"
#include "thread_sums.hpp"

namespace allod::live {

namespace {

constexpr std::size_t kMostRequestBytes = std::size_t{16} << 20;

// The program's standard error, which this thread's descriptors do not have. A full pipe loses it.
void tell_program(const char* error) noexcept {
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/fd/2", getpid());
  const int file = ::open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0) return;
  {
    DescriptorText out{file};
    out << "allod: warning: profiles do not reach " << settings().push << ": " << error
        << "; they are pushed on, and this is told once\n";
  }
  ::close(file);
}

}  // namespace

void Push::open(event_base* base) noexcept {
  if (settings().push[0] == '\0' || !has_profile()) return;
  address_bytes_ = parse_address(settings().push, address_);
  if (address_bytes_ == 0) return;
  base_ = base;
  before_ms_ = live::now_ms();
  next_ms_ = before_ms_ + settings().push_ms;
}

void Push::close() noexcept {
  if (stream_ != nullptr) bufferevent_free(stream_);
  stream_ = nullptr;
  base_ = nullptr;
}

// Takes 1 % of the time at most.
void Push::tick() noexcept {
  const std::uint64_t start = live::now_ms();
  if (base_ == nullptr || stream_ != nullptr || start < next_ms_) return;
  if (const char* const error = begin_request()) finish(error);
  const std::uint64_t took = live::now_ms() - start;
  next_ms_ = start + std::max<std::uint64_t>(settings().push_ms, 100 * took);
}

bool Push::write_request(evbuffer* to) noexcept {
  ThreadSums threads;
  if (!threads.gather() || !now_.copy()) return false;
  now_ms_ = live::now_ms();
  evbuffer* const body = evbuffer_new();
  if (body == nullptr) return false;
  bool is_whole =
      write_otlp(now_, before_, threads, settings().service, now_ms_ - before_ms_, body);
  settle_symbols();
  is_whole =
      is_whole && evbuffer_get_length(body) <= kMostRequestBytes &&
      evbuffer_add_printf(to,
                          "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: allod\r\n"
                          "Content-Type: application/x-protobuf\r\n"
                          "Content-Encoding: gzip\r\nContent-Length: %zu\r\n"
                          "Connection: close\r\n\r\n",
                          settings().push_path, settings().push, evbuffer_get_length(body)) > 0 &&
      evbuffer_add_buffer(to, body) == 0;
  evbuffer_free(body);
  return is_whole;
}

// Returns why it failed, or null.
const char* Push::begin_request() noexcept {
  constexpr const char* kNoMemory = "no memory, or a profile that is too large";
  stream_ = bufferevent_socket_new(base_, -1, BEV_OPT_CLOSE_ON_FREE);
  if (stream_ == nullptr || !write_request(bufferevent_get_output(stream_))) return kNoMemory;
  const timeval most{kMostMs / 1000, 0};
  bufferevent_set_timeouts(stream_, &most, &most);
  bufferevent_setcb(
      stream_, [](bufferevent*, void* self) { static_cast<Push*>(self)->read_answer(); }, nullptr,
      [](bufferevent*, short what, void* self) {
        if ((what & BEV_EVENT_CONNECTED) != 0) return;
        static_cast<Push*>(self)->finish((what & BEV_EVENT_TIMEOUT) != 0 ? "no answer in time"
                                         : (what & BEV_EVENT_EOF) != 0   ? "no answer"
                                                                         : "no connection");
      },
      this);
  bufferevent_enable(stream_, EV_READ | EV_WRITE);
  auto* const address = reinterpret_cast<sockaddr*>(&address_);
  if (bufferevent_socket_connect(stream_, address, static_cast<int>(address_bytes_)) == 0) {
    return nullptr;
  }
  // It may have been told already.
  return stream_ == nullptr ? nullptr : "no connection";
}

// The first line tells. What follows is not read.
void Push::read_answer() noexcept {
  evbuffer* const input = bufferevent_get_input(stream_);
  if (evbuffer_search_eol(input, nullptr, nullptr, EVBUFFER_EOL_CRLF).pos < 0) {
    if (evbuffer_get_length(input) > 1024) finish("no answer of HTTP");
    return;
  }
  char line[16] = {};
  evbuffer_copyout(input, line, sizeof line - 1);
  unsigned status = 0;
  if (sscanf(line, "HTTP/1.%*c %u", &status) != 1) return finish("no answer of HTTP");
  char refusal[32];
  snprintf(refusal, sizeof refusal, "status %u", status);
  finish(status >= 200 && status < 300 ? nullptr : refusal);
}

void Push::finish(const char* error) noexcept {
  if (stream_ != nullptr) bufferevent_free(stream_);
  stream_ = nullptr;
  if (error == nullptr) {
    ++sent_;
    std::swap(before_, now_);
    before_ms_ = now_ms_;
  } else {
    ++failed_;
    if (!is_failing_) tell_program(error);
  }
  is_failing_ = error != nullptr;
}

}  // namespace allod::live

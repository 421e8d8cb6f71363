#include "profile.hpp"

#include <event2/buffer.h>
#include <event2/event.h>
#include <stdio.h>

#include <algorithm>

#include "answers.hpp"
#include "json.hpp"
#include "moments.hpp"
#include "pprof.hpp"
#include "server.hpp"
#include "stack_lists.hpp"
#include "tree.hpp"

namespace allod::live {

namespace {

constexpr std::uint64_t kLongestDelta = 100;  // seconds
constexpr unsigned kMostDeltas = 8;           // concurrent

void send_pprof(evhttp_request* request, const Stacks& now, const PprofOptions& options) noexcept {
  evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Disposition",
                    "attachment; filename=\"heap.pb.gz\"");
  send_written(request, "application/octet-stream",
               [&](evbuffer* body) { return write_pprof(now, options, body); });
}

// A profile of the difference from now on, sent later.
struct Delta {
  Server& server;
  evhttp_request* request;
  PprofKind kind;
  std::uint64_t since_ms;
  Stacks before;
};

void answer_later(Server& server, evhttp_request* request, PprofKind kind,
                  std::uint64_t seconds) noexcept {
  void* const memory = server.deltas < kMostDeltas ? allocate(sizeof(Delta)) : nullptr;
  if (memory == nullptr) return refuse(request, 503, "too many profiles at a time\n");
  auto* const delta = new (memory) Delta{server, request, kind, now_ms(), {}};
  const timeval wait{static_cast<time_t>(std::min(seconds, kLongestDelta)), 0};
  const auto finish = [](evutil_socket_t, short, void* context) {
    auto* const ended = static_cast<Delta*>(context);
    Stacks now;
    if (now.copy()) {
      send_pprof(ended->request, now,
                 {.kind = ended->kind,
                  .before = &ended->before,
                  .duration_ms = now_ms() - ended->since_ms});
    } else {
      refuse(ended->request, 503, "there is no memory for this\n");
    }
    --ended->server.deltas;
    ended->~Delta();
    release(ended);
  };
  ++server.deltas;
  if (delta->before.copy() &&
      event_base_once(server.base(), -1, EV_TIMEOUT, finish, delta, &wait) == 0) {
    return;
  }
  --server.deltas;
  delta->~Delta();
  release(delta);
  refuse(request, 503, "there is no memory for this\n");
}

void answer_pprof(Server& server, evhttp_request* request, PprofKind kind,
                  std::uint64_t seconds) noexcept {
  if (seconds > 0) return answer_later(server, request, kind, seconds);
  Stacks now;
  ThreadSums threads;
  if (!threads.gather() || !now.copy()) {
    return refuse(request, 503, "there is no memory for this\n");
  }
  send_pprof(request, now, {.kind = kind, .threads = &threads});
}

// The moments nearest to the requested times. Default: from the first one to now.
struct Growth {
  const Moment* from;
  const Moment* to;
  std::uint64_t to_ms;
};
Growth choose_growth(std::uint64_t from_ms, std::uint64_t to_ms) noexcept {
  const std::size_t count = moment_count();
  if (count == 0) return {nullptr, nullptr, wall_clock_ms()};
  if (from_ms == 0 && to_ms == 0) return {&moment(0), nullptr, wall_clock_ms()};
  const Moment* const to = moment_near(to_ms);
  const Moment* from = moment_near(from_ms);
  const bool is_now = to == &moment(count - 1) && to_ms >= to->at_ms;
  if (from == to && count > 1 && !is_now) {
    for (std::size_t i = 1; i < count; ++i) {
      if (&moment(i) == to) from = &moment(i - 1);
    }
  }
  return {from, is_now ? nullptr : to, is_now ? wall_clock_ms() : to->at_ms};
}

bool write_flame(std::string_view of, std::uint64_t from_ms, std::uint64_t to_ms,
                 evbuffer* to) noexcept {
  Stacks stacks;
  Tree tree;
  if (!stacks.copy()) return false;
  const Growth growth = choose_growth(from_ms, to_ms);
  for (const StackCopy& stack : stacks.all()) {
    const allod_profile_stack_t& sums = stack.sums;
    allod_profile_sum_t sum = of == "peak" ? sums.peak : of == "total" ? sums.total : sums.live;
    if (of == "growth") {
      if (growth.to != nullptr) {
        const StackSum* const then = find_stack(*growth.to, sums.id);
        sum.bytes = then == nullptr ? 0 : then->bytes;
        sum.blocks = then == nullptr ? 0 : then->blocks;
      }
      if (growth.from != nullptr) {
        if (const StackSum* const before = find_stack(*growth.from, sums.id)) {
          sum.bytes = above(sum.bytes, before->bytes);
          sum.blocks = above(sum.blocks, before->blocks);
        }
      }
    }
    if (sum.bytes != 0 && !tree.add(sums, sum.bytes, sum.blocks)) return false;
  }
  Json json{to};
  json.object();
  json.field("of", of).field("bytes", tree.bytes()).field("blocks", tree.blocks());
  json.field("from_ms", growth.from == nullptr ? std::uint64_t{0} : growth.from->at_ms);
  json.field("to_ms", growth.to_ms);
  tree.write(json);
  json.end();
  return json.finish();
}

}  // namespace

bool answer_profile(Server& server, evhttp_request* request, std::string_view path, const char* of,
                    std::uint64_t from_ms, std::uint64_t to_ms, std::uint64_t seconds) noexcept {
  const bool known = path == "/api/flame" || path == "/api/stacks" || path == "/debug/folded" ||
                     path == "/debug/pprof/heap" || path == "/debug/pprof/allocs";
  if (!known) return false;
  if (!has_profile()) {
    refuse(request, 501, "this library has no profile\n");
  } else if (path == "/api/flame") {
    send_written(request, kJson,
                 [&](evbuffer* body) { return write_flame(of, from_ms, to_ms, body); });
  } else if (path == "/api/stacks") {
    send_written(request, kJson,
                 [&](evbuffer* body) { return write_stack_list(server, of, body); });
  } else if (path == "/debug/folded") {
    send_written(request, "text/plain; charset=utf-8", [&](evbuffer* body) {
      Stacks now;
      return now.copy() && write_folded(now, body);
    });
  } else {
    answer_pprof(server, request,
                 path == "/debug/pprof/heap" ? PprofKind::heap : PprofKind::allocations, seconds);
  }
  return true;
}

}  // namespace allod::live

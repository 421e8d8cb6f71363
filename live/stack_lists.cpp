#include "stack_lists.hpp"

#include <algorithm>

#include "json.hpp"
#include "moments.hpp"
#include "pins.hpp"
#include "server.hpp"
#include "stacks.hpp"
#include "symbols.hpp"
#include "tree.hpp"
#include "trend.hpp"

namespace allod::live {

namespace {

constexpr std::size_t kMostRows = 40;

struct Row {
  const allod_profile_stack_t* stack;
  std::uint64_t bytes;
  std::uint64_t blocks;
  std::uint64_t rate;   // sort key, unless that is bytes
  std::uint64_t error;  // of the rate: two standard deviations
};

// Growth in bytes per minute over the later half of the moments, or 0 if the stack often shrinks.
// Allocations made once at the start do not count.
std::uint64_t growth_rate(const allod_profile_stack_t& stack) noexcept {
  const std::size_t count = moment_count();
  if (count < 4) return 0;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  unsigned grown = 0;
  unsigned shrunk = 0;
  for (std::size_t i = count / 2; i < count; ++i) {
    const StackSum* const sum = find_stack(moment(i), stack.id);
    const std::uint64_t bytes = sum == nullptr ? 0 : sum->bytes;
    if (i == count / 2) {
      first = bytes;
    } else {
      grown += bytes > last ? 1 : 0;
      shrunk += bytes < last ? 1 : 0;
    }
    last = bytes;
  }
  const std::uint64_t span_ms = moment(count - 1).at_ms - moment(count / 2).at_ms;
  if (last <= first || grown < 2 || grown < 3 * shrunk || span_ms == 0) return 0;
  return (last - first) * 60'000 / span_ms;
}

void list_suspects(const Stacks& stacks, Table<Row>& rows) noexcept {
  for (const StackCopy& it : stacks.all()) {
    const std::uint64_t rate = growth_rate(it.sums);
    if (rate == 0) continue;
    static_cast<void>(rows.push({&it.sums, it.sums.live.bytes, it.sums.live.blocks, rate, 0}));
  }
}

void list_temporary(const Stacks& stacks, Table<Row>& rows) noexcept {
  for (const StackCopy& it : stacks.all()) {
    if (it.sums.freed_samples * 2 < it.sums.total_samples || it.sums.freed_samples == 0) continue;
    static_cast<void>(
        rows.push({&it.sums, it.sums.total.bytes, it.sums.total.blocks, it.sums.total.bytes, 0}));
  }
}

// Returns the bytes that are free in sparse slabs.
std::uint64_t list_pins(Figures& figures, const Stacks& stacks, Table<Row>& rows) noexcept {
  Pins pins;
  if (!pins.find(figures, stacks)) return 0;
  for (std::size_t i = 0; i < stacks.all().size(); ++i) {
    const PinSum& sum = pins.of_stack(i);
    const auto pinned = static_cast<std::uint64_t>(sum.pinned);
    if (pinned == 0) continue;
    const auto bytes = static_cast<std::uint64_t>(sum.bytes);
    const double half_more = sum.blocks + 0.5;
    const auto blocks = static_cast<std::uint64_t>(half_more);
    const auto error = static_cast<std::uint64_t>(2 * square_root(sum.variance));
    static_cast<void>(rows.push({&stacks.all()[i].sums, bytes, blocks, pinned, error}));
  }
  return pins.free_bytes();
}

bool is_interpreted(std::uintptr_t frame) noexcept {
  allod_profile_function_t function;
  return &allod_profile_function_get != nullptr &&
         allod_profile_function_get(frame, &function, sizeof function) == 0;
}

// Also writes the index of the frame that a row is named by: the first function of an interpreter,
// since what is below is the interpreter's; without one, the first that is no wrapper.
void write_frames(Json& json, const allod_profile_stack_t& stack) noexcept {
  struct Writing {
    Json& json;
    std::uint64_t count;
    std::uint64_t who;
  } writing{json, 0, UINT64_MAX};
  std::uint64_t interpreted = UINT64_MAX;
  json.array("frames");
  for (std::size_t i = 0; i < stack.depth; ++i) {
    if (interpreted == UINT64_MAX && is_interpreted(stack.frames[i])) interpreted = writing.count;
    find_places(
        stack.frames[i],
        [](const Place& place, void* context) {
          auto& [to, count, who] = *static_cast<Writing*>(context);
          to.object();
          if (!write_place(to, place) && who == UINT64_MAX) who = count;
          to.end();
          ++count;
        },
        &writing);
  }
  json.end();
  if (interpreted != UINT64_MAX) writing.who = interpreted;
  json.field("who", writing.who == UINT64_MAX ? std::uint64_t{0} : writing.who);
}

}  // namespace

bool write_stack_list(Server& server, std::string_view of, evbuffer* to) noexcept {
  Stacks stacks;
  Table<Row> rows;
  std::uint64_t free = 0;
  if (!stacks.copy()) return false;
  if (of == "suspects") {
    list_suspects(stacks, rows);
  } else if (of == "temporary") {
    list_temporary(stacks, rows);
  } else if (of == "pins") {
    free = list_pins(server.map_figures(), stacks, rows);
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.rate > b.rate; });
  if (rows.size() > kMostRows) static_cast<void>(rows.set_size(kMostRows));
  Json json{to};
  json.object();
  if (of == "pins") json.field("free", free);
  json.array("rows");
  for (const Row& row : rows) {
    const allod_profile_stack_t& stack = *row.stack;
    json.object();
    json.field("bytes", row.bytes).field("blocks", row.blocks).field("rate", row.rate);
    json.field("error", row.error);
    json.field("age_ms", stack.mean_age_ms).field("lifetime_ms", stack.mean_lifetime_ms);
    json.field("freed", stack.total_samples == 0
                            ? std::uint64_t{0}
                            : stack.freed_samples * 1000 / stack.total_samples);
    write_frames(json, stack);
    json.end();
  }
  json.end().end();
  return json.finish();
}

}  // namespace allod::live

// Sums up a trace as one JSON object.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <map>
#include <string_view>

#include "resolve.hpp"
#include "tool.hpp"

namespace replay {
namespace {

constexpr std::size_t kPoints = 500;
constexpr std::size_t kMostListed = 200;
constexpr std::array kKindNames = {"free",    "malloc", "calloc", "aligned",
                                   "realloc", "new",    "delete"};

// Sizes in bins: each to 3, then four to a doubling.
constexpr std::size_t bin_of(std::uint64_t size) {
  if (size < 4) return size;
  const auto doubling = static_cast<unsigned>(std::bit_width(size)) - 1;
  return 4 * (doubling - 1) + (size >> (doubling - 2) & 3U);
}
constexpr std::uint64_t bin_start(std::size_t bin) {
  if (bin < 4) return bin;
  return std::uint64_t{4 + bin % 4} << (bin / 4 - 1);
}
static_assert(bin_start(bin_of(4)) == 4 && bin_start(bin_of(7)) == 7 &&
              bin_start(bin_of(11)) == 10);
constexpr std::size_t kSizeBins = 4 * 63;

struct Amount {
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
  void add(std::uint64_t size) {
    ++blocks;
    bytes += size;
  }
};

struct OfThread {
  Amount allocated;
  std::uint64_t resized = 0;
  std::uint64_t released = 0;
  std::uint64_t released_of_others = 0;
  std::uint64_t released_by_others = 0;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

struct Point {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  bool is_set = false;
};

class Summary {
 public:
  explicit Summary(const Trace& trace)
      : trace_{trace}, threads_(trace.threads().size()), series_(kPoints) {
    span_ = std::max<std::uint64_t>(trace.last_ticks() - trace.first_ticks(), 1);
  }

  void allocated(const Event& event, std::uint32_t thread, Live& block) {
    note(event, thread);
    allocated_.add(block.size);
    threads_[thread].allocated.add(block.size);
    take(event, block);
    ++live_.blocks;
    change(event, block.size, 0);
  }
  void resized(const Event& event, std::uint32_t thread, const Live& old, Live& block) {
    note(event, thread);
    ++threads_[thread].resized;
    ++resized_;
    moved_ += old.address != block.address ? 1U : 0U;
    give(event, old);
    take(event, block);
    change(event, block.size, old.size);
  }
  void released(const Event& event, std::uint32_t thread, const Live& block) {
    // A release that is missing in the trace is noticed by an event that is not one.
    if (event.kind == Kind::free || event.kind == Kind::delete_block ||
        event.kind == Kind::realloc) {
      note(event, thread);
    }
    ++threads_[thread].released;
    ++released_;
    give(event, block);
    if (thread != block.thread) {
      ++threads_[thread].released_of_others;
      ++threads_[block.thread].released_by_others;
      ++released_by_others_;
    }
    --live_.blocks;
    change(event, 0, block.size);
  }
  void failed(const Event& event, std::uint32_t thread) {
    note(event, thread);
    ++failed_;
  }

  void print(const LiveMap& live, const Doubts& doubts);

 private:
  void note(const Event& event, std::uint32_t thread) {
    ++kinds_[static_cast<std::size_t>(event.kind)];
    OfThread& own = threads_[thread];
    if (own.first == 0) own.first = event.ticks;
    own.last = std::max(own.last, event.returned);
  }
  void take(const Event& event, const Live& block) {
    sizes_[bin_of(block.size)].add(block.size);
    if (block.size < exact_sizes_.size()) ++exact_sizes_[block.size];
    if (event.alignment != 0) ++alignments_[event.alignment];
  }
  void give(const Event& event, const Live& block) {
    const std::uint64_t ticks = event.ticks > block.born ? event.ticks - block.born : 0;
    lifetimes_[std::bit_width(to_nanoseconds(ticks))].add(block.size);
  }
  void change(const Event& event, std::uint64_t more, std::uint64_t less) {
    live_.bytes += more - less;
    if (live_.bytes > peak_.bytes) {
      peak_ = live_;
      peak_ticks_ = event.returned;
    }
    const std::uint64_t since = event.returned - std::min(event.returned, trace_.first_ticks());
    const double share = std::min(static_cast<double>(since) / static_cast<double>(span_), 1.0);
    const auto at = static_cast<std::size_t>(share * (kPoints - 1));
    Point& point = series_[at];
    if (!point.is_set || live_.bytes > point.bytes) point = {live_.bytes, live_.blocks, true};
    ends_[at] = {live_.bytes, live_.blocks, true};
  }

  std::uint64_t to_nanoseconds(std::uint64_t ticks) const {
    // A damaged trace can have any time in it.
    constexpr double kMost = 9e18;
    return static_cast<std::uint64_t>(
        std::min(static_cast<double>(ticks) * trace_.nanoseconds_per_tick(), kMost));
  }
  double to_seconds(std::uint64_t ticks) const {
    return static_cast<double>(ticks - std::min(ticks, trace_.first_ticks())) *
           trace_.nanoseconds_per_tick() * 1e-9;
  }
  void print_counts(const Doubts& doubts) const;
  void print_series() const;
  void print_sizes() const;
  void print_lifetimes(const LiveMap& live) const;
  void print_threads() const;

  const Trace& trace_;
  std::uint64_t span_;
  std::array<std::uint64_t, allod::record::kKinds> kinds_{};
  std::vector<OfThread> threads_;
  std::vector<Point> series_;
  std::array<Point, kPoints> ends_{};
  std::array<Amount, kSizeBins> sizes_{};
  std::array<std::uint64_t, 64 * 1024> exact_sizes_{};
  std::array<Amount, 65> lifetimes_{};
  std::map<unsigned, std::uint64_t> alignments_;
  Amount allocated_;
  std::uint64_t resized_ = 0;
  std::uint64_t moved_ = 0;
  std::uint64_t released_ = 0;
  std::uint64_t released_by_others_ = 0;
  std::uint64_t failed_ = 0;
  Amount live_;
  Amount peak_;
  std::uint64_t peak_ticks_ = 0;
};

unsigned long long number(std::uint64_t value) { return value; }

void print_string(std::string_view text) {
  std::putchar('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    // What is not ASCII may not be valid either: each byte of it is shown as Latin-1.
    if (byte < 0x20 || byte >= 0x7F || c == '"' || c == '\\') {
      std::printf("\\u%04x", byte);
    } else {
      std::putchar(c);
    }
  }
  std::putchar('"');
}

void print_amount(const char* name, const Amount& amount) {
  std::printf(",\"%s\":{\"blocks\":%llu,\"bytes\":%llu}", name, number(amount.blocks),
              number(amount.bytes));
}

// Prints what stands between the elements of a list: nothing before the first.
class Separator {
 public:
  void print() {
    if (!is_first_) std::putchar(',');
    is_first_ = false;
  }

 private:
  bool is_first_ = true;
};

void Summary::print_counts(const Doubts& doubts) const {
  const FileHeader& header = trace_.header();
  std::printf("{\"command\":");
  print_string(trace_.command());
  std::printf(",\"allocator\":");
  print_string(trace_.allocator());
  std::printf(",\"process\":%u,\"forked\":%s,\"complete\":%s", header.process,
              (header.flags & allod::record::kForked) != 0 ? "true" : "false",
              trace_.is_complete() ? "true" : "false");
  std::printf(",\"bytes\":%llu,\"unusable_bytes\":%llu,\"chunks\":%zu", number(trace_.bytes()),
              number(trace_.unusable_bytes()), trace_.chunks().size());
  std::printf(",\"time\":%.6f,\"seconds\":%.9f,\"events\":%llu",
              static_cast<double>(header.time) * 1e-9, to_seconds(trace_.last_ticks()),
              number(trace_.events()));
  std::printf(",\"kinds\":{");
  Separator separator;
  for (std::size_t kind = 0; kind < kKindNames.size(); ++kind) {
    separator.print();
    std::printf("\"%s\":%llu", kKindNames[kind], number(kinds_[kind]));
  }
  std::printf("},\"failed\":%llu,\"resized\":%llu,\"moved\":%llu,\"released\":%llu",
              number(failed_), number(resized_), number(moved_), number(released_));
  std::printf(",\"released_by_others\":%llu,\"unknown_releases\":%llu,\"missing_releases\":%llu",
              number(released_by_others_), number(doubts.unknown_releases),
              number(doubts.missing_releases));
}

void Summary::print_series() const {
  std::printf(",\"series\":[");
  Separator separator;
  Point before;
  for (std::size_t i = 0; i < kPoints; ++i) {
    separator.print();
    const Point& point = series_[i].is_set ? series_[i] : before;
    std::printf("[%.6f,%llu,%llu]", to_seconds(trace_.first_ticks() + span_ * i / (kPoints - 1)),
                number(point.bytes), number(point.blocks));
    if (ends_[i].is_set) before = ends_[i];
  }
  std::printf("]");
}

void Summary::print_sizes() const {
  std::printf(",\"sizes\":[");
  Separator separator;
  for (std::size_t bin = 0; bin < kSizeBins; ++bin) {
    if (sizes_[bin].blocks == 0) continue;
    separator.print();
    std::printf("{\"from\":%llu,\"to\":%llu,\"blocks\":%llu,\"bytes\":%llu}",
                number(bin_start(bin)), number(bin_start(bin + 1) - 1), number(sizes_[bin].blocks),
                number(sizes_[bin].bytes));
  }
  std::printf("],\"frequent_sizes\":[");
  std::vector<std::size_t> order(exact_sizes_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return exact_sizes_[a] != exact_sizes_[b] ? exact_sizes_[a] > exact_sizes_[b] : a < b;
  });
  separator = {};
  for (std::size_t i = 0; i < 10 && exact_sizes_[order[i]] > 0; ++i) {
    separator.print();
    std::printf("[%zu,%llu]", order[i], number(exact_sizes_[order[i]]));
  }
  std::printf("],\"alignments\":[");
  separator = {};
  for (const auto& [power, count] : alignments_) {
    separator.print();
    std::printf("[%llu,%llu]", number(std::uint64_t{1} << power), number(count));
  }
  std::printf("]");
}

void Summary::print_lifetimes(const LiveMap& live) const {
  std::printf(",\"lifetimes\":[");
  Separator separator;
  for (std::size_t bits = 0; bits < lifetimes_.size(); ++bits) {
    if (lifetimes_[bits].blocks == 0) continue;
    separator.print();
    const std::uint64_t from = bits == 0 ? 0 : std::uint64_t{1} << (bits - 1);
    std::printf("{\"from\":%llu,\"to\":%llu,\"blocks\":%llu,\"bytes\":%llu}", number(from),
                number(bits == 0 ? 1 : 2 * from), number(lifetimes_[bits].blocks),
                number(lifetimes_[bits].bytes));
  }
  std::printf("]");
  Amount left;
  live.each([&](const Live& block) { left.add(block.size); });
  print_amount("left", left);
}

void Summary::print_threads() const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    if (threads_[i].first != 0) order.push_back(i);
  }
  std::printf(",\"threads\":%zu,\"busiest_threads\":[", order.size());
  const auto calls = [&](std::size_t i) {
    return threads_[i].allocated.blocks + threads_[i].released;
  };
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return calls(a) != calls(b) ? calls(a) > calls(b) : a < b;
  });
  Separator separator;
  for (std::size_t i = 0; i < std::min(order.size(), kMostListed); ++i) {
    const OfThread& thread = threads_[order[i]];
    separator.print();
    std::printf("{\"thread\":%zu,\"kernel_id\":%u,\"allocated\":%llu,\"bytes\":%llu", order[i],
                trace_.threads()[order[i]].kernel_id, number(thread.allocated.blocks),
                number(thread.allocated.bytes));
    std::printf(",\"resized\":%llu,\"released\":%llu", number(thread.resized),
                number(thread.released));
    std::printf(",\"released_of_others\":%llu,\"released_by_others\":%llu",
                number(thread.released_of_others), number(thread.released_by_others));
    std::printf(",\"first\":%.6f,\"last\":%.6f}", to_seconds(thread.first),
                to_seconds(thread.last));
  }
  std::printf("]");
}

void Summary::print(const LiveMap& live, const Doubts& doubts) {
  print_counts(doubts);
  print_amount("allocated", allocated_);
  print_amount("peak", peak_);
  std::printf(",\"peak_seconds\":%.6f", to_seconds(peak_ticks_));
  print_series();
  print_sizes();
  print_lifetimes(live);
  print_threads();
  std::printf("}\n");
}

}  // namespace

void print_info(const Trace& trace) {
  Summary summary{trace};
  Resolver resolver{trace, summary};
  resolver.run();
  summary.print(resolver.live(), resolver.doubts());
}

}  // namespace replay

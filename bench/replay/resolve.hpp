// Puts the events of all threads in one order and tells which block each of them is about: from
// addresses to objects.
//
// The order is that of time. The recorder stamps what releases an address before, and what takes
// one after the call, so time puts a release before the reuse of its address. Counters of cores
// that do not quite agree, and equal stamps, are put right by what is possible: an event whose
// address is still taken, or not taken yet, waits for the event that changes that. It waits for a
// limited time: events of before the trace, of signal handlers and of memory that did not come from
// the recorded functions are missing in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "trace.hpp"

namespace replay {

// A block that is live; `note` is the sink's own.
struct Live {
  std::uint64_t address = 0;
  std::uint64_t object = 0;  // in the order of allocation; a block that realloc gives is a new one
  std::uint64_t size = 0;
  std::uint64_t born = 0;
  std::uint64_t note = 0;
  std::uint32_t thread = 0;
};

// From addresses to live blocks: open addressing with linear probing, and deletion that moves back
// what follows (Knuth, The Art of Computer Programming 3, 6.4).
class LiveMap {
 public:
  LiveMap() : slots_(1U << 12U) {}

  Live* find(std::uint64_t address) {
    for (std::size_t i = home(address);; i = next(i)) {
      if (slots_[i].address == address) return &slots_[i];
      if (slots_[i].address == 0) return nullptr;
    }
  }
  // The address must not be in the map. What find() gave is no longer valid.
  Live& add(const Live& live) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    ++count_;
    std::size_t i = home(live.address);
    while (slots_[i].address != 0) i = next(i);
    return slots_[i] = live;
  }
  void remove(Live* live) {
    --count_;
    auto hole = static_cast<std::size_t>(live - slots_.data());
    for (std::size_t i = next(hole); slots_[i].address != 0; i = next(i)) {
      const std::size_t wanted = home(slots_[i].address);
      // Whether its home is not between the hole and where it is, going round.
      if (((i - wanted) & (slots_.size() - 1)) >= ((i - hole) & (slots_.size() - 1))) {
        slots_[hole] = slots_[i];
        hole = i;
      }
    }
    slots_[hole] = {};
  }
  std::size_t size() const { return count_; }
  template <class Visit>
  void each(Visit visit) const {
    for (const Live& live : slots_) {
      if (live.address != 0) visit(live);
    }
  }

 private:
  std::size_t home(std::uint64_t address) const {
    return (address * 0x9E3779B97F4A7C15U >> 20U) & (slots_.size() - 1);
  }
  std::size_t next(std::size_t i) const { return (i + 1) & (slots_.size() - 1); }
  void grow() {
    std::vector<Live> old(slots_.size() * 2);
    old.swap(slots_);
    count_ = 0;
    for (const Live& live : old) {
      if (live.address != 0) add(live);
    }
  }

  std::vector<Live> slots_;
  std::size_t count_ = 0;
};

// What cannot be true of a heap, and so tells what the trace lacks.
struct Doubts {
  std::uint64_t unknown_releases = 0;  // of addresses that nobody allocated
  std::uint64_t missing_releases = 0;  // of addresses that were allocated again
};

// A sink has
//   void allocated(const Event&, std::uint32_t thread, Live& block);
//   void resized(const Event&, std::uint32_t thread, const Live& old, Live& block);
//   void released(const Event&, std::uint32_t thread, const Live& block);
//   void failed(const Event&, std::uint32_t thread);
// Each successful call of the program is one of the first three, but for releases of unknown
// addresses, and one release in excess for each missing one.
template <class Sink>
class Resolver {
 public:
  Resolver(const Trace& trace, Sink& sink)
      : sink_{&sink},
        patience_{static_cast<std::uint64_t>(
            std::min(kPatienceNanoseconds / trace.nanoseconds_per_tick(), 1e15))} {
    const auto threads = static_cast<std::uint32_t>(trace.threads().size());
    lines_.reserve(threads);
    for (std::uint32_t i = 0; i < threads; ++i) lines_.emplace_back(trace, i);
    for (std::uint32_t i = 0; i < threads; ++i) advance(i);
  }

  void run() {
    while (!queue_.empty() || !parked_.empty()) {
      const bool force = !parked_.empty() &&
                         (queue_.empty() || queue_.top().ticks > lines_[parked_.front()].deadline);
      std::uint32_t number;
      if (force) {
        number = parked_.front();
        parked_.erase(parked_.begin());
      } else {
        number = queue_.top().line;
        queue_.pop();
      }
      run_line(number, force);
    }
  }

  const LiveMap& live() const { return live_; }
  const Doubts& doubts() const { return doubts_; }

 private:
  static constexpr double kPatienceNanoseconds = 100'000;

  struct Line {
    Line(const Trace& trace, std::uint32_t number) : cursor{trace, number} {}
    Cursor cursor;
    Event event;
    std::uint64_t ticks = 0;  // of what comes next
    std::uint64_t deadline = 0;
    bool is_moving = false;  // between the two halves of a realloc that moves
    Live old{};
  };
  struct Entry {
    std::uint64_t ticks;
    std::uint32_t line;
    bool operator>(const Entry& other) const {
      return ticks != other.ticks ? ticks > other.ticks : line > other.line;
    }
  };

  // Goes on with one thread for as long as its events come before all others.
  void run_line(std::uint32_t number, bool force) {
    Line& line = lines_[number];
    for (;;) {
      if (!apply(line, number, force)) {
        if (line.deadline == 0) line.deadline = line.ticks + patience_;
        parked_.push_back(number);
        return;
      }
      force = false;
      line.deadline = 0;
      for (const std::uint32_t each : parked_) queue_.push({lines_[each].ticks, each});
      parked_.clear();
      if (!line.is_moving) {
        if (!line.cursor.next(line.event)) return;
        line.ticks = line.event.kind == Kind::realloc && line.event.address == 0
                         ? line.event.returned
                         : line.event.ticks;
      }
      if (!queue_.empty() && Entry{line.ticks, number} > queue_.top()) {
        queue_.push({line.ticks, number});
        return;
      }
    }
  }

  void advance(std::uint32_t number) {
    Line& line = lines_[number];
    if (line.cursor.next(line.event)) queue_.push({line.ticks = line.event.ticks, number});
  }

  // False if the event is not possible yet.
  bool apply(Line& line, std::uint32_t number, bool force) {
    const Event& event = line.event;
    switch (event.kind) {
      case Kind::free:
      case Kind::delete_block:
        return release(event, number, force);
      case Kind::realloc:
        return reallocate(line, number, force);
      default:
        if (event.address == 0) {
          sink_->failed(event, number);
          return true;
        }
        return allocate(event, number, event.address, event.ticks, force, nullptr);
    }
  }

  bool release(const Event& event, std::uint32_t number, bool force) {
    Live* const block = live_.find(event.address);
    if (block == nullptr) {
      if (force) ++doubts_.unknown_releases;
      return force;
    }
    sink_->released(event, number, *block);
    live_.remove(block);
    return true;
  }

  bool allocate(const Event& event, std::uint32_t number, std::uint64_t address,
                std::uint64_t ticks, bool force, const Live* old) {
    if (Live* const taken = live_.find(address)) {
      if (!force) return false;
      ++doubts_.missing_releases;
      sink_->released(event, number, *taken);
      live_.remove(taken);
    }
    Live& block = live_.add({.address = address,
                             .object = objects_++,
                             .size = event.size,
                             .born = ticks,
                             .note = 0,
                             .thread = number});
    if (old == nullptr) {
      sink_->allocated(event, number, block);
    } else {
      sink_->resized(event, number, *old, block);
    }
    return true;
  }

  // Its address is free from when it began, its new one is taken when it returned.
  bool reallocate(Line& line, std::uint32_t number, bool force) {
    const Event& event = line.event;
    if (!line.is_moving) {
      if (event.moved_to == 0) {
        // realloc to nothing is a free; to something, it failed and changed nothing.
        if (event.size == 0 && event.address != 0) return release(event, number, force);
        sink_->failed(event, number);
        return true;
      }
      line.old = {};
      if (event.address != 0) {
        Live* const block = live_.find(event.address);
        if (block == nullptr && !force) return false;
        if (block == nullptr) {
          ++doubts_.unknown_releases;
        } else {
          line.old = *block;
          live_.remove(block);
        }
      }
      if (event.address != 0 && event.address != event.moved_to) {
        line.is_moving = true;
        line.ticks = event.returned;
        return true;
      }
      if (event.address != 0) force = true;  // In place: nobody else can have it.
    }
    const bool is_done = allocate(event, number, event.moved_to, event.returned, force,
                                  line.old.address == 0 ? nullptr : &line.old);
    if (is_done) line.is_moving = false;
    return is_done;
  }

  Sink* sink_;
  std::uint64_t patience_;
  std::vector<Line> lines_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  std::vector<std::uint32_t> parked_;
  LiveMap live_;
  Doubts doubts_;
  std::uint64_t objects_ = 0;
};

}  // namespace replay

// Prepares a trace for the replay, in two passes: the first finds out which blocks are released by
// another thread than the one that allocated them, the second gives every block a slot.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>

#include "prepared.hpp"
#include "resolve.hpp"
#include "tool.hpp"

namespace replay {
namespace {

using allod::record::put_number;

struct FirstPass {
  void allocated(const Event&, std::uint32_t, Live& block) {
    is_shared.push_back(false);
    grow(block.size, 0);
  }
  void resized(const Event&, std::uint32_t thread, const Live& old, Live& block) {
    is_shared.push_back(false);
    if (thread != old.thread) is_shared[old.object] = true;
    grow(block.size, old.size);
  }
  void released(const Event&, std::uint32_t thread, const Live& block) {
    if (thread != block.thread) is_shared[block.object] = true;
    grow(0, block.size);
  }
  void failed(const Event&, std::uint32_t) {}

  void grow(std::uint64_t more, std::uint64_t less) {
    ++events;
    bytes += more;
    live += more - less;
    peak = std::max(peak, live);
  }

  // How many events a window has.
  std::uint64_t window() const {
    const double share = static_cast<double>(peak) / kWindowsInPeak /
                         static_cast<double>(std::max<std::uint64_t>(bytes, 1));
    const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(events));
    return std::max(std::min(wanted, events / kFewestWindows), kFewestEventsInWindow);
  }

  std::vector<bool> is_shared;
  std::uint64_t events = 0;
  std::uint64_t bytes = 0;
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
};

class Output {
 public:
  explicit Output(const char* path) : path_{path}, file_{std::fopen(path, "wb"), &std::fclose} {
    if (file_ == nullptr) fail();
  }
  std::uint64_t offset() const { return offset_; }
  void write(const void* data, std::size_t bytes) {
    if (std::fwrite(data, 1, bytes, file_.get()) != bytes) fail();
    offset_ += bytes;
  }
  template <class T>
  void write_all(const std::vector<T>& items) {
    write(items.data(), items.size() * sizeof(T));
  }
  void finish(const void* header, std::size_t bytes) {
    if (std::fseek(file_.get(), 0, SEEK_SET) != 0) fail();
    write(header, bytes);
    if (std::fclose(file_.release()) != 0) fail();
  }

 private:
  [[noreturn]] void fail() const {
    throw TraceError("cannot write " + path_ + ": " + std::strerror(errno));
  }

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::uint64_t offset_ = 0;
};

// Where a block is kept: a slot, and whether it is in the shared table.
struct Place {
  std::uint64_t slot;
  bool is_shared;
  std::uint64_t note() const { return slot << 1U | (is_shared ? 1U : 0U); }
  static Place of(const Live& block) { return {block.note >> 1U, (block.note & 1U) != 0}; }
};

class SecondPass {
 public:
  SecondPass(const FirstPass& first, std::size_t threads, Output& output)
      : first_{first}, output_{output}, in_window_{first.window()}, threads_(threads) {
    windows_.resize(first.events / in_window_ + 1);
  }

  void allocated(const Event& event, std::uint32_t thread, Live& block) {
    step(thread, block.size, 0);
    const Place place = take(thread, block);
    Op op = Op::malloc;
    if (event.kind == Kind::calloc) op = Op::calloc;
    if (event.kind == Kind::aligned) op = Op::aligned;
    start(thread, op, place);
    put(thread, block.size);
    if (op == Op::aligned) put(thread, event.alignment);
  }
  void resized(const Event&, std::uint32_t thread, const Live& old, Live& block) {
    step(thread, block.size, old.size);
    const Place from = Place::of(old);
    const Place to = take(thread, block);
    start(thread, Op::realloc, to, from.is_shared);
    put(thread, std::max<std::uint64_t>(block.size, 1));
    put(thread, from.slot);
    put(thread, old.size);
    give_back(thread, from);
  }
  void released(const Event&, std::uint32_t thread, const Live& block) {
    step(thread, 0, block.size);
    const Place place = Place::of(block);
    start(thread, Op::free, place);
    put(thread, block.size);
    give_back(thread, place);
  }
  void failed(const Event&, std::uint32_t) {}

  void finish();

 private:
  struct Line {
    std::vector<std::uint8_t> bytes;
    std::vector<PreparedChunk> chunks;
    std::vector<std::uint64_t> free_slots;
    std::uint64_t slots = 0;
    std::uint32_t first_window = 0;
    std::uint32_t window = 0;
    bool is_used = false;
  };
  struct Resting {
    std::uint64_t slot;
    std::uint32_t window;
  };

  std::uint32_t window() const { return static_cast<std::uint32_t>(done_ / in_window_); }

  // Before each event: windows go by.
  void step(std::uint32_t thread, std::uint64_t more, std::uint64_t less) {
    Line& line = threads_[thread];
    const std::uint32_t now = window();
    if (!line.is_used) {
      line.is_used = true;
      line.first_window = line.window = now;
      ++windows_[now].threads;
    } else if (line.window != now) {
      start_op(line, static_cast<std::uint8_t>(Op::window));
      put(thread, now - line.window);
      line.window = now;
      ++windows_[now].threads;
    }
    live_ += more - less;
    windows_[now].live_bytes = live_;
    ++done_;
    now_ = now;
  }

  // A block that stays with its thread gets the slot that the thread freed last; one that does not
  // gets a slot that everybody is done with.
  Place take(std::uint32_t thread, Live& block) {
    Place place{0, first_.is_shared[block.object]};
    Line& line = threads_[thread];
    if (place.is_shared) {
      if (!resting_.empty() && resting_.front().window + kWindowsApart <= now_) {
        place.slot = resting_.front().slot;
        resting_.pop_front();
      } else {
        place.slot = shared_slots_++;
      }
    } else if (line.free_slots.empty()) {
      place.slot = line.slots++;
    } else {
      place.slot = line.free_slots.back();
      line.free_slots.pop_back();
    }
    block.note = place.note();
    return place;
  }
  void give_back(std::uint32_t thread, Place place) {
    if (place.is_shared) {
      resting_.push_back({place.slot, now_});
    } else {
      threads_[thread].free_slots.push_back(place.slot);
    }
  }

  void start(std::uint32_t thread, Op op, Place place, bool old_shared = false) {
    const unsigned bits = static_cast<unsigned>(op) | (place.is_shared ? kShared : 0U) |
                          (old_shared ? kOldShared : 0U);
    start_op(threads_[thread], static_cast<std::uint8_t>(bits));
    put(thread, place.slot);
  }
  void start_op(Line& line, std::uint8_t byte) {
    if (line.bytes.size() + kMostOpBytes > kMostChunkBytes) flush(line);
    line.bytes.push_back(byte);
  }
  void put(std::uint32_t thread, std::uint64_t value) {
    std::uint8_t text[8];
    std::uint8_t* end = text;
    put_number(end, value);
    std::vector<std::uint8_t>& bytes = threads_[thread].bytes;
    bytes.insert(bytes.end(), text, end);
  }
  void flush(Line& line) {
    line.chunks.push_back({output_.offset(), line.bytes.size()});
    output_.write_all(line.bytes);
    line.bytes.clear();
  }

  const FirstPass& first_;
  Output& output_;
  std::uint64_t in_window_;
  std::vector<Line> threads_;
  std::vector<PreparedWindow> windows_;
  std::deque<Resting> resting_;
  std::uint64_t shared_slots_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t live_ = 0;
  std::uint32_t now_ = 0;
};

void SecondPass::finish() {
  if (windows_.back().threads == 0) windows_.pop_back();
  std::vector<PreparedThread> threads;
  std::vector<PreparedChunk> chunks;
  for (Line& line : threads_) {
    if (!line.is_used) continue;
    start_op(line, static_cast<std::uint8_t>(Op::end));
    flush(line);
    threads.push_back({line.slots, chunks.size(), static_cast<std::uint32_t>(line.chunks.size()),
                       line.first_window});
    chunks.insert(chunks.end(), line.chunks.begin(), line.chunks.end());
  }
  PreparedHeader header{.magic = {},
                        .threads = static_cast<std::uint32_t>(threads.size()),
                        .windows = static_cast<std::uint32_t>(windows_.size()),
                        .events = first_.events,
                        .shared_slots = shared_slots_,
                        .peak_live_bytes = first_.peak,
                        .chunks = chunks.size(),
                        .index = output_.offset()};
  std::memcpy(header.magic, kPreparedMagic, sizeof kPreparedMagic);
  output_.write_all(threads);
  output_.write_all(windows_);
  output_.write_all(chunks);
  output_.finish(&header, sizeof header);
}

}  // namespace

void prepare(const Trace& trace, const char* path) {
  FirstPass first;
  Resolver{trace, first}.run();
  if (first.events == 0) throw TraceError("the trace has no events to replay");
  Output output{path};
  const PreparedHeader room{};
  output.write(&room, sizeof room);
  SecondPass second{first, trace.threads().size(), output};
  Resolver{trace, second}.run();
  second.finish();
}

}  // namespace replay

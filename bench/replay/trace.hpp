// Reads a trace that the recorder wrote (docs/trace-format.md): which chunks it has, and the events
// of one thread after another. The file is mapped, so it may be larger than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "record/format.hpp"

namespace replay {

using allod::record::ChunkHeader;
using allod::record::FileHeader;
using allod::record::Kind;

// The text is for the user.
class TraceError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One call as it was recorded. `ticks` is when it returned if it allocates, when it began if it
// releases; a realloc also has the time when it returned.
struct Event {
  Kind kind = Kind::free;
  std::uint8_t alignment = 0;  // its logarithm; 0 where the program asked for none
  bool by_operator = false;
  std::uint64_t ticks = 0;
  std::uint64_t returned = 0;
  std::uint64_t address = 0;  // for realloc the old one
  std::uint64_t moved_to = 0;
  std::uint64_t size = 0;
};

struct Chunk {
  std::size_t offset;  // of the header
  ChunkHeader header;
};

class Trace {
 public:
  explicit Trace(const char* path);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  struct Thread {
    std::uint32_t kernel_id = 0;
    std::vector<std::uint32_t> chunks;
  };

  const FileHeader& header() const { return header_; }
  std::string command() const;
  std::string allocator() const;
  std::span<const Chunk> chunks() const { return chunks_; }
  // By number, from 1; the first is empty.
  std::span<const Thread> threads() const { return threads_; }
  const std::uint8_t* payload(const Chunk& chunk) const {
    return data_ + chunk.offset + sizeof(ChunkHeader);
  }

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t events() const { return events_; }
  std::uint64_t first_ticks() const { return header_.ticks; }
  std::uint64_t last_ticks() const { return last_ticks_; }
  double nanoseconds_per_tick() const { return nanoseconds_per_tick_; }
  // Whether the process said that it ended; if not, the last events of its threads are missing.
  bool is_complete() const { return is_complete_; }
  // At the end of the file, or wherever nothing can be made of it.
  std::uint64_t unusable_bytes() const { return unusable_bytes_; }

 private:
  void map(const char* path);
  void read_header(const char* path);
  void read_chunks();
  bool add_chunk(std::size_t offset);

  const std::uint8_t* data_ = nullptr;
  std::size_t bytes_ = 0;
  FileHeader header_{};
  std::vector<Chunk> chunks_;
  std::vector<Thread> threads_;
  std::uint64_t events_ = 0;
  std::uint64_t last_ticks_ = 0;
  double nanoseconds_per_tick_ = 1;
  bool is_complete_ = false;
  std::uint64_t unusable_bytes_ = 0;
};

// The events of one thread, in order.
class Cursor {
 public:
  Cursor(const Trace& trace, std::uint32_t thread) : trace_{&trace}, thread_{thread} {}

  // False at the end. TraceError if a chunk holds something else than it says.
  bool next(Event& event);

 private:
  bool open_chunk();
  std::uint64_t take(unsigned bytes);

  const Trace* trace_;
  std::uint32_t thread_;
  std::size_t chunk_ = 0;
  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_ = nullptr;
  std::uint32_t left_ = 0;
  std::uint64_t ticks_ = 0;
  std::uint64_t unit_ = 0;
  // The end of a chunk, with room behind it: numbers are read 8 bytes at a time.
  std::vector<std::uint8_t> copy_;
};

}  // namespace replay

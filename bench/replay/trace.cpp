#include "trace.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace replay {

using namespace allod::record;

namespace {

// More threads than any process can have had, and few enough for a table.
constexpr std::uint32_t kMostThreads = 1U << 24U;

[[noreturn]] void fail(const char* path, const std::string& what) {
  throw TraceError(std::string{path} + " " + what);
}

}  // namespace

Trace::Trace(const char* path) {
  map(path);
  read_header(path);
  read_chunks();
}

Trace::~Trace() {
  if (bytes_ > 0) munmap(const_cast<std::uint8_t*>(data_), bytes_);
}

void Trace::map(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(path, std::string{"cannot be read: "} + std::strerror(errno));
  struct stat status{};
  fstat(file, &status);
  if (!S_ISREG(status.st_mode)) {
    close(file);
    fail(path, "is not a file");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size >= sizeof(FileHeader)) {
    void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (memory != MAP_FAILED) {
      data_ = static_cast<const std::uint8_t*>(memory);
      bytes_ = size;
    }
  }
  close(file);
  if (bytes_ == 0) fail(path, "is not a trace: it is too short");
}

void Trace::read_header(const char* path) {
  std::memcpy(&header_, data_, sizeof header_);
  if (std::memcmp(header_.magic, kMagic, sizeof kMagic) != 0) fail(path, "is not a trace");
  if (header_.version < kOldestVersion || header_.version > kVersion) {
    fail(path, "is a trace of version " + std::to_string(header_.version) + ", and only versions " +
                   std::to_string(kOldestVersion) + " to " + std::to_string(kVersion) +
                   " are known");
  }
  const std::uint64_t strings =
      std::uint64_t{header_.command_bytes} + header_.allocator_bytes + sizeof(FileHeader);
  if (header_.bytes > bytes_ || strings > header_.bytes) fail(path, "ends within its header");
}

std::string Trace::command() const {
  std::string text(reinterpret_cast<const char*>(data_) + sizeof(FileHeader),
                   header_.command_bytes);
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::ranges::replace(text, '\0', ' ');
  return text;
}

std::string Trace::allocator() const {
  return {reinterpret_cast<const char*>(data_) + sizeof(FileHeader) + header_.command_bytes,
          header_.allocator_bytes};
}

bool Trace::add_chunk(std::size_t offset) {
  Chunk chunk{offset, {}};
  if (bytes_ - offset < sizeof chunk.header) return false;
  std::memcpy(&chunk.header, data_ + offset, sizeof chunk.header);
  const ChunkHeader& header = chunk.header;
  // The shortest event is a byte.
  if (header.magic != kChunkMagic || header.bytes > bytes_ - offset - sizeof header ||
      header.events > header.bytes || header.thread >= kMostThreads) {
    return false;
  }
  if (header.thread >= threads_.size()) threads_.resize(header.thread + 1);
  Thread& thread = threads_[header.thread];
  thread.kernel_id = header.kernel_id;
  if (header.events > 0) thread.chunks.push_back(static_cast<std::uint32_t>(chunks_.size()));
  chunks_.push_back(chunk);
  events_ += header.events;
  last_ticks_ = std::max(last_ticks_, header.ticks);
  is_complete_ = (header.flags & (kProcessEnded | kExec)) != 0;
  return true;
}

void Trace::read_chunks() {
  threads_.resize(1);
  last_ticks_ = header_.ticks;
  for (std::size_t offset = header_.bytes; offset < bytes_;) {
    if (add_chunk(offset)) {
      offset += sizeof(ChunkHeader) + chunks_.back().header.bytes;
      continue;
    }
    // After a damaged place, the next chunk begins where its mark is.
    const void* mark = memmem(data_ + offset + 1, bytes_ - offset - 1, &kChunkMagic, 4);
    const std::size_t next =
        mark == nullptr ? bytes_
                        : static_cast<std::size_t>(static_cast<const std::uint8_t*>(mark) - data_);
    unusable_bytes_ += next - offset;
    offset = next;
  }
  if (chunks_.empty()) return;
  const ChunkHeader& last =
      std::ranges::max_element(chunks_, {}, [](const Chunk& c) { return c.header.ticks; })->header;
  if (last.ticks > header_.ticks && last.nanoseconds > header_.nanoseconds) {
    nanoseconds_per_tick_ = static_cast<double>(last.nanoseconds - header_.nanoseconds) /
                            static_cast<double>(last.ticks - header_.ticks);
  }
}

bool Cursor::open_chunk() {
  const Trace::Thread& thread = trace_->threads()[thread_];
  if (chunk_ == thread.chunks.size()) return false;
  const Chunk& chunk = trace_->chunks()[thread.chunks[chunk_++]];
  copy_.assign(chunk.header.bytes + kMostEventBytes + sizeof(std::uint64_t), 0);
  std::memcpy(copy_.data(), trace_->payload(chunk), chunk.header.bytes);
  at_ = copy_.data();
  end_ = at_ + chunk.header.bytes;
  left_ = chunk.header.events;
  ticks_ = chunk.header.base_ticks;
  unit_ = 0;
  return true;
}

std::uint64_t Cursor::take(unsigned bytes) {
  const std::uint64_t word = load64(at_);
  at_ += bytes;
  return bytes == 8 ? word : word & ((std::uint64_t{1} << 8 * bytes) - 1);
}

bool Cursor::next(Event& event) {
  if (left_ == 0 && !open_chunk()) return false;
  --left_;
  const std::uint8_t first = *at_++;
  event = {};
  event.kind = static_cast<Kind>(first & 7U);
  const unsigned code = first >> kTimeShift & 3U;
  ticks_ += trace_->header().version == 1 ? take(1U << code) : take(time_bytes(code));
  event.ticks = event.returned = ticks_;
  const std::uint64_t unit = unit_ + unzigzag(take(first >> kAddressBytesShift));
  event.address = unit << kAddressShift;
  if (unit != 0) unit_ = unit;
  switch (event.kind) {
    case Kind::malloc:
    case Kind::calloc:
    case Kind::new_block:
      event.size = take_number(at_);
      event.by_operator = event.kind == Kind::new_block;
      break;
    case Kind::aligned:
      event.size = take_number(at_);
      event.alignment = *at_ & (kByOperator - 1);
      event.by_operator = (*at_++ & kByOperator) != 0;
      break;
    case Kind::realloc: {
      event.size = take_number(at_);
      event.returned = ticks_ += take_number(at_);
      const std::uint64_t to = unit_ + unzigzag(take_number(at_));
      event.moved_to = to << kAddressShift;
      if (to != 0) unit_ = to;
      break;
    }
    case Kind::free:
    case Kind::delete_block:
      break;
    default:
      throw TraceError("the trace is damaged: it has an event of an unknown kind");
  }
  if (at_ > end_ || (left_ == 0 && at_ != end_)) {
    throw TraceError("the trace is damaged: a chunk has not the events that it says");
  }
  return true;
}

}  // namespace replay

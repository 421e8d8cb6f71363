// Text without allocation: a small buffer in front of a sink.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace allod {

// Receives pieces of output. A sink for reports must not allocate.
using Sink = void (*)(const char* text, std::size_t length, void* context);

struct Hex {
  std::uintptr_t value;
};
struct Padded {
  std::uint64_t value;
  int width;
};
// A size for people: "12.3 MiB".
struct Human {
  std::uint64_t bytes;
};
// Text as a JSON string, with quotes. Invalid UTF-8 becomes U+FFFD.
struct Quoted {
  std::string_view text;
};
// Text for people: quoted only if it contains control characters or invalid UTF-8.
struct Shown {
  std::string_view text;
};
// The system's words for an error number: "No space left on device".
struct SystemError {
  long number;
};

class Text {
 public:
  Text(Sink sink, void* context) noexcept : Text{sink, context, own_, sizeof own_} {}
  ~Text() { flush(); }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  Text& operator<<(std::string_view text) noexcept;
  Text& operator<<(const char* text) noexcept { return *this << std::string_view{text}; }
  Text& operator<<(std::uint64_t number) noexcept;
  Text& operator<<(std::int64_t number) noexcept;
  Text& operator<<(std::uint32_t number) noexcept { return *this << std::uint64_t{number}; }
  Text& operator<<(std::int32_t number) noexcept { return *this << std::int64_t{number}; }
  // std::size_t, where it is neither of these.
  template <class Number>
    requires std::same_as<Number, std::size_t>
  Text& operator<<(Number number) noexcept {
    return *this << std::uint64_t{number};
  }
  Text& operator<<(Hex hex) noexcept;
  Text& operator<<(Padded padded) noexcept;
  Text& operator<<(Human human) noexcept;
  Text& operator<<(Quoted quoted) noexcept;
  Text& operator<<(Shown shown) noexcept;
  Text& operator<<(SystemError error) noexcept;

  void flush() noexcept;

 protected:
  // Uses `buffer`, or its own if null.
  Text(Sink sink, void* context, char* buffer, std::size_t bytes) noexcept
      : sink_{sink},
        context_{context},
        buffer_{buffer != nullptr ? buffer : own_},
        bytes_{buffer != nullptr ? bytes : sizeof own_} {}

 private:
  void put(char c) noexcept {
    if (length_ == bytes_) flush_lines();
    buffer_[length_++] = c;
  }
  void flush_lines() noexcept;

  Sink sink_;
  void* context_;
  char* buffer_;
  std::size_t bytes_;
  std::size_t length_ = 0;
  char own_[768];
};

// Writes to a file descriptor. Up to 4 KiB go out in one write, which a pipe keeps together; longer
// text is split at line ends. On a full non-blocking descriptor it waits for up to 0.1 s. The first
// error discards everything that follows. Keeps errno, and raises neither SIGPIPE nor SIGXFSZ.
class DescriptorText : public Text {
 public:
  explicit DescriptorText(int descriptor) noexcept : DescriptorText{descriptor, take_room()} {}
  ~DescriptorText() {
    flush();
    if (room_ != nullptr) give_room_back(room_);
  }
  // Writes the rest. Returns 0, or the error number of the first failed write.
  [[nodiscard]] long finish() noexcept {
    flush();
    return error_;
  }

 private:
  DescriptorText(int descriptor, char* room) noexcept
      : Text{&write, this, room, kRoomBytes}, descriptor_{descriptor}, room_{room} {}
  static constexpr std::size_t kRoomBytes = 4096;  // PIPE_BUF
  static void write(const char* text, std::size_t length, void* context) noexcept;
  // Null if all are taken. Never waits.
  static char* take_room() noexcept;
  static void give_room_back(char* room) noexcept;
  struct Rooms;

  int descriptor_;
  long error_ = 0;  // once set, output is discarded
  char* room_;
};

// Standard error.
class Message : public DescriptorText {
 public:
  Message() noexcept : DescriptorText{2} { *this << "allod: "; }
  ~Message() { *this << "\n"; }
};

}  // namespace allod

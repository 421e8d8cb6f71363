// Text without allocation: a small buffer in front of a sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace allod {

// Takes pieces of output. Must not allocate when it is used for reports.
using Sink = void (*)(const char* text, std::size_t length, void* context);

struct Hex {
  std::uintptr_t value;
};
struct Padded {
  std::uint64_t value;
  int width;
};
// A size as people read it: "12.3 MiB".
struct Human {
  std::uint64_t bytes;
};
// Text as JSON has it, within quotes. A byte that is no UTF-8 becomes the character for such.
struct Quoted {
  std::string_view text;
};
// The same for people: only where something in it would end a line, or mean something to a
// terminal.
struct Shown {
  std::string_view text;
};
// What the system calls an error number: "No space left on device".
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
  Text& operator<<(Hex hex) noexcept;
  Text& operator<<(Padded padded) noexcept;
  Text& operator<<(Human human) noexcept;
  Text& operator<<(Quoted quoted) noexcept;
  Text& operator<<(Shown shown) noexcept;
  Text& operator<<(SystemError error) noexcept;

  void flush() noexcept;

 protected:
  // With another buffer; null: none.
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

// Text for a file descriptor. Up to 4 KiB go out at once, which a pipe keeps together; of what is
// longer, whole lines. What cannot be written is lost with all that follows: where others would
// have to wait, it waits for a moment. Leaves errno alone, and sends neither SIGPIPE nor SIGXFSZ.
class DescriptorText : public Text {
 public:
  explicit DescriptorText(int descriptor) noexcept : DescriptorText{descriptor, take_room()} {}
  ~DescriptorText() {
    flush();
    if (room_ != nullptr) give_room_back(room_);
  }
  // Writes what is left. 0 if all was written, else the error number of the first write that
  // failed.
  [[nodiscard]] long finish() noexcept {
    flush();
    return error_;
  }

 private:
  DescriptorText(int descriptor, char* room) noexcept
      : Text{&write, this, room, kRoomBytes}, descriptor_{descriptor}, room_{room} {}
  static constexpr std::size_t kRoomBytes = 4096;  // PIPE_BUF
  static void write(const char* text, std::size_t length, void* context) noexcept;
  // Null where there is none: nobody waits.
  static char* take_room() noexcept;
  static void give_room_back(char* room) noexcept;
  struct Rooms;

  int descriptor_;
  long error_ = 0;  // all is lost from then on
  char* room_;
};

// Standard error.
class Message : public DescriptorText {
 public:
  Message() noexcept : DescriptorText{2} { *this << "allod: "; }
  ~Message() { *this << "\n"; }
};

}  // namespace allod

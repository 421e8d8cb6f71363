// Text without allocation: a small buffer in front of a sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace allod {

// Takes pieces of output. Must not allocate when it is used for reports.
using Sink = void (*)(const char* text, std::size_t length, void* context);

// Writes to the file descriptor that `context` points to, as far as it takes it. Leaves errno
// alone, and sends no SIGPIPE.
void write_to_descriptor(const char* text, std::size_t length, void* context) noexcept;

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

class Text {
 public:
  Text(Sink sink, void* context) noexcept : sink_{sink}, context_{context} {}
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

  void flush() noexcept;

 private:
  void put(char c) noexcept {
    if (length_ == sizeof buffer_) flush();
    buffer_[length_++] = c;
  }

  Sink sink_;
  void* context_;
  std::size_t length_ = 0;
  char buffer_[1024];
};

// Standard error, whole lines at a time.
class Message : public Text {
 public:
  Message() noexcept : Text{write_to_descriptor, &descriptor_} { *this << "allod: "; }
  ~Message() {
    *this << "\n";
    flush();
  }

 private:
  int descriptor_ = 2;
};

}  // namespace allod

// Encodes protocol buffers (https://protobuf.dev/programming-guides/encoding).
#pragma once

#include <event2/buffer.h>
#include <string.h>

#include <cstdint>
#include <string_view>

#include "memory.hpp"

namespace allod::live {

// A message.
class Encoded {
 public:
  Encoded& number(unsigned field, std::uint64_t value) noexcept {
    varint(std::uint64_t{field} << 3);
    varint(value);
    return *this;
  }
  Encoded& text(unsigned field, std::string_view text) noexcept {
    varint(std::uint64_t{field} << 3 | 2);
    varint(text.size());
    bytes(text.data(), text.size());
    return *this;
  }
  Encoded& message(unsigned field, const Encoded& inner) noexcept {
    return text(field, {inner.bytes_.begin(), inner.bytes_.size()});
  }
  Encoded& fixed(unsigned field, std::uint64_t value) noexcept {
    varint(std::uint64_t{field} << 3 | 1);
    char out[sizeof value];
    memcpy(out, &value, sizeof value);
    bytes(out, sizeof out);
    return *this;
  }
  void varint(std::uint64_t value) noexcept {
    char out[10];
    std::size_t length = 0;
    do {
      const bool more = value >= 0x80;
      out[length++] = static_cast<char>((value & 0x7f) | (more ? 0x80 : 0));
      value >>= 7;
    } while (value != 0);
    bytes(out, length);
  }
  void clear() noexcept { bytes_.clear(); }
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] Table<char>& all() noexcept { return bytes_; }

 private:
  void bytes(const char* from, std::size_t size) noexcept {
    const std::size_t before = bytes_.size();
    if (before + size > room_) {
      room_ = (before + size) * 2;
      if (!bytes_.reserve(room_)) {
        failed_ = true;
        room_ = 0;
      }
    }
    if (failed_ || !bytes_.set_size(before + size)) {
      failed_ = true;
      return;
    }
    if (size != 0) memcpy(bytes_.begin() + before, from, size);
  }

  Table<char> bytes_;
  std::size_t room_ = 0;
  bool failed_ = false;
};

// Appends the bytes in gzip's format. False if memory is exhausted.
[[nodiscard]] bool compress(Table<char>& from, evbuffer* to) noexcept;

}  // namespace allod::live

// Writes JSON into a libevent buffer.
#pragma once

#include <event2/buffer.h>

#include <cstdint>
#include <string_view>

#include "text/text.hpp"

namespace allod::live {

class Json {
 public:
  explicit Json(evbuffer* to) noexcept : out_{&append, this}, to_{to} {}

  // --- members of an object ---
  Json& object(std::string_view name) noexcept { return key(name).open('{'); }
  Json& array(std::string_view name) noexcept { return key(name).open('['); }
  template <class T>
  Json& field(std::string_view name, T value) noexcept {
    return key(name).write(value);
  }
  // --- elements of an array, or the whole ---
  Json& object() noexcept { return separate().open('{'); }
  Json& array() noexcept { return separate().open('['); }
  template <class T>
  Json& value(T value) noexcept {
    return separate().write(value);
  }
  Json& end() noexcept {
    const char close[] = {closers_[--depth_]};
    out_ << std::string_view{close, 1};
    first_ = false;
    return *this;
  }
  // False if memory was exhausted; the text is then incomplete.
  [[nodiscard]] bool finish() noexcept {
    out_.flush();
    return !failed_;
  }

 private:
  static constexpr unsigned kDeepest = 400;

  static void append(const char* text, std::size_t length, void* context) noexcept {
    Json& json = *static_cast<Json*>(context);
    if (evbuffer_add(json.to_, text, length) != 0) json.failed_ = true;
  }
  Json& separate() noexcept {
    if (!first_) out_ << ",";
    first_ = false;
    return *this;
  }
  Json& key(std::string_view name) noexcept {
    separate().write(name);
    out_ << ":";
    return *this;
  }
  Json& open(char bracket) noexcept {
    out_ << (bracket == '{' ? "{" : "[");
    closers_[depth_++] = bracket == '{' ? '}' : ']';
    first_ = true;
    return *this;
  }
  Json& write(std::uint64_t number) noexcept { return put(number); }
  Json& write(std::int64_t number) noexcept { return put(number); }
  Json& write(std::uint32_t number) noexcept { return put(std::uint64_t{number}); }
  Json& write(std::int32_t number) noexcept { return put(std::int64_t{number}); }
  Json& write(bool yes) noexcept {
    out_ << (yes ? "true" : "false");
    return *this;
  }
  Json& write(const char* text) noexcept { return write(std::string_view{text}); }
  template <class Number>
  Json& put(Number number) noexcept {
    out_ << number;
    return *this;
  }
  Json& write(std::string_view text) noexcept {
    out_ << Quoted{text};
    return *this;
  }

  Text out_;
  evbuffer* to_;
  bool first_ = true;
  bool failed_ = false;
  unsigned depth_ = 0;
  char closers_[kDeepest];
};

}  // namespace allod::live

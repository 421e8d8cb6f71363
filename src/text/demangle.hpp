// Names of functions in Rust and D, without allocation. Those of C++ are the C++ runtime's.
#pragma once

#include <cstddef>
#include <string_view>

namespace allod {

// Appends to memory of the caller, and drops what is beyond it.
class Bounded {
 public:
  Bounded(char* to, std::size_t room) noexcept : to_{to}, room_{room} {}

  void add(std::string_view text) noexcept {
    for (const char c : text) {
      if (length_ < room_) to_[length_++] = c;
    }
  }
  void add_number(unsigned long long number) noexcept {
    char digits[24];
    std::size_t at = sizeof digits;
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    add({digits + at, sizeof digits - at});
  }
  [[nodiscard]] std::size_t length() const noexcept { return length_; }
  void cut(std::size_t length) noexcept { length_ = length; }
  [[nodiscard]] std::string_view text() const noexcept { return {to_, length_}; }

 private:
  char* to_;
  std::size_t room_;
  std::size_t length_ = 0;
};

// Rust's v0 names, `_R…` (https://doc.rust-lang.org/rustc/symbol-mangling/v0.html). False, with
// anything written, if it is none.
[[nodiscard]] bool demangle_rust(std::string_view name, Bounded& to) noexcept;
// What is left of Rust's older names, which are those of C++ with escapes, once that is demangled:
// "_$LT$app..Cache$GT$::fill::h0123456789abcdef". False, with nothing written, if it is none.
[[nodiscard]] bool decode_old_rust(std::string_view name, Bounded& to) noexcept;
// The path of a D name, `_D…`, without types: "app.Cache.fill". False if it is none.
[[nodiscard]] bool demangle_d(std::string_view name, Bounded& to) noexcept;

// Whether a name may be one of C++, Rust or D.
[[nodiscard]] inline bool is_mangled(std::string_view name) noexcept {
  return name.size() > 2 && name[0] == '_' && (name[1] == 'Z' || name[1] == 'R' || name[1] == 'D');
}

}  // namespace allod

#include "text/text.hpp"

#include <errno.h>
#include <string.h>

#include <atomic>

namespace allod {

// In a child of fork, rooms that other threads of the parent held stay taken for good.
struct DescriptorText::Rooms {
  static constexpr std::size_t kCount = 8;
  static inline constinit std::atomic<bool> are_taken[kCount] = {};
  static inline constinit char of[kCount][kRoomBytes] = {};
};

char* DescriptorText::take_room() noexcept {
  for (std::size_t i = 0; i < Rooms::kCount; ++i) {
    if (!Rooms::are_taken[i].exchange(true, std::memory_order_acquire)) return Rooms::of[i];
  }
  return nullptr;
}
void DescriptorText::give_room_back(char* room) noexcept {
  const auto i = static_cast<std::size_t>(room - Rooms::of[0]) / kRoomBytes;
  Rooms::are_taken[i].store(false, std::memory_order_release);
}

Text& Text::operator<<(std::string_view text) noexcept {
  for (const char c : text) put(c);
  return *this;
}

namespace {

struct Digits {
  char text[24];
  int length = 0;
};

Digits digits_of(std::uint64_t number) noexcept {
  Digits digits;
  do {
    digits.text[digits.length++] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  return digits;
}

}  // namespace

Text& Text::operator<<(std::uint64_t number) noexcept { return *this << Padded{number, 0}; }

Text& Text::operator<<(std::int64_t number) noexcept {
  if (number >= 0) return *this << static_cast<std::uint64_t>(number);
  put('-');
  return *this << (~static_cast<std::uint64_t>(number) + 1);
}

Text& Text::operator<<(Padded padded) noexcept {
  Digits digits = digits_of(padded.value);
  for (int i = digits.length; i < padded.width; ++i) put(' ');
  while (digits.length > 0) put(digits.text[--digits.length]);
  return *this;
}

Text& Text::operator<<(Hex hex) noexcept {
  *this << "0x";
  int shift = 8 * sizeof hex.value - 4;
  while (shift > 0 && (hex.value >> shift) == 0) shift -= 4;
  for (; shift >= 0; shift -= 4) put("0123456789abcdef"[(hex.value >> shift) & 15]);
  return *this;
}

Text& Text::operator<<(Human human) noexcept {
  constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  std::uint64_t whole = human.bytes;
  std::uint64_t tenths = 0;
  int unit = 0;
  while (whole >= 1024) {
    tenths = (whole % 1024) * 10 / 1024;
    whole /= 1024;
    ++unit;
  }
  *this << whole;
  if (unit > 0) *this << "." << tenths;
  return *this << kUnits[unit];
}

namespace {

// Returns the length of the UTF-8 character at the start of `text`, or 0 if it is invalid.
std::size_t character(std::string_view text) noexcept {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc0 || lead >= 0xf8 || length > text.size()) return 0;
  std::uint32_t code = lead & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0) != 0x80) return 0;
    code = code << 6 | (next & 0x3f);
  }
  constexpr std::uint32_t kLeast[] = {0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  return code < kLeast[length - 2] || is_surrogate || code > 0x10ffff ? 0 : length;
}

// Returns the code of the control character at the start of `text`, or -1.
int control_character(std::string_view text) noexcept {
  const auto byte = [text](std::size_t i) noexcept { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x20 || byte(0) == 0x7f) return byte(0);
  return byte(0) == 0xc2 && byte(1) < 0xa0 ? byte(1) : -1;
}

bool is_plain(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t length = character(text);
    if (length == 0 || control_character(text) >= 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

Text& Text::operator<<(Shown shown) noexcept {
  return is_plain(shown.text) ? *this << shown.text : *this << Quoted{shown.text};
}

Text& Text::operator<<(Quoted quoted) noexcept {
  put('"');
  for (std::string_view left = quoted.text; !left.empty();) {
    const auto c = static_cast<unsigned char>(left[0]);
    const std::size_t length = character(left);
    if (length == 0) {
      *this << "\\ufffd";
    } else if (const int control = control_character(left); control >= 0) {
      *this << "\\u00";
      put("0123456789abcdef"[control >> 4]);
      put("0123456789abcdef"[control & 15]);
    } else {
      if (c == '"' || c == '\\') put('\\');
      for (std::size_t i = 0; i < length; ++i) put(left[i]);
    }
    left.remove_prefix(length == 0 ? 1 : length);
  }
  put('"');
  return *this;
}

namespace {

// libc's words. Its own functions take locks, or are missing in some versions.
std::string_view words_for(long error) noexcept {
  switch (error) {
    case EPERM:
      return "Operation not permitted";
    case ENOENT:
      return "No such file or directory";
    case EIO:
      return "Input/output error";
    case ENXIO:
      return "No such device or address";
    case EBADF:
      return "Bad file descriptor";
    case EAGAIN:
      return "Resource temporarily unavailable";
    case ENOMEM:
      return "Cannot allocate memory";
    case EACCES:
      return "Permission denied";
    case ENOTDIR:
      return "Not a directory";
    case EISDIR:
      return "Is a directory";
    case EINVAL:
      return "Invalid argument";
    case ENFILE:
      return "Too many open files in system";
    case EMFILE:
      return "Too many open files";
    case ETXTBSY:
      return "Text file busy";
    case EFBIG:
      return "File too large";
    case ENOSPC:
      return "No space left on device";
    case EROFS:
      return "Read-only file system";
    case EPIPE:
      return "Broken pipe";
    case ENAMETOOLONG:
      return "File name too long";
    case ENOSYS:
      return "Function not implemented";
    case ELOOP:
      return "Too many levels of symbolic links";
#ifdef EDQUOT
    case EDQUOT:
      return "Disk quota exceeded";
#endif
    default:
      return {};
  }
}

}  // namespace

Text& Text::operator<<(SystemError error) noexcept {
  const std::string_view words = words_for(error.number);
  if (!words.empty()) return *this << words;
  return *this << "error " << std::int64_t{error.number};
}

void Text::flush() noexcept {
  if (length_ != 0) sink_(buffer_, length_, context_);
  length_ = 0;
}

// Writes whole lines, or the whole buffer if a line does not fit.
void Text::flush_lines() noexcept {
  std::size_t whole = length_;
  while (whole > 0 && buffer_[whole - 1] != '\n') --whole;
  const std::size_t rest = whole == 0 ? 0 : length_ - whole;
  length_ -= rest;
  flush();
  memmove(buffer_, buffer_ + whole, rest);
  length_ = rest;
}

}  // namespace allod

#include "text.hpp"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#include "allod/base/base.hpp"

namespace allod {

namespace {

// While it exists, the calling thread can write into a pipe that nobody reads: the signal that the
// system then sends is taken back, unless the program has one waiting already.
class NoPipeSignal {
 public:
  NoPipeSignal() noexcept {
    change_mask(SIG_BLOCK, &kPipe, &before_);
    if ((before_ & kPipe) != 0) {
      Mask pending = 0;
      raw_syscall(SYS_rt_sigpending, to_long(&pending), sizeof pending);
      is_own_ = (pending & kPipe) == 0;
    }
  }
  ~NoPipeSignal() { change_mask(SIG_SETMASK, &before_, nullptr); }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

  void take_back() const noexcept {
    constexpr timespec kAtOnce{};
    if (is_own_) {
      raw_syscall(SYS_rt_sigtimedwait, to_long(&kPipe), 0, to_long(&kAtOnce), sizeof(Mask));
    }
  }

 private:
  using Mask = std::uint64_t;  // the kernel's
  static constexpr Mask kPipe = Mask{1} << (SIGPIPE - 1);

  static long to_long(const void* pointer) noexcept { return reinterpret_cast<long>(pointer); }
  static void change_mask(int how, const Mask* mask, Mask* before) noexcept {
    raw_syscall(SYS_rt_sigprocmask, how, to_long(mask), to_long(before), sizeof(Mask));
  }

  Mask before_ = 0;
  bool is_own_ = true;
};

}  // namespace

void write_to_descriptor(const char* text, std::size_t length, void* context) noexcept {
  const int descriptor = *static_cast<int*>(context);
  const NoPipeSignal no_signal;
  while (length > 0) {
    const long written =
        raw_syscall(SYS_write, descriptor, reinterpret_cast<long>(text), static_cast<long>(length));
    if (written == -EINTR) continue;
    if (written == -EPIPE) no_signal.take_back();
    if (written <= 0) return;
    text += written;
    length -= static_cast<std::size_t>(written);
  }
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
  int shift = 60;
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

// The length of the character of UTF-8 that `text` begins with, or 0 when that is none.
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

}  // namespace

Text& Text::operator<<(Quoted quoted) noexcept {
  put('"');
  for (std::string_view left = quoted.text; !left.empty();) {
    const auto c = static_cast<unsigned char>(left[0]);
    const std::size_t length = character(left);
    if (length == 0) {
      *this << "\\ufffd";
    } else if (c < 0x20 || c == 0x7f) {
      *this << "\\u00";
      put("0123456789abcdef"[c >> 4]);
      put("0123456789abcdef"[c & 15]);
    } else {
      if (c == '"' || c == '\\') put('\\');
      *this << std::string_view{left.data(), length};
    }
    left.remove_prefix(length == 0 ? 1 : length);
  }
  put('"');
  return *this;
}

void Text::flush() noexcept {
  if (length_ != 0) sink_(buffer_, length_, context_);
  length_ = 0;
}

}  // namespace allod

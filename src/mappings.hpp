// The memory that a program keeps pointers in, for those who search it.
#pragma once

#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#include <string_view>

#include "own_image.hpp"
#include "process.hpp"

namespace allod {

// The data of this library, where that is not part of the program.
class OwnData {
 public:
  OwnData() noexcept : image_{own_image()} {
    const bool is_program = getauxval(AT_PHDR) - image_.begin < 4096;
    if (is_program) image_.end = image_.begin;
  }
  [[nodiscard]] bool holds(Address at) const noexcept {
    return at - image_.begin < image_.end - image_.begin;
  }

 private:
  Image image_;
};

[[nodiscard]] inline Address parse_hex(std::string_view text, std::size_t* at) noexcept {
  Address number = 0;
  for (; *at < text.size(); ++*at) {
    const char c = text[*at];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) break;
    number = number * 16 + static_cast<Address>(digit);
  }
  return number;
}

// A mapping that is private and readable, and no device, which might mind to be read. One that
// cannot be written may have been before; not counted are those of files, which are many and hold
// code and constants, and the page map, which is large and empty.
struct DataMapping {
  Address begin;
  Address end;
  bool is_main_stack;
};
// Room for two lines of the system's list, with the longest names.
using MappingLines = char[2 * 8192];

// Calls `visit` for each data mapping. False when the system does not tell.
template <class Visit>
[[nodiscard]] bool for_each_data_mapping(MappingLines& buffer, Visit&& visit) noexcept {
  const long file = raw_syscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>("/proc/self/maps"),
                                O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const auto visit_line = [&](std::string_view line) noexcept {
    std::size_t at = 0;
    const Address begin = parse_hex(line, &at);
    ++at;
    const Address to = parse_hex(line, &at);
    if (line.size() < at + 5) return;
    const auto has = [&](const char* text) noexcept {
      return line.find(text) != std::string_view::npos;
    };
    if (line[at + 1] != 'r' || line[at + 4] != 'p' || has(" /dev/")) return;
    const bool is_writable = line[at + 2] == 'w';
    const bool is_systems = has(" [v");  // vvar, vdso
    if (!is_writable && (!has(" 00:00 0 ") || is_systems)) return;
    if (!is_writable && Process::heap().space().map().lies_at(begin)) return;
    visit(DataMapping{begin, to, line.ends_with("[stack]")});
  };
  std::size_t held = 0;
  long got = 0;
  for (;;) {
    got = raw_syscall(SYS_read, file, reinterpret_cast<long>(buffer + held),
                      static_cast<long>(sizeof buffer - held));
    if (got <= 0) break;
    held += static_cast<std::size_t>(got);
    char* line = buffer;
    while (char* const newline = static_cast<char*>(
               memchr(line, '\n', held - static_cast<std::size_t>(line - buffer)))) {
      visit_line(std::string_view{line, static_cast<std::size_t>(newline - line)});
      line = newline + 1;
    }
    held -= static_cast<std::size_t>(line - buffer);
    memmove(buffer, line, held);
  }
  raw_syscall(SYS_close, file);
  return got == 0;
}

}  // namespace allod

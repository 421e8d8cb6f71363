// The memory in which a program keeps pointers, for searches.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include <string_view>

#include "allod/base/auxiliary.hpp"
#include "image/own_image.hpp"
#include "instance/process.hpp"

namespace allod {

// The data of this library. Empty if Allod is linked into the program.
class OwnData {
 public:
  OwnData() noexcept : image_{own_image()} {
    const bool is_program = Auxiliary::value(AT_PHDR) - image_.begin < 4096;
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

// A private, readable mapping. A read-only one counts too, since it may have been writable, unless
// it is of a file (code and constants) or the page map (large and empty). Devices do not count:
// reads may have effects.
struct DataMapping {
  Address begin;
  Address end;
  bool is_main_stack;
  bool follows_guard;  // follows inaccessible memory, as stacks do
};
using MappingLines = char[8192];

// A line of /proc/thread-self/maps, perhaps cut after a long name.
class MappingLine {
 public:
  explicit MappingLine(std::string_view line) noexcept : line_{line} {
    std::size_t at = 0;
    begin = parse_hex(line, &at);
    ++at;
    end = parse_hex(line, &at);
    ++at;
    if (line.size() >= at + 4) rights = {line.data() + at, 4};
  }
  [[nodiscard]] bool is_data() const noexcept {
    if (rights[0] != 'r' || rights[3] != 'p' || is_device()) return false;
    if (rights[1] == 'w') return true;
    const bool is_systems = has(" [v");
    return has(" 00:00 0 ") && !is_systems && !Process::heap().space().map().lies_at(begin);
  }
  [[nodiscard]] bool is_closed() const noexcept { return rights == "---p"; }
  [[nodiscard]] bool is_main_stack() const noexcept { return line_.ends_with("[stack]"); }

  Address begin;
  Address end;
  std::string_view rights = "    ";

 private:
  [[nodiscard]] bool has(std::string_view text) const noexcept {
    return line_.find(text) != std::string_view::npos;
  }
  // Private mappings of /dev/zero are ordinary memory.
  [[nodiscard]] bool is_device() const noexcept {
    return has(" /dev/") && !has(" /dev/zero") && !has(" /dev/shm/");
  }

  std::string_view line_;
};

// Calls `visit` with each line of /proc/thread-self/maps, cut if too long for the buffer. Returns 0
// or an error number. /proc/self/maps would be empty once the main thread has ended.
template <class Visit>
[[nodiscard]] int for_each_mapping_line(MappingLines& buffer, Visit&& visit) noexcept {
  const long file = raw_syscall(
      SYS_openat, AT_FDCWD, reinterpret_cast<long>("/proc/thread-self/maps"), O_RDONLY | O_CLOEXEC);
  if (file < 0) return static_cast<int>(-file);
  bool is_any = false;
  std::size_t held = 0;
  bool is_rest = false;  // of a line that was already visited
  long got = 0;
  for (;;) {
    got = raw_syscall(SYS_read, file, reinterpret_cast<long>(buffer + held),
                      static_cast<long>(sizeof buffer - held));
    if (got <= 0) break;
    is_any = true;
    held += static_cast<std::size_t>(got);
    char* line = buffer;
    while (char* const newline = static_cast<char*>(
               memchr(line, '\n', held - static_cast<std::size_t>(line - buffer)))) {
      if (!is_rest) visit(std::string_view{line, static_cast<std::size_t>(newline - line)});
      is_rest = false;
      line = newline + 1;
    }
    held -= static_cast<std::size_t>(line - buffer);
    memmove(buffer, line, held);
    if (held < sizeof buffer) continue;
    if (!is_rest) visit(std::string_view{buffer, held});
    is_rest = true;
    held = 0;
  }
  raw_syscall(SYS_close, file);
  if (got < 0) return static_cast<int>(-got);
  return is_any ? 0 : ENOENT;
}

// Calls `visit` with each data mapping; otherwise the same.
template <class Visit>
[[nodiscard]] int for_each_data_mapping(MappingLines& buffer, Visit&& visit) noexcept {
  Address guard_end = 0;
  return for_each_mapping_line(buffer, [&](std::string_view text) noexcept {
    const MappingLine line{text};
    if (line.is_data()) {
      visit(DataMapping{line.begin, line.end, line.is_main_stack(), line.begin == guard_end});
    }
    if (line.is_closed()) guard_end = line.end;
  });
}

}  // namespace allod

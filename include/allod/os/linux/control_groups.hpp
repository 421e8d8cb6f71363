// Limits of a container, from its control groups (versions 1 and 2).
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "allod/os/linux/helper.hpp"

namespace allod::os {

// Reads by raw system calls, using only the stack; keeps errno. Unreadable files count as no limit.
// Thread-safe.
class ControlGroups {
 public:
  // `list`: the file with the process's groups. `root`: where groups are mounted.
  constexpr ControlGroups(const char* list, std::string_view root) noexcept
      : list_{list}, root_{root} {}
  constexpr ControlGroups() noexcept : ControlGroups{"/proc/self/cgroup", "/sys/fs/cgroup"} {}

  // Bytes above which the kernel throttles or kills processes of the container; 0: no limit.
  [[nodiscard]] ALLOD_HOT std::size_t memory_limit() const noexcept {
    std::uint64_t least = kNone;
    for_each_group("memory", [&](Path& file, bool unified) noexcept {
      const auto take = [&](std::string_view name) noexcept {
        std::uint64_t numbers[2];
        if (read_numbers(file, name, numbers) > 0 && numbers[0] < least) least = numbers[0];
      };
      if (!unified) return take("/memory.limit_in_bytes");
      take("/memory.max");
      take("/memory.high");
    });
    // Version 1 has a large number for no limit.
    return least < kNone / 4 ? static_cast<std::size_t>(least) : 0;
  }
  // Processors whose time the container may use, rounded up; 0: no limit.
  [[nodiscard]] std::uint32_t processor_quota() const noexcept {
    std::uint64_t least = kNone;
    for_each_group("cpu", [&](Path& file, bool unified) noexcept {
      // Quota and period, in microseconds.
      std::uint64_t numbers[2] = {kNone, 0};
      if (unified) {
        if (read_numbers(file, "/cpu.max", numbers) < 2) return;
      } else if (read_numbers(file, "/cpu.cfs_quota_us", numbers) < 1 ||
                 read_numbers(file, "/cpu.cfs_period_us", numbers + 1, 1) < 1) {
        return;
      }
      if (numbers[0] >= kNone / 4 || numbers[1] == 0) return;
      const std::uint64_t processors = (numbers[0] + numbers[1] - 1) / numbers[1];
      if (processors < least) least = processors;
    });
    return least < 1U << 20 ? static_cast<std::uint32_t>(least) : 0;
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0} >> 1;

  struct Path {
    char text[1024];
    std::size_t length = 0;

    // False, and nothing changed, if there is no room.
    [[nodiscard]] bool append(std::string_view more) noexcept {
      if (length + more.size() >= sizeof text) return false;
      for (const char c : more) text[length++] = c;
      text[length] = '\0';
      return true;
    }
  };

  // Calls `visit(path, unified)` for the process's group and all its ancestors. In a container, the
  // list may name the group by its outside path; then only the root exists.
  template <class Visit>
  ALLOD_HOT void for_each_group(std::string_view controller, Visit&& visit) const noexcept {
    char text[4096];
    std::string_view rest{text, read_file(list_, text, sizeof text)};
    while (!rest.empty()) {
      // number:controllers:path
      std::string_view line = next_part(rest, '\n');
      next_part(line, ':');
      const std::string_view controllers = next_part(line, ':');
      if (line.empty()) continue;
      const bool unified = controllers.empty();
      if (!unified && !names(controllers, controller)) continue;
      Path path;
      if (!path.append(root_)) continue;
      if (!unified && !(path.append("/") && path.append(controller))) continue;
      const std::size_t root = path.length;
      if (line != "/" && !path.append(line)) continue;
      for (;;) {
        visit(path, unified);
        if (path.length <= root) break;
        do {
          --path.length;
        } while (path.length > root && path.text[path.length] != '/');
        path.text[path.length] = '\0';
      }
    }
  }
  // Whether `name` is in a comma-separated list.
  [[nodiscard]] static bool names(std::string_view list, std::string_view name) noexcept {
    while (!list.empty()) {
      if (next_part(list, ',') == name) return true;
    }
    return false;
  }
  // Removes and returns what precedes the first `end`, or everything.
  static std::string_view next_part(std::string_view& text, char end) noexcept {
    std::string_view part = text;
    std::size_t length = 0;
    while (length < text.size() && text[length] != end) ++length;
    part.remove_suffix(text.size() - length);
    text.remove_prefix(length < text.size() ? length + 1 : length);
    return part;
  }
  // Reads up to `count` numbers from the start of the file; "max" becomes kNone. Returns their
  // number.
  ALLOD_HOT static int read_numbers(Path& group, std::string_view name, std::uint64_t* numbers,
                                    int count = 2) noexcept {
    const std::size_t length = group.length;
    if (!group.append(name)) return 0;
    char text[64];
    std::string_view rest{text, read_file(group.text, text, sizeof text)};
    group.length = length;
    group.text[length] = '\0';
    int found = 0;
    while (found < count && !rest.empty()) {
      std::size_t digits = 0;
      std::uint64_t number = 0;
      while (digits < rest.size() && digits < 19 && rest[digits] >= '0' && rest[digits] <= '9') {
        number = number * 10 + static_cast<std::uint64_t>(rest[digits++] - '0');
      }
      if (rest.starts_with("max")) {
        number = kNone;
        digits = 3;
      }
      if (digits == 0) break;
      numbers[found++] = number;
      rest.remove_prefix(digits);
      if (rest.starts_with(' ')) rest.remove_prefix(1);
    }
    return found;
  }
  ALLOD_HOT static std::size_t read_file(const char* path, char* text, std::size_t room) noexcept {
    const long file =
        raw_syscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path), O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return 0;
    // The kernel returns such a file whole in one read.
    long got;
    do {
      got = raw_syscall(SYS_read, file, reinterpret_cast<long>(text), static_cast<long>(room));
    } while (got == -EINTR);
    raw_syscall(SYS_close, file);
    return got > 0 ? static_cast<std::size_t>(got) : 0;
  }

  const char* list_;
  std::string_view root_;
};

}  // namespace allod::os

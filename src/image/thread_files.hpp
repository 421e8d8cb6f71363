// The threads of the process, from /proc/self/task.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "allod/os/linux/linux.hpp"

namespace allod {

struct FolderEntry {  // linux_dirent64
  std::uint64_t inode;
  std::int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[1];
};

// Calls `visit` with each thread id. Returns 0 or an error number.
template <class Visit>
int for_each_thread(Visit&& visit) noexcept {
  const long folder = raw_syscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>("/proc/self/task"),
                                  O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return static_cast<int>(-folder);
  alignas(8) char buffer[4096] = {};
  long got = 0;
  for (;;) {
    got = raw_syscall(SYS_getdents64, folder, reinterpret_cast<long>(buffer), sizeof buffer);
    if (got <= 0) break;
    for (long at = 0; at < got;) {
      const auto& entry = *reinterpret_cast<const FolderEntry*>(buffer + at);
      at += entry.length;
      std::uint32_t thread = 0;
      for (const char* digit = entry.name; *digit >= '0' && *digit <= '9'; ++digit) {
        thread = thread * 10 + static_cast<std::uint32_t>(*digit - '0');
      }
      if (thread != 0) visit(thread);
    }
  }
  raw_syscall(SYS_close, folder);
  return static_cast<int>(-got);
}

// A file below /proc/self/task/TID. All objects share one buffer: it holds the file that was read
// last.
class ThreadFile {
 public:
  ThreadFile(std::uint32_t thread, const char* name) noexcept {
    constexpr char kFolder[] = "/proc/self/task/";
    char path[48];
    char* end = path + sizeof path - 1 - strlen(name);
    strcpy(end, name);
    for (; thread != 0; thread /= 10) *--end = static_cast<char>('0' + thread % 10);
    end -= sizeof kFolder - 1;
    memcpy(end, kFolder, sizeof kFolder - 1);
    file_ = raw_syscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>(end), O_RDONLY | O_CLOEXEC);
    read();
  }
  ThreadFile(const ThreadFile&) = delete;
  ThreadFile& operator=(const ThreadFile&) = delete;
  ~ThreadFile() {
    if (file_ >= 0) raw_syscall(SYS_close, file_);
  }
  // Reads the file again, by one system call.
  void read() const noexcept {
    const long got = file_ < 0 ? 0
                               : raw_syscall(SYS_pread64, file_, reinterpret_cast<long>(text_),
                                             sizeof text_ - 1, 0);
    text_[got < 0 ? 0 : got] = '\0';
  }
  // False if the file could not be read.
  [[nodiscard]] bool is_known() const noexcept { return text_[0] != '\0'; }
  [[nodiscard]] bool is_gone() const noexcept { return file_ == -ENOENT; }
  [[nodiscard]] bool has(const char* what) const noexcept { return strstr(text_, what) != nullptr; }
  [[nodiscard]] bool begins_with_digit() const noexcept {
    return text_[0] >= '0' && text_[0] <= '9';
  }
  // The number behind the first `key`, or 0.
  [[nodiscard]] std::uint64_t number(const char* key, unsigned base = 10) const noexcept {
    const char* const found = strstr(text_, key);
    return found == nullptr ? 0 : number_at(found + strlen(key), base);
  }
  [[nodiscard]] std::uint64_t third_number() const noexcept {
    const char* at = text_;
    for (int i = 0; i < 2 && at != nullptr; ++i) at = strchr(at + 1, ' ');
    return at == nullptr ? 0 : number_at(at + 1, 10);
  }
  // Parses the first words that begin with 0x.
  void read_words(Address* words, std::size_t count) const noexcept {
    const char* at = text_;
    for (std::size_t i = 0; i < count; ++i) {
      at = strstr(at, " 0x");
      if (at == nullptr) return;
      at += 3;
      words[i] = static_cast<Address>(number_at(at, 16));
    }
  }

 private:
  static std::uint64_t number_at(const char* at, unsigned base) noexcept {
    std::uint64_t value = 0;
    for (;; ++at) {
      const auto digit = static_cast<unsigned>(*at - (*at < 'a' ? '0' : 'a' - 10));
      if (digit >= base) return value;
      value = value * base + digit;
    }
  }

  // Static, because a sweep may run on a small stack. On large machines the files are long.
  static constinit inline char text_[8192] = {};
  long file_;
};

}  // namespace allod

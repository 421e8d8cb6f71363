// The trace file, and how its descriptor avoids the program's own.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

#include "text/text.hpp"

namespace allod::record {

struct Path {
  char text[PATH_MAX + 32];

  void set(const char* base) noexcept {
    strncpy(text, base, PATH_MAX);
    text[PATH_MAX] = '\0';
  }
  void append(char separator, unsigned number) noexcept {
    const auto write = [](const char* piece, std::size_t length, void* context) {
      strncat(static_cast<char*>(context), piece, length);
    };
    const char start[2] = {separator, '\0'};
    Text{write, text} << start << number;
  }
};

// Words for an error of a file; null: print its number.
[[nodiscard]] inline const char* explain(int error) noexcept {
  switch (error) {
    case ENOSPC:
      return "no space is left on the device";
    case EFBIG:
      return "the file would be larger than is allowed";
    case EDQUOT:
      return "the quota is exhausted";
    case EACCES:
    case EPERM:
      return "no permission";
    case ENOENT:
      return "the file or its folder is gone";
    case EROFS:
      return "the file system is read-only";
    default:
      return nullptr;
  }
}

// The trace file of this process. It stays open, but the program may close descriptors that it does
// not know and reuse their numbers. So each use checks the file's identity.
class File {
 public:
  // Creates FILE for the first program, and FILE.PID or FILE.PID.N for others.
  bool create(const char* base, unsigned process, bool forked) noexcept {
    struct stat status{};
    const bool special = stat(base, &status) == 0 && !S_ISREG(status.st_mode);
    path_.set(base);
    if (!forked && (special ? open_with(0) : open_with(O_CREAT | O_EXCL))) return true;
    if (special) return false;
    for (unsigned attempt = 1; (forked || errno == EEXIST) && attempt < 100; ++attempt) {
      forked = false;
      path_.set(base);
      path_.append('.', process);
      if (attempt > 1) path_.append('.', attempt);
      if (open_with(O_CREAT | O_EXCL)) return true;
    }
    return false;
  }
  // Creates FILE, unless it exists.
  bool create_first(const char* base) noexcept {
    path_.set(base);
    return open_with(O_CREAT | O_EXCL);
  }

  bool is_made() const noexcept { return made_; }
  const char* path() const noexcept { return path_.text; }

  // Appends all parts, or none as far as the system allows. Returns false with errno set.
  bool append(iovec* parts, int count) noexcept {
    std::int64_t before = 0;
    if (!is_ours(&before) && !(open_with(0) && is_ours(&before))) return false;
    while (count > 0) {
      const ssize_t written = writev(descriptor_, parts, count);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        const int error = errno;
        if (error == EFBIG) swallow_signal();
        // Drops half a chunk. Devices and pipes keep it.
        if (ftruncate(descriptor_, before) != 0) errno = 0;
        errno = error;
        return false;
      }
      auto rest = static_cast<std::size_t>(written);
      while (count > 0 && rest >= parts->iov_len) {
        rest -= parts->iov_len;
        ++parts;
        --count;
      }
      if (count > 0) {
        parts->iov_base = static_cast<char*>(parts->iov_base) + rest;
        parts->iov_len -= rest;
      }
    }
    return true;
  }

  // For the child of a fork: the file belongs to the parent.
  void forget() noexcept {
    std::int64_t size;
    if (made_ && is_ours(&size)) close(descriptor_);
    made_ = false;
    descriptor_ = -1;
  }

 private:
  // Above the descriptors that programs choose themselves.
  static constexpr int kDescriptor = 512;

  bool open_with(int flags) noexcept {
    const int opened = open(path_.text, flags | O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
    if (opened < 0) return false;
    struct stat status{};
    fstat(opened, &status);
    if (made_ && (status.st_dev != device_ || status.st_ino != inode_)) {
      close(opened);
      errno = ENOENT;
      return false;
    }
    const int moved = fcntl(opened, F_DUPFD_CLOEXEC, kDescriptor);
    if (moved >= 0) close(opened);
    descriptor_ = moved >= 0 ? moved : opened;
    device_ = status.st_dev;
    inode_ = status.st_ino;
    made_ = true;
    return true;
  }

  bool is_ours(std::int64_t* size) const noexcept {
    struct stat status{};
    if (descriptor_ < 0 || fstat(descriptor_, &status) != 0) return false;
    *size = status.st_size;
    return status.st_dev == device_ && status.st_ino == inode_;
  }

  // A write beyond RLIMIT_FSIZE raises SIGXFSZ. It is blocked here, and consumed.
  static void swallow_signal() noexcept {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    const timespec none{};
    sigtimedwait(&set, nullptr, &none);
  }

  Path path_{};
  bool made_ = false;
  int descriptor_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace allod::record

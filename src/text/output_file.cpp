#include "text/output_file.hpp"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "allod/base/base.hpp"

namespace allod {

OutputFile::OutputFile(const char* pattern, const char* suffix) noexcept {
  struct Buffer {
    char* text;
    std::size_t length;
  } buffer{path_, 0};
  {
    const auto append = [](const char* text, std::size_t length, void* context) {
      Buffer& to = *static_cast<Buffer*>(context);
      if (length >= sizeof path_ - to.length) return;
      memcpy(to.text + to.length, text, length);
      to.length += length;
    };
    Text out{append, &buffer};
    for (const char* at = pattern; *at != '\0'; ++at) {
      if (at[0] == '%' && at[1] == 'p') {
        out << static_cast<std::int64_t>(raw_syscall(SYS_getpid));
        ++at;
      } else {
        out << std::string_view{at, 1};
      }
    }
    out << suffix;
  }
  path_[buffer.length] = '\0';
}

int OutputFile::open() const noexcept {
  return static_cast<int>(raw_syscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path_),
                                      O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
}

long OutputFile::close(int descriptor, long error) noexcept {
  if (error != 0) raw_syscall(SYS_ftruncate, descriptor, 0);
  const long closed = raw_syscall(SYS_close, descriptor);
  return error != 0 || closed == -EINTR ? error : -closed;
}

long OutputFile::rename_to(const OutputFile& name) const noexcept {
  return -raw_syscall(SYS_renameat2, AT_FDCWD, reinterpret_cast<long>(path_), AT_FDCWD,
                      reinterpret_cast<long>(name.path_), 0);
}

void OutputFile::remove() const noexcept {
  raw_syscall(SYS_unlinkat, AT_FDCWD, reinterpret_cast<long>(path_), 0);
}

void OutputFile::warn(const char* what, long error, const char* what_follows) const noexcept {
  Message{} << "warning: cannot write " << what << " to " << Shown{path_} << ": "
            << SystemError{error} << what_follows;
}

}  // namespace allod

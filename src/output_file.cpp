#include "output_file.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "allod/base/base.hpp"
#include "text.hpp"

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

long OutputFile::open() const noexcept {
  return raw_syscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path_),
                     O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

long OutputFile::rename_to(const OutputFile& name) const noexcept {
  return raw_syscall(SYS_renameat2, AT_FDCWD, reinterpret_cast<long>(path_), AT_FDCWD,
                     reinterpret_cast<long>(name.path_), 0);
}

}  // namespace allod

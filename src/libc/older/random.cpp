// Random bytes as glibc gives them since 2.36, for libraries that load on any glibc since 2.17:
// from the kernel, hidden from the program.
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

extern "C" void arc4random_buf(void* bytes, size_t count) noexcept {
  auto* to = static_cast<char*>(bytes);
  // Before Linux 3.17 there is no such call.
  int file = -1;
  while (count > 0) {
    const ssize_t got = file < 0 ? getrandom(to, count, 0) : read(file, to, count);
    if (got > 0) {
      to += got;
      count -= static_cast<size_t>(got);
    } else if (file < 0) {
      file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
      if (file < 0) abort();
    } else {
      abort();
    }
  }
  if (file >= 0) close(file);
}

extern "C" uint32_t arc4random() noexcept {
  uint32_t number;
  arc4random_buf(&number, sizeof number);
  return number;
}

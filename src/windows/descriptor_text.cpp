// Text to the standard handles of Windows.
#include <errno.h>

#include "allod/os/windows/calls.hpp"
#include "text/text.hpp"

extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
void* allod_win_standard_handle(std::uint32_t which) noexcept __asm__("GetStdHandle");
int allod_win_write(void* file, const void* bytes, std::uint32_t count, std::uint32_t* done,
                    void* overlapped) noexcept __asm__("WriteFile");
// NOLINTEND(readability-identifier-naming)
}

namespace allod {

// Descriptors 0 to 2 are the handles -10 to -12.
void DescriptorText::write(const char* text, std::size_t length, void* context) noexcept {
  DescriptorText& out = *static_cast<DescriptorText*>(context);
  const os::LastError kept;
  void* const file = allod_win_standard_handle(static_cast<std::uint32_t>(-10 - out.descriptor_));
  while (length > 0 && out.error_ == 0) {
    std::uint32_t done = 0;
    const auto part = static_cast<std::uint32_t>(length);
    if (allod_win_write(file, text, part, &done, nullptr) == 0 || done == 0) {
      out.error_ = EIO;
      return;
    }
    text += done;
    length -= done;
  }
}

}  // namespace allod

// A file that an option names.
#pragma once

#include "text/text.hpp"

namespace allod {

class OutputFile {
 public:
  // %p in `pattern` becomes the process id; the suffix is appended.
  OutputFile(const char* pattern, const char* suffix) noexcept;

  // Creates or truncates the file, and lets `write` write its text. Returns 0 or an error number.
  // On error the file is left empty, so that no partial text is taken for a whole one.
  template <class Write>
  [[nodiscard]] long write(Write&& write) const noexcept {
    const int descriptor = open();
    if (descriptor < 0) return -descriptor;
    long error;
    {
      DescriptorText out{descriptor};
      write(out);
      error = out.finish();
    }
    return close(descriptor, error);
  }
  // Renames this file to `name`, and replaces any that exists. Returns 0 or an error number.
  [[nodiscard]] long rename_to(const OutputFile& name) const noexcept;
  void remove() const noexcept;
  // Prints one line on standard error. `what_follows` is its end.
  void warn(const char* what, long error, const char* what_follows = "") const noexcept;

 private:
  // Returns a descriptor, or a negative error number.
  [[nodiscard]] int open() const noexcept;
  // Returns the earlier error if set, else that of close(), which network file systems report late.
  [[nodiscard]] static long close(int descriptor, long error) noexcept;

  // Truncated if too long.
  char path_[4096];
};

}  // namespace allod

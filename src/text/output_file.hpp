// A file that an option names.
#pragma once

#include "text/text.hpp"

namespace allod {

class OutputFile {
 public:
  // In `pattern`, %p stands for the process id; the suffix follows.
  OutputFile(const char* pattern, const char* suffix) noexcept;

  // Makes it anew, or empties it, and has `write` write its text. 0, or an error number: a file is
  // then left empty, so that nobody takes a part for the whole.
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
  // Takes the place of the file with that name. 0, or an error number.
  [[nodiscard]] long rename_to(const OutputFile& name) const noexcept;
  void remove() const noexcept;
  // One line on standard error, up to its last words.
  void warn(const char* what, long error, const char* what_follows = "") const noexcept;

 private:
  // A descriptor, or a negative error number.
  [[nodiscard]] int open() const noexcept;
  // The error, if there was one before; else that of closing it, as of disks of other machines.
  [[nodiscard]] static long close(int descriptor, long error) noexcept;

  // Perhaps cut.
  char path_[4096];
};

}  // namespace allod

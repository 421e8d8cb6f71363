// A file that an option names.
#pragma once

namespace allod {

class OutputFile {
 public:
  // In `pattern`, %p stands for the process id; the suffix follows.
  OutputFile(const char* pattern, const char* suffix) noexcept;

  // Makes it anew, or empties it. A descriptor, or a negative error number.
  [[nodiscard]] long open() const noexcept;
  // Takes the place of the file with that name. 0, or a negative error number.
  long rename_to(const OutputFile& name) const noexcept;
  // Perhaps cut.
  [[nodiscard]] const char* path() const noexcept { return path_; }

 private:
  char path_[4096];
};

}  // namespace allod

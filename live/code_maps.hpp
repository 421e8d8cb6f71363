// Names of code that no file holds, from what compilers at run time write for perf:
// /tmp/perf-PID.map, and the jitdump that the process has mapped. Only files of the process's user
// that were written since it began. For the server's thread only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace allod::live {

struct CodeName {
  const char* function;
  const char* file;  // null: not known
  int line;          // 0: not known
  char text[600];    // holds both
};

// Reads what is new in the files, at most once a second. Returns how many pieces of code have
// names; more than the last time: addresses without one may be looked up again.
[[nodiscard]] std::size_t refresh_code_maps() noexcept;
// The latest name of the code at an address. False if there is none.
[[nodiscard]] bool find_code(std::uintptr_t address, CodeName* name) noexcept;
// For the child of a fork.
void drop_code_maps() noexcept;

// Splits what runtimes write into function, file and line, in place: "py::NAME:FILE" of CPython,
// "LazyCompile:*NAME FILE:LINE:COLUMN" of V8. Other names stay as they are.
void split_code_name(CodeName* name) noexcept;

}  // namespace allod::live

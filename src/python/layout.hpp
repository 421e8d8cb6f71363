// Where the fields of CPython's structures are, by version.
#pragma once

#include <cstdint>
#include <string_view>

#include "unwind/memory.hpp"

namespace allod::python {

// How a code object's table tells the lines of its instructions.
enum class Lines : unsigned char {
  increments,  // 3.9: pairs of bytes and lines (Objects/lnotab_notes.txt)
  ranges,      // 3.10: the same by ranges (PEP 626)
  locations,   // since 3.11 (Objects/locations.md)
};
// Which frames C code has called.
enum class Entry : unsigned char {
  each,    // 3.9 and 3.10
  marked,  // 3.11: those with a mark
  owned,   // since 3.12: those above a frame that C code owns
};

// Offsets in bytes.
struct Layout {
  Lines lines;
  Entry entry;
  bool has_c_frame;  // the thread leads to the frame through a structure on the stack
  std::uint32_t c_frame_frame;
  // _PyRuntimeState, PyInterpreterState, PyThreadState
  std::uint32_t interpreters;
  std::uint32_t next_interpreter;
  std::uint32_t threads;
  std::uint32_t next_thread;
  std::uint32_t thread_id;
  std::uint32_t thread_frame;
  // A frame: PyFrameObject or _PyInterpreterFrame
  std::uint32_t code;
  std::uint32_t back;
  std::uint32_t instruction;  // its index before 3.11, its address since
  std::uint32_t owner;        // or the mark
  // PyCodeObject
  std::uint32_t first_line;
  std::uint32_t file;
  std::uint32_t name;
  std::uint32_t line_table;
  std::uint32_t instructions;
  // Objects
  std::uint32_t type;
  std::uint32_t text_length;
  std::uint32_t text_state;
  std::uint32_t text_ascii;    // where ASCII begins
  std::uint32_t text_compact;  // where other characters begin
  std::uint32_t bytes_length;
  std::uint32_t bytes_begin;
};

// The layout of a release by its symbols' values: `version` is that of Py_Version, or 3.9 or 3.10
// in the same form; `runtime` the address of _PyRuntime. False for releases that are not known.
[[nodiscard]] bool find_layout(std::uint32_t version, Address runtime,
                               unwind::ScatteredMemory& memory, Layout* layout) noexcept;

}  // namespace allod::python

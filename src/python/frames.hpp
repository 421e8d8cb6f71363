// The Python functions that a thread is in, read from CPython's structures. Nothing is called,
// locked or allocated. Everything that is read may be something else, so that memory is probed and
// the types of objects are compared.
#pragma once

#include <cstdint>
#include <string_view>

#include "python/layout.hpp"

namespace allod::python {

// Looks for an interpreter among the objects that hold these return addresses of the calling
// thread's stack. Does nothing once one is known. Needs glibc 2.35.
void look_for_interpreter(const std::uintptr_t* frames, std::size_t count) noexcept;
[[nodiscard]] bool is_known() noexcept;
// Whether a return address lies in the loop that runs Python functions.
[[nodiscard]] bool is_loop(std::uintptr_t frame) noexcept;
// Whether a return address lies in no file, as those of the trampolines do that `-X perf` puts
// between Python functions.
[[nodiscard]] bool is_generated(std::uintptr_t frame) noexcept;

// A Python function that runs, or that waits for one that it has called.
struct Frame {
  // Made of all that its names and its line come from. The lowest bits are as good as any. Never 0.
  std::uint64_t identity;
  bool is_entry;  // C code has called it: the next one runs in an outer loop
};
struct Names {
  std::string_view function;  // with its class, since Python 3.11
  std::string_view file;      // the end of a very long path
  unsigned line;
};

// Those of the calling thread, innermost first.
class Frames {
 public:
  // `is_present`: as in ScatteredMemory.
  explicit Frames(unwind::ScatteredMemory::IsPresent is_present) noexcept;
  // False at the end.
  [[nodiscard]] bool next(Frame* frame) noexcept;
  // Of the frame that next() has found. The texts are UTF-8, and valid until the next call.
  [[nodiscard]] bool describe(Names* names) noexcept;

 private:
  // What is shown of a text object.
  struct Shown {
    Address begin;
    std::uint64_t count;  // of characters
    unsigned kind;        // bytes of each
    bool is_ascii;
  };
  // Where a frame's names and line come from.
  struct Place {
    Shown function;
    Shown file;
    Address line_table;  // 0: none
    std::uint64_t table_bytes;
    std::int64_t instruction;  // in bytes from the first one; -1: before it
    std::int32_t first_line;
  };

  [[nodiscard]] bool find_thread(Address* thread) noexcept;
  [[nodiscard]] bool is_owned_by_c(Address frame) noexcept;
  [[nodiscard]] bool find_caller(Address* back, bool* is_entry) noexcept;
  [[nodiscard]] bool find_place(Address code) noexcept;
  [[nodiscard]] bool find_text(Address object, std::size_t room, bool cuts_begin,
                               Shown* text) noexcept;
  void find_instruction(Address code) noexcept;
  void find_line_table(Address code) noexcept;
  [[nodiscard]] std::uint64_t identity() noexcept;
  [[nodiscard]] bool is_of_type(Address object, Address type, std::uint32_t span) noexcept;
  [[nodiscard]] bool copy_text(const Shown& text, char* to, std::string_view* name) noexcept;
  [[nodiscard]] unsigned line() noexcept;

  static constexpr std::size_t kMostFunction = 200;
  static constexpr std::size_t kMostFile = 400;

  unwind::ScatteredMemory memory_;
  Address frame_ = 0;
  Place place_{};
  char function_[kMostFunction];
  char file_[kMostFile];
};

}  // namespace allod::python

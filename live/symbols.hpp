// Names of code addresses, from the files of the process's modules. Used by the server's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace allod::live {

struct Place {
  std::size_t id;             // the same for all places in functions of this name
  std::string_view function;  // demangled; a module and an offset where there is no name
  std::string_view file;      // empty where there is no debug information
  unsigned line;
};
// Where a return address points to; several places, innermost first, where code was inlined.
// The texts are valid during the call.
using PlaceVisit = void (*)(const Place& place, void* context);
void find_places(std::uintptr_t address, PlaceVisit visit, void* context) noexcept;

// One module of the process, mapped.
struct Module {
  std::uintptr_t bias;  // what its addresses in memory are above those in its file
  std::uintptr_t from;
  std::uintptr_t to;
  std::uintptr_t offset;  // in the file, of `from`
  char build_id[41];      // hexadecimal; empty when there is none
  char path[256];
};
[[nodiscard]] const Module* modules(std::size_t* count) noexcept;
// Looks which modules there are now.
void refresh_modules() noexcept;

// Mapped for reading files, beside the server's heap.
[[nodiscard]] std::size_t symbol_bytes() noexcept;

// Around a fork: nobody holds the loader's lock on the server's behalf.
void hold_symbols() noexcept;
void let_go_symbols() noexcept;
void drop_symbols() noexcept;

}  // namespace allod::live

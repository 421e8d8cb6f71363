// Symbol names of code addresses, from the files of loaded modules. For the server's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace allod::live {

struct Place {
  std::size_t id;             // equal for places in functions of the same name
  std::string_view function;  // demangled; module and offset if there is no name
  std::string_view file;      // empty without debug information
  unsigned line;
};
// Visits the places of a return address: several, innermost first, if code was inlined. Texts are
// valid during the call.
using PlaceVisit = void (*)(const Place& place, void* context);
void find_places(std::uintptr_t address, PlaceVisit visit, void* context) noexcept;

// The code of a module, with what lies between its parts.
struct Module {
  std::uintptr_t bias;  // address in memory minus address in the file
  std::uintptr_t from;
  std::uintptr_t to;
  std::uintptr_t offset;  // file offset of `from`
  char build_id[41];      // hexadecimal; empty: none
  char path[256];
};
[[nodiscard]] const Module* modules(std::size_t* count) noexcept;
// Updates the list of modules.
void refresh_modules() noexcept;

// Gives back what was read of files, but what took long and was just in use. Texts of known places
// stay. To be called when a question has been answered, and from time to time.
void settle_symbols() noexcept;
// Bytes mapped for reading files, outside the server's heap.
[[nodiscard]] std::size_t symbol_bytes() noexcept;

// Fork handlers: keep the server from holding the loader's lock at a fork.
void hold_symbols() noexcept;
void let_go_symbols() noexcept;
void drop_symbols() noexcept;

}  // namespace allod::live

// Unloaded files that call stacks of samples point into. Without them, these frames would get no
// name, or that of a file loaded at the same address since.
#pragma once

#include "allod/base/units.hpp"
#include "image/loaded_place.hpp"
#include "text/text.hpp"

namespace allod::profile {

// Created before dlclose(), it lists the executable mappings; its destructor notes those that are
// gone. Does nothing unless the profile has been on. Waits for the profile's lock; not for signal
// handlers.
class Closing {
 public:
  Closing() noexcept;
  ~Closing();
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

 private:
  char* text_ = nullptr;
  std::size_t length_ = 0;
};

// Writes lines like those of /proc/self/maps, each with the number of the last stack that has
// frames there. If files overlap, a stack belongs to the first whose number is not less than its
// own.
void write_closed_files(Text& out) noexcept;

// Finds the closed file that contained a frame of the stack with this number. Finds no function
// names. Thread-safe.
[[nodiscard]] bool find_closed_place(Address frame, std::uint64_t stack,
                                     LoadedPlace* place) noexcept;

}  // namespace allod::profile

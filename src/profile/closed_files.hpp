// Files of code that the program has closed, and in which call stacks of samples lie: without them,
// these would be named by nobody, or by what was loaded to the same place since.
#pragma once

#include "allod/base/units.hpp"
#include "image/loaded_place.hpp"
#include "text/text.hpp"

namespace allod::profile {

// The mappings of code before dlclose(), of which those that are gone are noted after it. Nothing
// when the profile knows of no sample. Waits for the profile's lock; not for signal handlers.
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

// As lines like those of the system's list of mappings, each with the number of the last stack that
// had frames there. Of several at one place, the first whose number is not less than a stack's is
// the stack's.
void write_closed_files(Text& out) noexcept;

// The closed file in which a frame of a stack lay, by the stack's number. Names no function. False
// if there is none. Thread-safe.
[[nodiscard]] bool find_closed_place(Address frame, std::uint64_t stack,
                                     LoadedPlace* place) noexcept;

}  // namespace allod::profile

// Which loaded object, and which of its functions, an address of code lies in.
#pragma once

#include "allod/base/units.hpp"

namespace allod {

struct LoadedPlace {
  const char* file = nullptr;  // the object's; null: not known
  Address file_base = 0;       // where its address 0 is, by which its symbols and tools count
  Address file_end = 0;        // behind all that is mapped of it; 0: not known
  const char* name = nullptr;  // of the nearest symbol that others can see; null: none
  Address name_begin = 0;
  // By which the file can be told from one that takes its place later; null: it has none, or that
  // is not known. Where the object is mapped.
  const unsigned char* build_id = nullptr;
  std::size_t build_id_bytes = 0;
};

// False when there is no object. As dladdr, but without the loader's lock, where the loader can
// tell (glibc 2.35 and later): a thread may have that while it waits for the one that asks, as the
// constructor of a library does that starts a thread and joins it.
[[nodiscard]] bool find_loaded_place(Address at, LoadedPlace* place) noexcept;

}  // namespace allod

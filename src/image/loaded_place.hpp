// From a code address to its loaded object and function.
#pragma once

#include "allod/base/units.hpp"

namespace allod {

struct LoadedPlace {
  const char* file = nullptr;  // of the object; null: unknown
  Address file_base = 0;       // load bias, from which its symbols count
  Address file_end = 0;        // end of its mappings; 0: unknown
  const char* name = nullptr;  // of the nearest exported symbol; null: none
  Address name_begin = 0;
  // Identifies the file's build. Points into the mapped object; null: none or unknown.
  const unsigned char* build_id = nullptr;
  std::size_t build_id_bytes = 0;
  unsigned line = 0;  // not 0: `name` and `file` are those of a function of an interpreter
};

// Like dladdr. Returns false if no object contains the address. With glibc 2.35 and later it does
// not take the loader's lock. Another thread may hold that while it waits for this one, for example
// in a library's constructor that starts a thread and joins it.
[[nodiscard]] bool find_loaded_place(Address at, LoadedPlace* place) noexcept;

}  // namespace allod

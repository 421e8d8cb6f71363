// dlopen for libraries that load on any glibc since 2.17, hidden from the program. Libraries that
// interpose it do without.
#include <dlfcn.h>

#include "libc/older/first.hpp"

ALLOD_FIRST(dlopen);

extern "C" void* dlopen(const char* file, int mode) noexcept {
  auto* function = &first_dlopen;
  if (function == nullptr) {
    function =
        reinterpret_cast<decltype(function)>(allod::older::function_of("libdl.so.2", "dlopen"));
  }
  return function == nullptr ? nullptr : function(file, mode);
}

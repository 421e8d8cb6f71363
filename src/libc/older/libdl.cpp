// Functions of <dlfcn.h> for libraries that load on any glibc since 2.17, hidden from the program.
#include <dlfcn.h>

#include "libc/older/first.hpp"

ALLOD_FIRST(dlsym);
ALLOD_FIRST(dladdr);

// Of glibc before 2.34, for its own use. Its libc.so always has them.
// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier)
extern "C" {
[[gnu::weak]] void* __libc_dlopen_mode(const char* file, int mode);
[[gnu::weak]] void* __libc_dlsym(void* handle, const char* name);
}
// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier)

namespace allod::older {

void* function_of(const char* library, const char* name) noexcept {
  if (&__libc_dlopen_mode == nullptr || &__libc_dlsym == nullptr) return nullptr;
  constexpr int kFromInside = static_cast<int>(0x80000000U);
  // Not global: while it calls constructors, the loader counts on what is.
  void* const handle = __libc_dlopen_mode(library, RTLD_NOW | kFromInside);
  return handle == nullptr ? nullptr : __libc_dlsym(handle, name);
}

}  // namespace allod::older

namespace {

// Thread-safe: whoever comes second finds the same.
template <class Function>
Function* found_in_libdl(Function* first, Function*& known, const char* name) noexcept {
  if (first != nullptr) return first;
  Function* found = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (found == nullptr) {
    found = reinterpret_cast<Function*>(allod::older::function_of("libdl.so.2", name));
    __atomic_store_n(&known, found, __ATOMIC_RELAXED);
  }
  return found;
}

decltype(::dlsym)* own_dlsym = nullptr;
decltype(::dladdr)* own_dladdr = nullptr;

}  // namespace

extern "C" {

void* dlsym(void* handle, const char* name) noexcept {
  const auto function = found_in_libdl(&first_dlsym, own_dlsym, "dlsym");
  return function == nullptr ? nullptr : function(handle, name);
}

int dladdr(const void* address, Dl_info* info) noexcept {
  const auto function = found_in_libdl(&first_dladdr, own_dladdr, "dladdr");
  return function == nullptr ? 0 : function(address, info);
}
}

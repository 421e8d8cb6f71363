// operator new when memory is exhausted: that of the program's C++ runtime does what has to be
// done. It asks malloc, which is ours or may have more, calls the new-handler, and throws.
#include "text/new_failure.hpp"

#include <dlfcn.h>
#include <stdlib.h>

#include "text/text.hpp"

namespace allod::entry {

namespace {

// The runtime's, behind our own. Null without a runtime.
template <class Function>
[[nodiscard]] Function* find_theirs(const char* name, Function* ours) noexcept {
  for (void* const where : {RTLD_NEXT, RTLD_DEFAULT}) {
    const auto found = reinterpret_cast<Function*>(dlsym(where, name));
    if (found != nullptr && found != ours) return found;
  }
  return nullptr;
}

}  // namespace

void* new_or_throw(std::size_t size, std::size_t alignment) {
  if (alignment != 0) {
    using New = void*(std::size_t, std::align_val_t);
    New* const theirs = find_theirs<New>("_ZnwmSt11align_val_t", &operator new);
    if (theirs != nullptr) return theirs(size, static_cast<std::align_val_t>(alignment));
  } else {
    using New = void*(std::size_t);
    New* const theirs = find_theirs<New>("_Znwm", &operator new);
    if (theirs != nullptr) return theirs(size);
  }
  {
    Message{} << "error: operator new: out of memory, and no C++ runtime to throw std::bad_alloc";
  }
  abort();
}

void* new_or_null(std::size_t size, std::size_t alignment) noexcept {
  const std::nothrow_t nothrow{};
  if (alignment != 0) {
    using New = void*(std::size_t, std::align_val_t, const std::nothrow_t&) noexcept;
    New* const theirs = find_theirs<New>("_ZnwmSt11align_val_tRKSt9nothrow_t", &operator new);
    return theirs != nullptr ? theirs(size, static_cast<std::align_val_t>(alignment), nothrow)
                             : nullptr;
  }
  using New = void*(std::size_t, const std::nothrow_t&) noexcept;
  New* const theirs = find_theirs<New>("_ZnwmRKSt9nothrow_t", &operator new);
  return theirs != nullptr ? theirs(size, nothrow) : nullptr;
}

}  // namespace allod::entry

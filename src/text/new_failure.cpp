// Compiled with exceptions, but linked without a C++ runtime: all references to one are weak. Code
// that throws brings a runtime with it.
#include "text/new_failure.hpp"

#include <dlfcn.h>
#include <stdlib.h>

#include "allod/base/processor/features.hpp"
#include "text/text.hpp"

#ifdef ALLOD_NEEDS_PERSONALITY_IN_DATA
// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier)
extern "C" [[gnu::weak]] int __gxx_personality_v0(...);
// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier)
[[gnu::used]] static int (*const personality)(...) = &__gxx_personality_v0;
#else
__asm__(".weak __gxx_personality_v0\n");
#endif
__asm__(
    ".weak __cxa_begin_catch\n"
    ".weak __cxa_end_catch\n"
    ".weak _Unwind_Resume\n"
    ".weak _ZSt9terminatev\n");

namespace allod::entry {

namespace {

using Handler = void (*)();

// The linker does not see a runtime that was loaded after us, or with RTLD_LOCAL.
void* find_in_runtime(const char* symbol) noexcept {
  if (void* const found = dlsym(RTLD_DEFAULT, symbol)) return found;
  for (const char* library : {"libstdc++.so.6", "libc++.so.1"}) {
    void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    if (void* const found = dlsym(handle, symbol)) return found;
  }
  return nullptr;
}

Handler current_handler() noexcept {
  using GetHandler = Handler (*)();
  const auto get = reinterpret_cast<GetHandler>(find_in_runtime("_ZSt15get_new_handlerv"));
  return get == nullptr ? nullptr : get();
}

[[noreturn]] void throw_bad_alloc() {
  const auto thrower = reinterpret_cast<void (*)()>(find_in_runtime("_ZSt17__throw_bad_allocv"));
  if (thrower != nullptr) thrower();
  {
    Message{} << "error: operator new: out of memory, and no C++ runtime to throw std::bad_alloc";
  }
  abort();
}

void* new_with_handler(std::size_t size, std::size_t alignment) {
  for (;;) {
    if (void* const block = try_new(size, alignment)) return block;
    const Handler handler = current_handler();
    if (handler == nullptr) return nullptr;
    handler();
  }
}

template <class Call>
void* unless_thrown(Call&& call) noexcept {
  try {
    return call();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

void* new_or_throw(std::size_t size, std::size_t alignment) {
  void* const block = new_with_handler(size, alignment);
  if (block == nullptr) throw_bad_alloc();
  return block;
}

void* new_or_null(std::size_t size, std::size_t alignment) noexcept {
  return unless_thrown([=] { return new_with_handler(size, alignment); });
}

void* or_null(void* (*form)(std::size_t), std::size_t size) noexcept {
  return unless_thrown([=] { return form(size); });
}
void* or_null(void* (*form)(std::size_t, std::align_val_t), std::size_t size,
              std::align_val_t alignment) noexcept {
  return unless_thrown([=] { return form(size, alignment); });
}

}  // namespace allod::entry

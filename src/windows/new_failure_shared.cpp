// For allod.dll, which has no C++ runtime: that of gcc is asked if the program has it as a library
// of its own. Another one cannot be found.
#include "allod/os/windows/calls.hpp"
#include "text/new_failure.hpp"
#include "text/text.hpp"

extern "C" int allod_win_end(void* process, std::uint32_t status) noexcept  // NOLINT
    __asm__("TerminateProcess");

namespace allod::entry {

namespace {

template <class Function>
[[nodiscard]] Function find_in_runtime(const char* name) noexcept {
  void* const runtime = allod_win_module("libstdc++-6.dll");
  if (runtime == nullptr) return nullptr;
  return reinterpret_cast<Function>(allod_win_function(runtime, name));
}

void* new_with_handler(std::size_t size, std::size_t alignment) {
  using Handler = void (*)();
  for (;;) {
    if (void* const block = try_new(size, alignment)) return block;
    const auto get = find_in_runtime<Handler (*)()>("_ZSt15get_new_handlerv");
    const Handler handler = get == nullptr ? nullptr : get();
    if (handler == nullptr) return nullptr;
    handler();
  }
}

}  // namespace

void* new_or_throw(std::size_t size, std::size_t alignment) {
  constexpr std::uint32_t kAborted = 3;
  void* const block = new_with_handler(size, alignment);
  if (block != nullptr) return block;
  const auto thrower = find_in_runtime<void (*)()>("_ZSt17__throw_bad_allocv");
  if (thrower != nullptr) thrower();
  {
    Message{} << "error: allod_new: out of memory, and no C++ runtime to throw std::bad_alloc";
  }
  allod_win_end(os::own_process(), kAborted);
  return nullptr;
}

// An exception of the handler ends the process.
void* new_or_null(std::size_t size, std::size_t alignment) noexcept {
  return new_with_handler(size, alignment);
}

}  // namespace allod::entry

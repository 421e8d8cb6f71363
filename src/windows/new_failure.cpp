// For programs that link statically, with the C++ runtime that they have. Compiled with exceptions.
#include "text/new_failure.hpp"

#include <new>

namespace allod::entry {

namespace {

void* new_with_handler(std::size_t size, std::size_t alignment) {
  for (;;) {
    if (void* const block = try_new(size, alignment)) return block;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) return nullptr;
    handler();
  }
}

}  // namespace

void* new_or_throw(std::size_t size, std::size_t alignment) {
  void* const block = new_with_handler(size, alignment);
  if (block == nullptr) throw std::bad_alloc{};
  return block;
}

void* new_or_null(std::size_t size, std::size_t alignment) noexcept {
  try {
    return new_with_handler(size, alignment);
  } catch (...) {
    return nullptr;
  }
}

}  // namespace allod::entry

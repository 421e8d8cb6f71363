// Functions of libc that we stand in front of.
#pragma once

#include <dlfcn.h>

#include <atomic>

namespace allod {

// The function of that name behind ours, or null; found once, and kept in `known`. Thread-safe.
template <class Function>
[[nodiscard]] Function next_function(std::atomic<Function>& known, const char* name) noexcept {
  Function next = known.load(std::memory_order_relaxed);
  if (next == nullptr) {
    next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
    known.store(next, std::memory_order_relaxed);
  }
  return next;
}

}  // namespace allod

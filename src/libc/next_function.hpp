// libc functions that Allod interposes.
#pragma once

#include <dlfcn.h>

#include <atomic>

namespace allod {

// Finds the next function of that name behind ours, and keeps it in `known`. Null if none exists.
// Thread-safe.
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

// The ends of threads, and the beginning of the module, by callbacks of the loader.
#pragma once

#include "allod/base/base.hpp"
#include "allod/os/windows/calls.hpp"

extern "C" {
// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier)
// The C runtime's directory of thread-local storage, which names the callbacks. The linker takes it
// only where something refers to it.
extern const char _tls_used;
// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier)
}

namespace allod::os {

// Constant-initialised, then as os::Hosting says. One in a module.
//
// Not fiber-local storage: that calls back at the end of a fiber, whose thread goes on. The
// callbacks run in the order of their sections' names: ours, near the end, after destructors of
// thread-local variables. The thread's own cells are there until after the last callback.
class ThreadEnd {
 public:
  constexpr ThreadEnd() noexcept = default;

  [[nodiscard]] bool watch(void (*function)(void*)) noexcept {
    void (*none)(void*) = nullptr;
    return function_.compare_exchange_strong(none, function) || none == function;
  }
  bool expect(void* value) noexcept {
    value_ = value;
    return true;
  }

  // Called by the loader.
  static void notice(void*, std::uint32_t reason, void*) noexcept {
    constexpr std::uint32_t kProcessBegins = 1;
    constexpr std::uint32_t kThreadEnds = 3;
    if (reason == kProcessBegins) NewerCalls::find();
    if (reason != kThreadEnds) return;
    void* const value = value_;
    if (value == nullptr) return;
    value_ = nullptr;
    function_.load()(value);
  }

 private:
  static inline constinit std::atomic<void (*)(void*)> function_{nullptr};
  ALLOD_THREAD_LOCAL(void*, value_, nullptr);
};

// gcc knows no pragma for it: a pointer in one of the sections between .CRT$XLA and .CRT$XLZ.
[[gnu::section(".CRT$XLY"),
  gnu::used]] inline void (*const kNotice)(void*, std::uint32_t,
                                           void*) noexcept = &ThreadEnd::notice;
[[gnu::used]] inline const char* const kDirectory = &_tls_used;

}  // namespace allod::os

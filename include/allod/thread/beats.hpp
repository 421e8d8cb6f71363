// Deferred frees, for language runtimes: slow paths call a function of the program.
#pragma once

#include <atomic>
#include <cstdint>

#include "allod/base/base.hpp"

namespace allod::thread {

// Thread-safe. Constant-initialised, without a function.
class Beats {
 public:
  using Function = void (*)(int force, std::uint64_t heartbeat, void* context);

  // Null ends the calls; one may still be under way.
  void set(Function function, void* context) noexcept {
    function_.store(nullptr);
    context_.store(context);
    function_.store(function);
  }
  [[nodiscard]] ALLOD_INLINE bool are_wanted() const noexcept {
    return __builtin_expect(function_.load(std::memory_order_relaxed) != nullptr, 0);
  }
  // Calls the function, unless the calling thread is within it.
  ALLOD_COLD void beat(bool force) noexcept {
    const Function function = function_.load();
    void* const context = context_.load();
    // If the two do not match, another thread is changing them.
    if (function == nullptr || function != function_.load() || in_beat_) return;
    in_beat_ = true;
    function(force ? 1 : 0, ++heartbeat_, context);
    in_beat_ = false;
  }

 private:
  std::atomic<Function> function_{nullptr};
  std::atomic<void*> context_{nullptr};
  ALLOD_THREAD_LOCAL(bool, in_beat_, false);
  ALLOD_THREAD_LOCAL(std::uint64_t, heartbeat_, 0);
};

}  // namespace allod::thread

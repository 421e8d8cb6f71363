// The ends of threads, by a key of the thread library.
#pragma once

#include <pthread.h>

namespace allod::os {

// Constant-initialised, then as os::Hosting says.
class ThreadEnd {
 public:
  constexpr ThreadEnd() noexcept = default;

  [[nodiscard]] bool watch(void (*function)(void*)) noexcept {
    return pthread_key_create(&key_, function) == 0;
  }
  bool expect(void* value) noexcept { return pthread_setspecific(key_, value) == 0; }

 private:
  pthread_key_t key_ = 0;
};

}  // namespace allod::os

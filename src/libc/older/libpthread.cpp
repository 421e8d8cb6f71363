// Functions of <pthread.h> for libraries that load on any glibc since 2.17, hidden from the
// program.
#include <errno.h>
#include <pthread.h>

#include "allod/base/cpu.hpp"
#include "libc/completion.hpp"
#include "libc/older/find_object.hpp"
#include "libc/older/first.hpp"

ALLOD_FIRST(pthread_key_create);
ALLOD_FIRST(pthread_setspecific);

namespace {

decltype(::pthread_key_create)* key_create = &first_pthread_key_create;
decltype(::pthread_setspecific)* setspecific = &first_pthread_setspecific;

template <class Function>
ALLOD_HOT void find(Function*& function, const char* name) noexcept {
  if (function != nullptr) return;
  function = reinterpret_cast<Function*>(allod::older::function_of("libpthread.so.0", name));
}

}  // namespace

extern "C" {

ALLOD_HOT int pthread_key_create(pthread_key_t* key, void (*end)(void*)) noexcept {
  return key_create == nullptr ? EAGAIN : key_create(key, end);
}
ALLOD_HOT int pthread_setspecific(pthread_key_t key, const void* value) noexcept {
  return setspecific == nullptr ? EINVAL : setspecific(key, value);
}

// What libgcc asks for its address, to know whether there are threads.
// NOLINTNEXTLINE(readability-identifier-naming, bugprone-reserved-identifier)
int __pthread_key_create(pthread_key_t* key, void (*end)(void*)) noexcept {
  return pthread_key_create(key, end);
}

// Of libgcc, to initialise a mutex.
int pthread_once(pthread_once_t* once, void (*initialise)()) {
  constexpr int kRuns = 1;
  constexpr int kDone = 2;
  int state = 0;
  if (__atomic_compare_exchange_n(once, &state, kRuns, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
    initialise();
    __atomic_store_n(once, kDone, __ATOMIC_RELEASE);
  }
  while (__atomic_load_n(once, __ATOMIC_ACQUIRE) != kDone) {
  }
  return 0;
}

ALLOD_HOT void allod_complete_libc() noexcept {
  find(key_create, "pthread_key_create");
  find(setspecific, "pthread_setspecific");
  allod::older::find_finder();
}
}

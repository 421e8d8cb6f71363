// Functions that start threads, for libraries that load on any glibc since 2.17, hidden from the
// program.
#include <errno.h>
#include <pthread.h>

#include "libc/older/first.hpp"

ALLOD_FIRST(pthread_create);
ALLOD_FIRST(pthread_join);
ALLOD_FIRST(pthread_attr_setstacksize);

namespace {

template <class Function>
Function* find(Function* first, const char* name) noexcept {
  if (first != nullptr) return first;
  return reinterpret_cast<Function*>(allod::older::function_of("libpthread.so.0", name));
}

}  // namespace

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  const auto function = find(&first_pthread_create, "pthread_create");
  return function == nullptr ? EAGAIN : function(thread, attributes, run, argument);
}
int pthread_join(pthread_t thread, void** result) {
  const auto function = find(&first_pthread_join, "pthread_join");
  return function == nullptr ? ESRCH : function(thread, result);
}
int pthread_attr_setstacksize(pthread_attr_t* attributes, size_t bytes) noexcept {
  const auto function = find(&first_pthread_attr_setstacksize, "pthread_attr_setstacksize");
  return function == nullptr ? EINVAL : function(attributes, bytes);
}
}

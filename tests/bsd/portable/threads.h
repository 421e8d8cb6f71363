/* Threads, and the error of the last call, on each system. */
#pragma once

#ifdef _WIN32

#include <windows.h>

typedef HANDLE thread_t;
typedef DWORD thread_result;
#define THREAD_FUNCTION thread_result WINAPI

static inline int start_thread(thread_t* thread, thread_result(WINAPI* function)(void*),
                               void* argument) {
  *thread = CreateThread(NULL, 0, function, argument, 0, NULL);
  return *thread != NULL;
}
static inline int join_thread(thread_t thread) {
  const int is_done = WaitForSingleObject(thread, INFINITE) == WAIT_OBJECT_0;
  CloseHandle(thread);
  return is_done;
}
static inline void rest(void) { Sleep(1); }
static inline void set_last_error(int error) { SetLastError((DWORD)error); }
static inline int last_error(void) { return (int)GetLastError(); }

#else

#include <errno.h>
#include <pthread.h>
#include <time.h>

typedef pthread_t thread_t;
typedef void* thread_result;
#define THREAD_FUNCTION thread_result

static inline int start_thread(thread_t* thread, thread_result (*function)(void*), void* argument) {
  return pthread_create(thread, NULL, function, argument) == 0;
}
static inline int join_thread(thread_t thread) { return pthread_join(thread, NULL) == 0; }
static inline void rest(void) {
  const struct timespec millisecond = {0, 1000000};
  nanosleep(&millisecond, NULL);
}
static inline void set_last_error(int error) { errno = error; }
static inline int last_error(void) { return errno; }

#endif
